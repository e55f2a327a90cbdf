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
    /// Encodes a scope: the workspace is `PROJECT|ENVIRONMENT`. No id contains `|`, so different
    /// scopes have different columns. Ids of runs are derived from these texts, so the encoding
    /// never changes.
    pub(crate) fn from_scope(scope: &Scope) -> Self {
        Self {
            tenant_id: scope.tenant.as_text().clone(),
            workspace_id: format!("{}|{}", scope.project, scope.environment).into(),
        }
    }

    /// The workspace as schema 2 encoded it: `PROJECT/ENVIRONMENT`, which is ambiguous if an id
    /// contains `/`. Ids of runs that were deployed under schema 2 are derived from it.
    pub(crate) fn schema_2_workspace(workspace_id: &str) -> String {
        workspace_id.replace('|', "/")
    }

    /// The id in the store of an audience of this scope. Names contain no `|`.
    pub(crate) fn audience_id(&self, name: &str) -> SharedText {
        format!("{}|{}|{name}", self.tenant_id, self.workspace_id).into()
    }

    /// Whether a row with these values belongs to the scope.
    pub(crate) fn match_row(&self, tenant_id: &SharedText, workspace_id: &SharedText) -> bool {
        self.tenant_id == *tenant_id && self.workspace_id == *workspace_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(tenant: &str, project: &str, environment: &str) -> ScopeColumns {
        ScopeColumns::from_scope(&Scope {
            tenant: tenant.parse().unwrap(),
            project: project.parse().unwrap(),
            environment: environment.parse().unwrap(),
        })
    }

    #[test]
    fn the_columns_of_a_scope_are_those_of_schema_3() {
        let columns = columns("acme", "shop", "production");
        assert_eq!(&*columns.tenant_id, "acme");
        assert_eq!(&*columns.workspace_id, "shop|production");
        assert_eq!(
            &*columns.audience_id("readers"),
            "acme|shop|production|readers"
        );
        let workspace = ScopeColumns::schema_2_workspace(&columns.workspace_id);
        assert_eq!(workspace, "shop/production");
    }

    #[test]
    fn scopes_whose_ids_contain_slashes_share_no_columns_and_no_audience() {
        let scopes = [
            columns("acme", "a/b", "c"),
            columns("acme", "a", "b/c"),
            columns("acme/a", "b", "c"),
        ];
        for (place, scope) in scopes.iter().enumerate() {
            for other in &scopes[place + 1..] {
                assert_ne!(scope, other);
                assert_ne!(scope.audience_id("readers"), other.audience_id("readers"));
            }
        }
    }
}
