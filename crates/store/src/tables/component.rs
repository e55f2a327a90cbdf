//! Tables of WASM components and of the function names that refer to them.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp, text_enum};
use onward_journal::ComponentDigest;

use crate::define_table;

define_table! {
    /// A WASM component: immutable code, identified by its digest.
    "components", key 1;
    pub struct ComponentRow {
        /// SHA-256 digest of the code.
        pub component_digest: ComponentDigest = "component_digest",
        /// The code of the component.
        pub code: Arc<[u8]> = "code",
        /// The functions that the component declares, as JSON.
        pub functions: SharedText = "functions",
        /// When the component was first stored.
        pub created_at: Timestamp = "created_at",
    }
}

text_enum! {
    /// What a deployed function is.
    DeployedFunctionKind {
        /// A durable, deterministic function that calls tasks and other workflows.
        Workflow = "workflow",
        /// A leaf of the call tree, which may have side effects.
        Task = "task",
    }
}

define_table! {
    /// A function name and the component that it refers to when an execution starts. Executions
    /// that have started stay pinned to their component.
    "functions", key 4,
    index BY_COMPONENT ["component_digest"];
    pub struct FunctionRow {
        /// The tenant that owns the function.
        pub tenant_id: TenantId = "tenant_id",
        /// The project of the function.
        pub project_id: ProjectId = "project_id",
        /// The environment of the function.
        pub environment_id: EnvironmentId = "environment_id",
        /// Name of the function.
        pub name: SharedText = "name",
        /// Whether the function is a workflow or a task.
        pub kind: DeployedFunctionKind = "kind",
        /// The component that new executions of the function run.
        pub component_digest: ComponentDigest = "component_digest",
        /// Hosts that the function may send requests to: a JSON array of patterns.
        pub hosts: SharedText = "hosts",
        /// When the function was deployed to this component.
        pub deployed_at: Timestamp = "deployed_at",
    }
}
