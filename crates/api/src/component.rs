//! Components and their functions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RawJson;

/// A function of a component.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionInfo {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: FunctionKind,
    /// A JSON schema of its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<RawJson>,
}

/// What a function is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FunctionKind {
    /// Durable: it is replayed.
    Workflow,
    /// A leaf with effects.
    Task,
}

impl FunctionKind {
    /// As it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Task => "task",
        }
    }
}

/// A component that is deployed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeployComponentResponse {
    /// The digest of its bytes: `sha256:…`.
    pub component: String,
    /// What it has.
    pub functions: Vec<FunctionInfo>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedFunction {
    /// The name.
    pub name: String,
    /// What it is.
    pub kind: FunctionKind,
    /// The component that has it.
    pub component: String,
    /// Hosts that it may send requests to.
    pub hosts: Vec<String>,
    /// When it was deployed.
    pub deployed_at: String,
}

/// What names stand for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    /// All of a scope.
    pub functions: Vec<DeployedFunction>,
}

/// A component that names stand for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedComponent {
    /// The digest of its bytes: `sha256:…`.
    pub component: String,
    /// When a name was last made to stand for it.
    pub deployed_at: String,
    /// The names. Others that it has stand for functions of another component now.
    pub functions: Vec<DeployedFunction>,
}

/// Components that names stand for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ComponentList {
    /// All of a scope, the last deployed first.
    pub components: Vec<DeployedComponent>,
}

impl ComponentList {
    /// Those that these names stand for.
    pub fn from_functions(functions: Vec<DeployedFunction>) -> Self {
        let mut named: BTreeMap<String, Vec<DeployedFunction>> = BTreeMap::new();
        for function in functions {
            named
                .entry(function.component.clone())
                .or_default()
                .push(function);
        }
        let info = |(component, functions): (String, Vec<DeployedFunction>)| {
            let last = functions.iter().map(|function| &function.deployed_at).max();
            DeployedComponent {
                component,
                deployed_at: last.cloned().unwrap_or_default(),
                functions,
            }
        };
        let mut components: Vec<DeployedComponent> = named.into_iter().map(info).collect();
        components.sort_by(|one, other| other.deployed_at.cmp(&one.deployed_at));
        Self { components }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str, component: &str, deployed_at: &str) -> DeployedFunction {
        DeployedFunction {
            name: name.to_owned(),
            kind: FunctionKind::Task,
            component: component.to_owned(),
            hosts: Vec::new(),
            deployed_at: deployed_at.to_owned(),
        }
    }

    #[test]
    fn the_last_deployed_comes_first_with_all_its_names() {
        let old = named("ship", "sha256:aa", "2026-01-02T00:00:00Z");
        let (one, other) = (
            named("charge", "sha256:bb", "2026-01-03T00:00:00Z"),
            named("refund", "sha256:bb", "2026-01-03T00:00:00Z"),
        );
        let all = ComponentList::from_functions(vec![one.clone(), other.clone(), old.clone()]);
        let names: Vec<_> = all
            .components
            .into_iter()
            .map(|it| (it.component, it.functions))
            .collect();
        assert_eq!(
            names,
            [
                ("sha256:bb".to_owned(), vec![one, other]),
                ("sha256:aa".to_owned(), vec![old])
            ]
        );
    }
}
