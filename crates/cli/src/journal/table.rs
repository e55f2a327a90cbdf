//! Table of a journal with the columns `seq`, `event` and `state`; each row is written as soon as
//! it is known.

use std::io::{self, BufWriter, StdoutLock, Write as _};

use anstyle::{AnsiColor, Style};
use onward_journal::{ExecutionId, ExecutionState, JournalEvent, Rule};

use crate::console;

/// Width of the event column. It is fixed because rows are written as they arrive; a rare longer
/// event shifts its state to the right.
const EVENT_WIDTH: usize = 72;

pub(crate) struct JournalTable {
    out: BufWriter<StdoutLock<'static>>,
    is_colored: bool,
    has_header: bool,
}

impl JournalTable {
    pub(crate) fn new() -> Self {
        let is_colored = console::is_color_enabled(&io::stdout());
        Self {
            out: BufWriter::with_capacity(1 << 16, io::stdout().lock()),
            is_colored,
            has_header: false,
        }
    }

    pub(crate) fn write_event_row(
        &mut self,
        event: &JournalEvent,
        own: ExecutionId,
        state: ExecutionState,
    ) -> io::Result<()> {
        self.write_row(event, own, &state.to_string(), console::state_style(state))
    }

    /// Writes the row of an event that breaks a rule, with the rule instead of the state.
    pub(crate) fn write_refused_row(
        &mut self,
        event: &JournalEvent,
        own: ExecutionId,
        rule: Rule,
    ) -> io::Result<()> {
        self.write_row(
            event,
            own,
            &format!("✗ {rule}"),
            AnsiColor::Red.on_default().bold(),
        )
    }

    /// Flushes the buffered rows to standard output.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }

    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.out.flush()
    }

    fn write_row(
        &mut self,
        event: &JournalEvent,
        own: ExecutionId,
        state: &str,
        style: Style,
    ) -> io::Result<()> {
        if !self.has_header {
            self.has_header = true;
            writeln!(self.out, "seq  {:<EVENT_WIDTH$}  state", "event")?;
            writeln!(self.out, "───  {:<EVENT_WIDTH$}  ─────", "─────")?;
        }
        let text = console::escape_control_chars(&event.event.describe(own).to_string());
        write!(self.out, "{:>3}  {text:<EVENT_WIDTH$}  ", event.sequence)?;
        if self.is_colored {
            writeln!(self.out, "{style}{state}{style:#}")
        } else {
            writeln!(self.out, "{state}")
        }
    }
}
