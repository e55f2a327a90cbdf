//! Width of the terminal, for lines that are redrawn in place: a wrapped line cannot be redrawn.

use std::io;

/// Width to assume if the terminal does not report one.
const DEFAULT_COLUMNS: usize = 80;

/// Returns the current number of columns of standard output; it changes when the window is resized.
pub(crate) fn terminal_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(DEFAULT_COLUMNS)
}
