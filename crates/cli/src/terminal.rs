//! How wide the terminal is, for lines that are written over: one that is wrapped could not be.

use std::io;

/// As many columns as a terminal has that does not say.
const DEFAULT_COLUMNS: usize = 80;

/// Columns of the terminal that standard output is, at this moment: people change it.
pub(crate) fn terminal_columns() -> usize {
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
    size.map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(DEFAULT_COLUMNS)
}
