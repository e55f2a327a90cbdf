//! A count on the terminal while much is looked at.

use std::io::{self, IsTerminal as _, Write as _};

/// So many more, and the count is shown again.
const EVERY: u64 = 100;

/// A line on standard error that is written over and over, and gone at the end. Nothing where there is no terminal.
pub(crate) struct Progress {
    is_wanted: bool,
    shown: u64,
}

impl Progress {
    /// A line, if it is wanted and somebody can see it.
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self { is_wanted: is_wanted && io::stderr().is_terminal(), shown: 0 }
    }

    /// So many were looked at.
    pub(crate) fn at(&mut self, count: u64, line: impl FnOnce() -> String) {
        if self.is_wanted && count >= self.shown + EVERY {
            self.shown = count;
            let _ = write!(io::stderr(), "\r{}\x1b[K\r", line());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
