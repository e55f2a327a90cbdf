//! The reason why the simulation of a seed failed.

use std::fmt;

/// A violated invariant, or an error that the simulation does not expect. The text is only printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimFailure(String);

impl SimFailure {
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl fmt::Display for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for SimFailure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}
