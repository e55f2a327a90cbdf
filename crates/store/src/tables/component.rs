//! Code, and by which names it is called.

use std::sync::Arc;

use onward_journal::{ComponentDigest, Text, Timestamp};
use onward_runs::{EnvironmentId, ProjectId, TenantId};

use crate::record;

record! {
    /// A component: code that does not change, named by its digest.
    "components", key 1;
    pub struct Component {
        /// The digest of the code.
        pub component_digest: ComponentDigest = "component_digest",
        /// The code.
        pub code: Arc<[u8]> = "code",
        /// The functions that it says it has, as JSON.
        pub functions: Text = "functions",
        /// When it was stored first.
        pub created_at: Timestamp = "created_at",
    }
}

record! {
    /// Which component a name stands for when an execution starts. Executions that have started keep theirs.
    "functions", key 4,
    index BY_COMPONENT ["component_digest"];
    pub struct Function {
        /// Whose it is.
        pub tenant_id: TenantId = "tenant_id",
        /// In which project.
        pub project_id: ProjectId = "project_id",
        /// In which environment.
        pub environment_id: EnvironmentId = "environment_id",
        /// The name.
        pub name: Text = "name",
        /// `workflow` or `task`.
        pub kind: Text = "kind",
        /// The component.
        pub component_digest: ComponentDigest = "component_digest",
        /// Which hosts it may send requests to: a JSON array of patterns.
        pub hosts: Text = "hosts",
        /// Since when.
        pub deployed_at: Timestamp = "deployed_at",
    }
}
