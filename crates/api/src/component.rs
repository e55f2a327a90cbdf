//! Wire types for components and the functions that they export.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::RawJson;

/// A function that a component exports.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionInfo {
    /// The name of the function.
    pub name: String,
    /// Whether the function is a workflow or a task.
    pub kind: FunctionKind,
    /// JSON Schema of the input; absent if the component declares none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<RawJson>,
}

/// The kind of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum FunctionKind {
    /// A workflow: durable, recovered by replay.
    Workflow,
    /// A task: a leaf with side effects.
    Task,
}

impl FunctionKind {
    /// The kind as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Task => "task",
        }
    }
}

/// A component to deploy.
#[derive(Debug, Clone, Default)]
pub struct ComponentDeployment {
    /// The bytes of the component.
    pub code: Vec<u8>,
    /// Hosts to which its functions may send requests, if the process that runs them allows these
    /// hosts too.
    pub hosts: Vec<String>,
    /// Whether it may take over names of functions of another component.
    pub replace: bool,
}

/// A function name that a deployment took from another component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplacedFunction {
    /// The name of the function.
    pub function: String,
    /// The digest of the component that had the name before.
    pub component: String,
}

/// The result of deploying a component.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct DeployComponentResponse {
    /// The digest of the component's bytes: `sha256:…`.
    pub component: String,
    /// The functions that the component exports.
    pub functions: Vec<FunctionInfo>,
    /// The names that it took from other components.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<ReplacedFunction>,
}

/// A deployed function: the component that its name resolves to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedFunction {
    /// The name of the function.
    pub name: String,
    /// Whether the function is a workflow or a task.
    pub kind: FunctionKind,
    /// The digest of the component that exports the function.
    pub component: String,
    /// The hosts that the function may send requests to.
    pub hosts: Vec<String>,
    /// When the function was deployed (RFC 3339).
    pub deployed_at: String,
}

/// The deployed functions of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FunctionList {
    /// All deployed functions of the scope.
    pub functions: Vec<DeployedFunction>,
}

/// A component that at least one function name resolves to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeployedComponent {
    /// The digest of the component's bytes: `sha256:…`.
    pub component: String,
    /// When a function name was last pointed to this component (RFC 3339).
    pub deployed_at: String,
    /// The function names that resolve to this component. Other functions that it exports are now
    /// provided by another component.
    pub functions: Vec<DeployedFunction>,
}

/// The deployed components of a scope.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ComponentList {
    /// All deployed components of the scope, the last deployed first.
    pub components: Vec<DeployedComponent>,
}

impl ComponentList {
    /// Groups deployed functions by their component.
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

    fn function(name: &str, component: &str, deployed_at: &str) -> DeployedFunction {
        DeployedFunction {
            name: name.to_owned(),
            kind: FunctionKind::Task,
            component: component.to_owned(),
            hosts: Vec::new(),
            deployed_at: deployed_at.to_owned(),
        }
    }

    #[test]
    fn the_component_deployed_last_comes_first_with_all_its_functions() {
        let old = function("ship", "sha256:aa", "2026-01-02T00:00:00Z");
        let (one, other) = (
            function("charge", "sha256:bb", "2026-01-03T00:00:00Z"),
            function("refund", "sha256:bb", "2026-01-03T00:00:00Z"),
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
