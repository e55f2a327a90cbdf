//! `onward watch`: an execution as it goes on, wherever it runs.

use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use onward_engine::client::Client;
use onward_engine::explain;
use onward_engine::waits::{self, Waits};
use onward_journal::jsonl::Line;
use onward_journal::{Event, ExecutionId, Journal, JournalEvent};
use onward_store::Shard;
use onward_store::tables::Execution;

use super::{ExecutionArg, WorkArgs};
use crate::journal::table::Table;
use crate::paint;

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

/// How often to look.
const LOOK: Duration = Duration::from_millis(200);

/// So many looks, and one at who works on it.
const LOOKS_PER_OWNER: u32 = 10;

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_INTERRUPTED: u8 = 128 + 2;

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.existing().await?;
    let row = args.execution.find(&client).await?;
    let mut watch = Watch::new(args, client);
    let ended = tokio::select! {
        ended = watch.follow(row) => Some(ended),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    watch.clear()?;
    ended.unwrap_or_else(|| Ok(ExitCode::from(EXIT_INTERRUPTED)))
}

struct Watch {
    client: Client,
    /// Absent when JSON is wanted.
    table: Option<Table>,
    has_terminal: bool,
    /// Whether a line stands at the bottom that is to be written over.
    has_status: bool,
    has_said_nobody: bool,
}

impl Watch {
    fn new(args: &Args, client: Client) -> Self {
        let has_terminal = !args.json && io::stdout().is_terminal();
        let table = (!args.json).then(Table::new);
        Self { client, table, has_terminal, has_status: false, has_said_nobody: false }
    }

    /// Until the execution, or whoever takes its place, is over.
    async fn follow(&mut self, row: Execution) -> anyhow::Result<ExitCode> {
        let mut row = row;
        loop {
            match self.until_over(&row).await? {
                Event::ExecutionCompleted { continued_as: Some(next), .. } => {
                    self.clear()?;
                    paint::say(format_args!("it goes on as {next}"));
                    let found = self.client.execution(next).await?;
                    row = found.with_context(|| format!("there is no execution {next}"))?;
                }
                Event::ExecutionCompleted { .. } => return Ok(ExitCode::SUCCESS),
                _ => return Ok(ExitCode::from(1)),
            }
        }
    }

    /// Shows what is recorded, until something final is.
    async fn until_over(&mut self, row: &Execution) -> anyhow::Result<Event> {
        let id = row.execution_id;
        let mut journal = Journal::new(id);
        let mut waits = Waits::default();
        for look in 0_u32.. {
            let events = self.client.journal_from(id, journal.fold().version()).await?;
            if !events.is_empty() {
                self.clear()?;
                self.show(id, &mut journal, events)?;
                waits = waits::of(&journal);
            }
            if let Some(last) = journal.events().last().filter(|_| journal.fold().phase().is_terminal()) {
                return Ok(last.event.clone());
            }
            if look.is_multiple_of(LOOKS_PER_OWNER) {
                self.look_for_owner(row.shard).await?;
            }
            self.status(&waits).await?;
            tokio::time::sleep(LOOK).await;
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
    async fn look_for_owner(&mut self, shard: Shard) -> anyhow::Result<()> {
        if self.has_said_nobody {
            return Ok(());
        }
        let (is_owned, is_anybody_there) = explain::is_owned(&**self.client.store(), shard).await?;
        if !is_owned {
            self.has_said_nobody = true;
            self.clear()?;
            paint::say(if is_anybody_there {
                "no process works on it at the moment"
            } else {
                "no process works on this store: start one with `onward worker`"
            });
        }
        Ok(())
    }

    /// What it waits for, on the last line of a terminal.
    async fn status(&mut self, waits: &Waits) -> anyhow::Result<()> {
        if !self.has_terminal {
            return Ok(());
        }
        let now = self.client.store().now().await?;
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
