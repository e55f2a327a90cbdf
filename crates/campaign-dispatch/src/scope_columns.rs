//! The scope of a campaign as its rows store it. The tables have two columns for the three parts of
//! a scope; this file is the only place that knows how the parts are encoded.

use onward_base::{Scope, SharedText};

/// The values of the columns `tenant_id` and `workspace_id` of a scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScopeColumns {
    pub(crate) tenant_id: SharedText,
    pub(crate) workspace_id: SharedText,
}

impl ScopeColumns {
    /// Encodes a scope: the workspace is `PROJECT/ENVIRONMENT`. Ids and idempotency keys are
    /// derived from these texts, so the encoding never changes.
    pub(crate) fn from_scope(scope: &Scope) -> Self {
        Self {
            tenant_id: scope.tenant.as_text().clone(),
            workspace_id: format!("{}/{}", scope.project, scope.environment).into(),
        }
    }

    /// Whether a row with these values belongs to the scope.
    pub(crate) fn match_row(&self, tenant_id: &SharedText, workspace_id: &SharedText) -> bool {
        self.tenant_id == *tenant_id && self.workspace_id == *workspace_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_scope_are_those_of_schema_1() {
        let scope = Scope {
            tenant: "acme".parse().unwrap(),
            project: "shop".parse().unwrap(),
            environment: "production".parse().unwrap(),
        };
        let columns = ScopeColumns::from_scope(&scope);
        assert_eq!(&*columns.tenant_id, "acme");
        assert_eq!(&*columns.workspace_id, "shop/production");
    }
}
