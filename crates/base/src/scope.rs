//! The owner of an object: every id of the product is unique within one scope.

use crate::text_ids;

text_ids! {
    /// The organisation that owns an object.
    TenantId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
    /// A project that belongs to a tenant.
    ProjectId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
    /// An environment that belongs to a project, such as production.
    EnvironmentId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
}

/// The tenant, project and environment that own an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The tenant that owns the object.
    pub tenant: TenantId,
    /// The project of the tenant that the object belongs to.
    pub project: ProjectId,
    /// The environment of the project that the object belongs to.
    pub environment: EnvironmentId,
}

impl Scope {
    /// Returns whether an object with these owner ids is in this scope.
    pub fn matches_ids(
        &self,
        tenant: &TenantId,
        project: &ProjectId,
        environment: &EnvironmentId,
    ) -> bool {
        (tenant, project, environment) == (&self.tenant, &self.project, &self.environment)
    }
}
