//! Progress counter on the terminal for commands that read many rows.

use std::io::{self, IsTerminal as _, Write as _};

/// The counter is redrawn after this many more entries.
const UPDATE_INTERVAL: u64 = 100;

/// A line on standard error that is redrawn in place and cleared on drop. Prints nothing if
/// standard error is not a terminal.
pub(crate) struct ProgressLine {
    is_enabled: bool,
    shown_count: u64,
}

impl ProgressLine {
    /// Creates a line that is shown if `is_wanted` and standard error is a terminal.
    pub(crate) fn new(is_wanted: bool) -> Self {
        Self {
            is_enabled: is_wanted && io::stderr().is_terminal(),
            shown_count: 0,
        }
    }

    /// Sets the number of processed entries; calls `line` only when the line is redrawn.
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
