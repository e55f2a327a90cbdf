//! Colours, one meaning each. `anstream` drops them where they are not wanted: no terminal, or `NO_COLOR`.

use std::fmt::Display;
use std::io::{self, Write as _};

use anstream::{AutoStream, ColorChoice};
use anstyle::{AnsiColor, Style};
use onward_journal::State;

/// Whether standard output takes colours; asked once, because tables are long.
pub(crate) fn is_wanted(stdout: &io::Stdout) -> bool {
    AutoStream::choice(stdout) != ColorChoice::Never
}

/// Says something to people, on standard error. If nobody can hear it, that is no reason to fail.
pub(crate) fn say(words: impl Display) {
    let _ = writeln!(anstream::stderr(), "{words}");
}

/// Text of others, without what a terminal would obey.
pub(crate) fn plain(text: &str) -> String {
    let shown = |it: char| if it.is_control() { it.escape_default().to_string() } else { it.to_string() };
    text.chars().map(shown).collect()
}

/// What went wrong.
pub(crate) fn error(text: impl Display) -> impl Display {
    styled(AnsiColor::Red.on_default().bold(), text)
}

/// What is all right.
pub(crate) fn good(text: impl Display) -> impl Display {
    styled(AnsiColor::Green.on_default().bold(), text)
}

/// Text in this style.
pub(crate) fn styled(style: Style, text: impl Display) -> impl Display {
    format!("{style}{text}{style:#}")
}

/// `1 run`, `2 runs`.
pub(crate) fn counted(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// A state as it stands in a row, in its colour.
pub(crate) fn state(name: &str) -> impl Display {
    let all = [State::Running, State::Blocked, State::Cancelling, State::Completed, State::Failed, State::Cancelled];
    let style = all.into_iter().find(|state| state.to_string() == name).map(of_state).unwrap_or_default();
    styled(style, name)
}

/// The colour of a state, the same in every command.
pub(crate) fn of_state(state: State) -> Style {
    match state {
        State::Running => AnsiColor::Cyan.on_default(),
        State::Blocked => AnsiColor::Yellow.on_default(),
        State::Cancelling => AnsiColor::Magenta.on_default(),
        State::Completed => AnsiColor::Green.on_default().bold(),
        State::Failed => AnsiColor::Red.on_default().bold(),
        State::Cancelled => AnsiColor::Magenta.on_default().bold(),
    }
}
