//! The functions that a component exports, as the engine and every guest runtime know them.

use std::fmt;

use onward_base::{BoundedName, Payload};

/// A function that a component exports, as its `describe` reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestFunction {
    /// Name of the function; unique in its component.
    pub name: BoundedName,
    /// Whether the function is a workflow or a task.
    pub kind: GuestFunctionKind,
    /// JSON schema of the function's input; `None` if the component declares none.
    pub schema: Option<Payload>,
}

/// The kinds of functions that a component can export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestFunctionKind {
    /// Durable and deterministic: it requests everything it does not compute from the engine.
    Workflow,
    /// A leaf of the call tree, which may have side effects.
    Task,
}

impl GuestFunctionKind {
    /// The kind as it is stored and shown.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Task => "task",
        }
    }
}

impl fmt::Display for GuestFunctionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
