//! `onward watch`: follows the journal of an execution, in whatever process it runs.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use onward_api::explanation::ExecutionOwner;
use onward_api::waits::ExecutionWaits;
use onward_base::Timestamp;
use onward_diagnostics::waits;
use onward_journal::jsonl::JournalLine;
use onward_journal::{Event, ExecutionId, Journal, JournalEvent};
use tokio::time::Instant;

use super::ExecutionArg;
use crate::connection::{AccessMode, ScopedConnectionArgs, TargetConnection};
use crate::journal::table::JournalTable;
use crate::retry::retry_transient;
use crate::shutdown::EXIT_INTERRUPTED;
use crate::{console, journal_reader};

/// Watch an execution: print its journal and every new event until it has ended
///
/// Runs nothing: other processes do. Follows an execution that continues as new. Ctrl-C stops
/// watching, not the execution.
///
/// Exit codes: 0 the execution completed, 1 it failed or was cancelled, 2 the command failed, 130
/// interrupted with Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct ExecutionWatchArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print JSON Lines, one event per line, as `onward journal show` does
    #[arg(long)]
    json: bool,
}

/// How long each poll waits for new events, in milliseconds.
const POLL_MS: u64 = 200;

/// The owner of the execution is checked once per this many polls.
const POLLS_PER_OWNER_CHECK: u32 = 10;

pub(crate) async fn watch_execution(args: &ExecutionWatchArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let execution = onward.get_execution(&args.execution.id).await?;
    let mut watch = ExecutionWatcher::new(args, onward);
    let ended = tokio::select! {
        ended = watch.follow_execution(execution.execution.parse()?) => Some(ended),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    watch.clear_status()?;
    ended.unwrap_or_else(|| Ok(ExitCode::from(EXIT_INTERRUPTED)))
}

struct ExecutionWatcher {
    onward: TargetConnection,
    /// `None` with `--json`.
    table: Option<JournalTable>,
    has_terminal: bool,
    /// Whether the terminal shows a status line that has to be overwritten.
    has_status: bool,
    has_warned_unowned: bool,
    /// The clock of the server or store, and the local time at which it was read.
    server_clock: Option<(Timestamp, Instant)>,
}

impl ExecutionWatcher {
    fn new(args: &ExecutionWatchArgs, onward: TargetConnection) -> Self {
        let has_terminal = !args.json && io::stdout().is_terminal();
        let table = (!args.json).then(JournalTable::new);
        Self {
            onward,
            table,
            has_terminal,
            has_status: false,
            has_warned_unowned: false,
            server_clock: None,
        }
    }

    /// Follows the execution, and the ones it continues as, to the end.
    async fn follow_execution(&mut self, execution: ExecutionId) -> anyhow::Result<ExitCode> {
        let mut id = execution;
        loop {
            match self.watch_until_ended(id).await? {
                Event::ExecutionCompleted {
                    continued_as: Some(next),
                    ..
                } => {
                    self.clear_status()?;
                    console::print_message(format_args!("continued as {next}"));
                    id = next;
                }
                Event::ExecutionCompleted { .. } => return Ok(ExitCode::SUCCESS),
                _ => return Ok(ExitCode::from(1)),
            }
        }
    }

    /// Prints events as they are recorded, and returns the terminal one.
    async fn watch_until_ended(&mut self, id: ExecutionId) -> anyhow::Result<Event> {
        let mut journal = Journal::new(id);
        let mut waits = ExecutionWaits::default();
        let mut polls = 0_u32;
        loop {
            let wait_ms = if polls == 0 { 0 } else { POLL_MS };
            let events = journal_reader::read_journal_events(
                &*self.onward,
                id,
                journal.journal_state().next_sequence(),
                wait_ms,
            )
            .await?;
            if !events.is_empty() {
                self.clear_status()?;
                self.show_events(id, &mut journal, events)?;
                waits = waits::pending_waits(&journal);
            }
            if let Some(last) = journal
                .events()
                .last()
                .filter(|_| journal.journal_state().phase().is_terminal())
            {
                return Ok(last.event.clone());
            }
            if polls.is_multiple_of(POLLS_PER_OWNER_CHECK) {
                self.check_owner(id).await?;
            }
            self.draw_status(&waits)?;
            polls = polls.wrapping_add(1);
        }
    }

    fn show_events(
        &mut self,
        id: ExecutionId,
        journal: &mut Journal,
        events: Vec<JournalEvent>,
    ) -> anyhow::Result<()> {
        for event in events {
            match &mut self.table {
                None => writeln!(console::json_output(), "{}", JournalLine::new(&event, id))?,
                Some(table) => {
                    journal.append(event.clone()).context("invalid journal")?;
                    let state = journal.execution_state().context("the journal is empty")?;
                    table.write_event_row(&event, id, state)?;
                    continue;
                }
            }
            journal.append(event).context("invalid journal")?;
        }
        match &mut self.table {
            Some(table) => table.flush()?,
            None => io::stdout().flush()?,
        }
        Ok(())
    }

    /// Warns once if no process works on the execution.
    async fn check_owner(&mut self, id: ExecutionId) -> anyhow::Result<()> {
        if self.has_warned_unowned {
            return Ok(());
        }
        let explained =
            retry_transient(async || self.onward.explain_execution(&id.to_string()).await).await?;
        if explained.outcome.is_none() && !matches!(explained.owner, ExecutionOwner::Live { .. }) {
            self.has_warned_unowned = true;
            self.clear_status()?;
            console::print_message(explained.next.first().map_or(
                "no process owns the execution at the moment",
                String::as_str,
            ));
        }
        self.server_clock = Some((explained.now.0, Instant::now()));
        Ok(())
    }

    /// Draws what the execution waits for on the last line of the terminal.
    fn draw_status(&mut self, waits: &ExecutionWaits) -> anyhow::Result<()> {
        let (true, Some((at, since))) = (self.has_terminal, self.server_clock) else {
            return Ok(());
        };
        let now = at.plus_ms(u64::try_from(since.elapsed().as_millis())?);
        self.has_status = true;
        let mut out = io::stdout();
        // A line that is too long is truncated instead of wrapped, because a wrapped line could not
        // be overwritten.
        let summary = console::escape_control_chars(&waits.summary_line(now).to_string());
        write!(out, "\r\x1b[K\x1b[?7l{summary}\x1b[?7h")?;
        Ok(out.flush()?)
    }

    fn clear_status(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_status) {
            write!(io::stdout(), "\r\x1b[K")?;
            io::stdout().flush()?;
        }
        Ok(())
    }
}
