//! Who performs an attempt.

use crate::ExecutionId;

/// Who performs an attempt of an invocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum InvokePerformer {
    /// Whoever runs the execution itself.
    #[default]
    Owner,
    /// Another execution, with a journal of its own.
    Child(ExecutionId),
    /// A worker that asks for tasks.
    Worker,
}

impl InvokePerformer {
    /// The execution that performs it, if one does.
    pub const fn child_execution(self) -> Option<ExecutionId> {
        match self {
            Self::Child(child) => Some(child),
            Self::Owner | Self::Worker => None,
        }
    }

    /// Whether whoever runs the execution performs it: nobody else goes on with it after a crash.
    pub const fn is_owner(self) -> bool {
        matches!(self, Self::Owner)
    }
}
