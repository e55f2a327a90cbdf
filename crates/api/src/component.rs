//! Components and their functions.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A function of a component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct FunctionInfo {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: FunctionKind,
    /// A JSON schema of its input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Deployed {
    /// The digest of its bytes: `sha256:…`.
    pub component: String,
    /// What it has.
    pub functions: Vec<FunctionInfo>,
}

/// What a name stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NamedFunction {
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
pub struct NamedFunctions {
    /// All of a scope.
    pub functions: Vec<NamedFunction>,
}
