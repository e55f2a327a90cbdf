//! A count on the terminal while much is looked at.

use std::io::{self, IsTerminal as _, Write as _};

/// So many more, and the count is shown again.
const UPDATE_INTERVAL: u64 = 100;

/// A line on standard error that is written over and over, and gone at the end. Nothing where there is no terminal.
pub(crate) struct ProgressLine {
    is_enabled: bool,
    shown_count: u64,
}

impl ProgressLine {
    /// A line, if it is wanted and somebody can see it.
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self {
            is_enabled: is_wanted && io::stderr().is_terminal(),
            shown_count: 0,
        }
    }

    /// So many were looked at.
    pub(crate) fn update_count(&mut self, count: u64, line: impl FnOnce() -> String) {
        if self.is_enabled && count >= self.shown_count + UPDATE_INTERVAL {
            self.shown_count = count;
            let _ = write!(io::stderr(), "\r{}\x1b[K\r", line());
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        if self.shown_count > 0 {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
