//! The performer of an attempt: the owner of the execution, a child execution or a worker.

use crate::ExecutionId;

/// The party that performs an attempt of an invocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum InvokePerformer {
    /// The owner that runs the execution itself.
    #[default]
    Owner,
    /// A child execution, with a journal of its own.
    Child(ExecutionId),
    /// A worker that claims tasks.
    Worker,
}

impl InvokePerformer {
    /// Returns the child execution that performs the attempt; `None` if the owner or a worker does.
    pub const fn child_execution(self) -> Option<ExecutionId> {
        match self {
            Self::Child(child) => Some(child),
            Self::Owner | Self::Worker => None,
        }
    }

    /// Returns whether the owner of the execution performs the attempt. No other party continues
    /// such an attempt after a crash.
    pub const fn is_owner(self) -> bool {
        matches!(self, Self::Owner)
    }
}
