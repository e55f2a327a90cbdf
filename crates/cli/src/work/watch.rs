//! `onward watch`: an execution as it goes on, wherever it runs.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use anyhow::Context as _;
use onward_api::explanation::Owner;
use onward_api::waits::Waits;
use onward_engine::waits;
use onward_journal::jsonl::Line;
use onward_journal::{Event, ExecutionId, Journal, JournalEvent, Timestamp};
use tokio::time::Instant;

use super::ExecutionArg;
use crate::access::{Access, Want, WorkArgs};
use crate::journal::table::Table;
use crate::waiting::persist;
use crate::{events, paint};

/// Watch an execution: its journal so far, and every event as it is recorded, until it is over
///
/// Runs nothing: other processes do. An execution that continues as new is followed. Ctrl-C stops watching, not the execution.
///
/// Exit codes: 0 it completed, 1 it failed or was cancelled, 2 it could not be watched, 130 Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Print JSON Lines, one event a line, as `onward journal show` does
    #[arg(long)]
    json: bool,
}

/// How long to wait for news at a time, in milliseconds.
const LOOK_MS: u64 = 200;

/// So many looks, and one at who works on it.
const LOOKS_PER_OWNER: u32 = 10;

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_INTERRUPTED: u8 = 128 + 2;

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let execution = onward.execution(&args.execution.id).await?;
    let mut watch = Watch::new(args, onward);
    let ended = tokio::select! {
        ended = watch.follow(execution.execution.parse()?) => Some(ended),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    watch.clear()?;
    ended.unwrap_or_else(|| Ok(ExitCode::from(EXIT_INTERRUPTED)))
}

struct Watch {
    onward: Access,
    /// Absent when JSON is wanted.
    table: Option<Table>,
    has_terminal: bool,
    /// Whether a line stands at the bottom that is to be written over.
    has_status: bool,
    has_said_nobody: bool,
    /// What time it was there, and when that was heard.
    heard: Option<(Timestamp, Instant)>,
}

impl Watch {
    fn new(args: &Args, onward: Access) -> Self {
        let has_terminal = !args.json && io::stdout().is_terminal();
        let table = (!args.json).then(Table::new);
        Self { onward, table, has_terminal, has_status: false, has_said_nobody: false, heard: None }
    }

    /// Until the execution, or whoever takes its place, is over.
    async fn follow(&mut self, execution: ExecutionId) -> anyhow::Result<ExitCode> {
        let mut id = execution;
        loop {
            match self.until_over(id).await? {
                Event::ExecutionCompleted { continued_as: Some(next), .. } => {
                    self.clear()?;
                    paint::say(format_args!("it goes on as {next}"));
                    id = next;
                }
                Event::ExecutionCompleted { .. } => return Ok(ExitCode::SUCCESS),
                _ => return Ok(ExitCode::from(1)),
            }
        }
    }

    /// Shows what is recorded, until something final is.
    async fn until_over(&mut self, id: ExecutionId) -> anyhow::Result<Event> {
        let mut journal = Journal::new(id);
        let mut waits = Waits::default();
        for look in 0_u32.. {
            let wait_ms = if look == 0 { 0 } else { LOOK_MS };
            let events = events::of(&*self.onward, id, journal.fold().version(), wait_ms).await?;
            if !events.is_empty() {
                self.clear()?;
                self.show(id, &mut journal, events)?;
                waits = waits::of(&journal);
            }
            if let Some(last) = journal.events().last().filter(|_| journal.fold().phase().is_terminal()) {
                return Ok(last.event.clone());
            }
            if look.is_multiple_of(LOOKS_PER_OWNER) {
                self.look_for_owner(id).await?;
            }
            self.status(&waits)?;
        }
        anyhow::bail!("it was watched for longer than anybody lives")
    }

    fn show(&mut self, id: ExecutionId, journal: &mut Journal, events: Vec<JournalEvent>) -> anyhow::Result<()> {
        for event in events {
            match &mut self.table {
                None => writeln!(io::stdout(), "{}", Line::new(&event, id))?,
                Some(table) => {
                    journal.append(event.clone()).context("its journal is not valid")?;
                    let state = journal.state().context("its journal does not begin")?;
                    table.row(&event, id, state)?;
                    continue;
                }
            }
            journal.append(event).context("its journal is not valid")?;
        }
        match &mut self.table {
            Some(table) => table.flush()?,
            None => io::stdout().flush()?,
        }
        Ok(())
    }

    /// Says once that nobody works on it.
    async fn look_for_owner(&mut self, id: ExecutionId) -> anyhow::Result<()> {
        if self.has_said_nobody {
            return Ok(());
        }
        let explained = persist(async || self.onward.explain(&id.to_string()).await).await?;
        if explained.end.is_none() && !matches!(explained.owner, Owner::Process { .. }) {
            self.has_said_nobody = true;
            self.clear()?;
            paint::say(explained.next.first().map_or("no process works on it at the moment", String::as_str));
        }
        self.heard = Some((explained.now.0, Instant::now()));
        Ok(())
    }

    /// What it waits for, on the last line of a terminal.
    fn status(&mut self, waits: &Waits) -> anyhow::Result<()> {
        let (true, Some((at, since))) = (self.has_terminal, self.heard) else { return Ok(()) };
        let now = at.plus_ms(u64::try_from(since.elapsed().as_millis())?);
        self.has_status = true;
        let mut out = io::stdout();
        // A line that is too long for the terminal is cut, not wrapped: it could not be written over.
        write!(out, "\r\x1b[K\x1b[?7l{}\x1b[?7h", waits.in_short(now))?;
        Ok(out.flush()?)
    }

    fn clear(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.has_status) {
            write!(io::stdout(), "\r\x1b[K")?;
            io::stdout().flush()?;
        }
        Ok(())
    }
}
