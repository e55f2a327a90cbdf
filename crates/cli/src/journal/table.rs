//! The table of a journal: `seq event state`, a row as soon as it is known.

use std::io::{self, BufWriter, StdoutLock, Write as _};

use anstyle::{AnsiColor, Style};
use onward_journal::{ExecutionId, JournalEvent, Rule, State};

use crate::paint;

/// Rows are written as they come, so the width is fixed; the rare longer event pushes its state to the right.
const EVENT_WIDTH: usize = 72;

pub(crate) struct Table {
    out: BufWriter<StdoutLock<'static>>,
    is_colored: bool,
    has_header: bool,
}

impl Table {
    pub(crate) fn new() -> Self {
        let is_colored = paint::is_wanted(&io::stdout());
        Self { out: BufWriter::with_capacity(1 << 16, io::stdout().lock()), is_colored, has_header: false }
    }

    pub(crate) fn row(&mut self, event: &JournalEvent, own: ExecutionId, state: State) -> io::Result<()> {
        self.line(event, own, &state.to_string(), paint::of_state(state))
    }

    /// The row of an event that was refused, with the rule in the place of the state.
    pub(crate) fn refused(&mut self, event: &JournalEvent, own: ExecutionId, rule: Rule) -> io::Result<()> {
        self.line(event, own, &format!("✗ {rule}"), AnsiColor::Red.on_default().bold())
    }

    /// Lets what was written so far be seen.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn line(&mut self, event: &JournalEvent, own: ExecutionId, state: &str, style: Style) -> io::Result<()> {
        if !self.has_header {
            self.has_header = true;
            writeln!(self.out, "seq  {:<EVENT_WIDTH$}  state", "event")?;
            writeln!(self.out, "───  {:<EVENT_WIDTH$}  ─────", "─────")?;
        }
        let text = event.event.describe(own).to_string();
        write!(self.out, "{:>3}  {text:<EVENT_WIDTH$}  ", event.sequence)?;
        if self.is_colored { writeln!(self.out, "{style}{state}{style:#}") } else { writeln!(self.out, "{state}") }
    }
}
