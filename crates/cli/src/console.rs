//! Messages, and colours with one meaning each. `anstream` strips colours if the output is not a
//! terminal or `NO_COLOR` is set.

use std::fmt::Display;
use std::io::{self, Write as _};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use onward_journal::ExecutionState;

use crate::terminal_output;
pub(crate) use crate::terminal_output::{json_output, output, text_output};

/// Output format of a command.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum OutputFormat {
    /// Text for people, with progress on a terminal.
    #[default]
    Text,
    /// JSON, with `--json`.
    Json,
}

impl OutputFormat {
    /// Returns the format that the flag `--json` selects.
    pub(crate) const fn from_json_flag(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// Whether standard output supports colours. Callers check once per table, because tables are long.
pub(crate) fn is_color_enabled(stdout: &io::Stdout) -> bool {
    AutoStream::choice(stdout) != ColorChoice::Never
}

/// Prints a message on standard error, escaped. A failed write is ignored.
pub(crate) fn print_message(message: impl Display) {
    let message = terminal_output::escape_message(&message.to_string());
    let _ = writeln!(anstream::stderr(), "{message}");
}

/// Prints lines of text on standard error, escaped. A failed write is ignored.
pub(crate) fn print_lines(text: &str) {
    let text = terminal_output::escape_lines(text, "\n");
    let _ = write!(anstream::stderr(), "{text}");
}

/// Escapes untrusted text, so that a terminal does not interpret it and it stays on its line.
pub(crate) fn escape_control_chars(text: &str) -> String {
    terminal_output::escape_text(text)
}

/// Styles an error.
pub(crate) fn style_error(text: impl Display) -> impl Display {
    apply_style(AnsiColor::Red.on_default().bold(), text)
}

/// Styles a success.
pub(crate) fn style_success(text: impl Display) -> impl Display {
    apply_style(AnsiColor::Green.on_default().bold(), text)
}

/// Wraps text in the escape sequences of a style.
pub(crate) fn apply_style(style: Style, text: impl Display) -> impl Display {
    format!("{style}{text}{style:#}")
}

/// Formats a count with its noun: `1 run`, `2 runs`.
pub(crate) fn format_count(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// Styles the name of an execution state; an unknown name gets no colour.
pub(crate) fn style_state_name(name: &str) -> impl Display {
    let all = [
        ExecutionState::Running,
        ExecutionState::Blocked,
        ExecutionState::Cancelling,
        ExecutionState::Completed,
        ExecutionState::Failed,
        ExecutionState::Cancelled,
    ];
    let style = all
        .into_iter()
        .find(|state| state.to_string() == name)
        .map(state_style)
        .unwrap_or_default();
    apply_style(style, name)
}

/// Returns the colour of a state, the same in every command.
pub(crate) fn state_style(state: ExecutionState) -> Style {
    match state {
        ExecutionState::Running => AnsiColor::Cyan.on_default(),
        ExecutionState::Blocked => AnsiColor::Yellow.on_default(),
        ExecutionState::Cancelling => AnsiColor::Magenta.on_default(),
        ExecutionState::Completed => AnsiColor::Green.on_default().bold(),
        ExecutionState::Failed => AnsiColor::Red.on_default().bold(),
        ExecutionState::Cancelled => AnsiColor::Magenta.on_default().bold(),
    }
}
