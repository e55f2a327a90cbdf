//! The owner of an object: every id of the product is unique within one scope.

use crate::text_ids;

text_ids! {
    /// The organisation that owns an object.
    TenantId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
    /// A project of a tenant.
    ProjectId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
    /// An environment of a project, such as production.
    EnvironmentId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
}

/// The tenant, project and environment that own an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The tenant.
    pub tenant: TenantId,
    /// The project.
    pub project: ProjectId,
    /// The environment.
    pub environment: EnvironmentId,
}

impl Scope {
    /// Whether an object with these owner ids is in this scope.
    pub fn matches_ids(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        environment: &EnvironmentId,
    ) -> bool {
        (tenant, project, environment) == (&self.tenant, &self.project, &self.environment)
    }
}
