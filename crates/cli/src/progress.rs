//! Progress counter on the terminal for commands that read many rows.

use std::io::{self, IsTerminal as _, Write as _};

use crate::console::OutputFormat;

/// The counter is redrawn after this many more entries.
const UPDATE_INTERVAL: u64 = 100;

/// A line on standard error that is redrawn in place and cleared on drop. Prints nothing if
/// standard error is not a terminal.
pub(crate) struct ProgressLine {
    is_enabled: bool,
    shown_count: u64,
}

impl ProgressLine {
    /// Creates a line that is shown if standard error is a terminal.
    pub(crate) fn on_terminal() -> Self {
        Self {
            is_enabled: io::stderr().is_terminal(),
            shown_count: 0,
        }
    }

    /// Creates a line that is shown if the output is text and standard error is a terminal.
    pub(crate) fn for_output(format: OutputFormat) -> Self {
        Self {
            is_enabled: format == OutputFormat::Text && io::stderr().is_terminal(),
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
