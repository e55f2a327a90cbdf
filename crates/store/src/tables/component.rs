//! Code, and by which names it is called.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp};
use onward_journal::ComponentDigest;

use crate::define_table;

define_table! {
    /// A component: code that does not change, named by its digest.
    "components", key 1;
    pub struct ComponentRow {
        /// The digest of the code.
        pub component_digest: ComponentDigest = "component_digest",
        /// The code.
        pub code: Arc<[u8]> = "code",
        /// The functions that it says it has, as JSON.
        pub functions: SharedText = "functions",
        /// When it was stored first.
        pub created_at: Timestamp = "created_at",
    }
}

define_table! {
    /// Which component a name stands for when an execution starts. Executions that have started keep theirs.
    "functions", key 4,
    index BY_COMPONENT ["component_digest"];
    pub struct FunctionRow {
        /// Whose it is.
        pub tenant_id: TenantId = "tenant_id",
        /// In which project.
        pub project_id: ProjectId = "project_id",
        /// In which environment.
        pub environment_id: EnvironmentId = "environment_id",
        /// The name.
        pub name: SharedText = "name",
        /// `workflow` or `task`.
        pub kind: SharedText = "kind",
        /// The component.
        pub component_digest: ComponentDigest = "component_digest",
        /// Which hosts it may send requests to: a JSON array of patterns.
        pub hosts: SharedText = "hosts",
        /// Since when.
        pub deployed_at: Timestamp = "deployed_at",
    }
}
