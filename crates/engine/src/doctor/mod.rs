//! Whether any work of a store is stuck: every execution that is not over has something that wakes it, everything that is sent
//! arrives, and everything that is waited for exists.
//!
//! Others may work on the store meanwhile. A row and a journal that were read at different moments may disagree, so whatever
//! looks wrong is read again, and only what stays wrong while nothing changes is told.

mod judge;
mod late;
mod look;

use std::io;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use onward_api::finding::{Code, Finding};
use onward_journal::{ExecutionId, Timestamp};
use onward_store::tables::{Alert, Execution as Row, Message, Task};
use onward_store::{Error, Field as _, Key, Records as _, Scan, Store};

use self::judge::Flaw;
use self::late::Lateness;
use self::look::{Looker, Seen};
use crate::client::{Scope, is_over};
use crate::shard::{is_taken, message_event, task};
use crate::verify::Stopped;

/// Work that is due or on its way for so long is late.
pub const LATE_MS: u64 = 60_000;

/// How long to wait before something is looked at again.
const AGAIN: Duration = Duration::from_millis(50);

/// How often something is looked at again. What changes every time is not stuck.
const LOOKS_MAX: u32 = 6;

/// Executions that are read at a time.
const AT_A_TIME: usize = 8;

/// How much was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Executions.
    pub executions: u64,
    /// Events of their journals.
    pub events: u64,
    /// Messages.
    pub messages: u64,
}

/// Looks at every execution, message and alert of a store, page by page; at those of a scope alone, if there is one.
pub async fn all(
    store: &dyn Store,
    scope: Option<&Scope>,
    report: &mut impl FnMut(&Finding) -> io::Result<()>,
    mut progress: impl FnMut(Tally),
) -> Result<Tally, Stopped> {
    let mut round = Round {
        looker: Looker::new(store),
        scope,
        now: store.now().await?,
        tally: Tally::default(),
        late: Lateness::default(),
    };
    round.executions(report, &mut progress).await?;
    round.messages(report).await?;
    round.tasks(report).await?;
    round.alerts(report).await?;
    for finding in late::findings(store, &round.late).await? {
        report(&finding).map_err(Stopped::Report)?;
    }
    Ok(round.tally)
}

/// One round through a store.
struct Round<'a> {
    looker: Looker<'a>,
    scope: Option<&'a Scope>,
    now: Timestamp,
    tally: Tally,
    late: Lateness,
}

impl Round<'_> {
    async fn executions(
        &mut self,
        report: &mut impl FnMut(&Finding) -> io::Result<()>,
        progress: &mut impl FnMut(Tally),
    ) -> Result<(), Stopped> {
        let mut scan = match self.scope {
            None => Scan::all::<Row>(),
            Some(Scope { tenant, project, environment }) => {
                Scan::by::<Row>(Row::BY_AGE).equal(tenant).equal(project).equal(environment)
            }
        };
        loop {
            let page: Vec<(Row, u64)> = self.looker.store.list(scan.clone()).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            scan = scan.after(last);
            self.now = self.looker.store.now().await?;
            let (looker, now) = (&self.looker, self.now);
            let looks = page.into_iter().map(|(row, version)| one(looker, row, version, now));
            let mut looks = stream::iter(looks).buffered(AT_A_TIME);
            while let Some(look) = looks.next().await {
                let Looked { id, flaws, events, late } = look?;
                for Flaw { code, message } in flaws {
                    report(&Finding::new(Some(id), code, message)).map_err(Stopped::Report)?;
                }
                self.late.execution(late.as_ref(), id);
                (self.tally.executions, self.tally.events) = (self.tally.executions + 1, self.tally.events + events);
                progress(self.tally);
            }
        }
    }

    async fn messages(&mut self, report: &mut impl FnMut(&Finding) -> io::Result<()>) -> Result<(), Stopped> {
        let mut scan = Scan::all::<Message>();
        loop {
            let page: Vec<(Message, u64)> = self.looker.store.list(scan.clone()).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            scan = scan.after(last);
            for (message, _) in page.into_iter().filter(|(message, _)| !is_taken(message)) {
                if !self.is_meant(message.execution_id).await? {
                    continue;
                }
                self.tally.messages += 1;
                if message.sent_at.plus_ms(LATE_MS) <= self.now {
                    self.late.message(&message);
                }
                for Flaw { code, message: words } in self.message(&message).await? {
                    report(&Finding::new(Some(message.execution_id), code, words)).map_err(Stopped::Report)?;
                }
            }
        }
    }

    /// Tasks that nobody waits for, as long as they are there.
    async fn tasks(&self, report: &mut impl FnMut(&Finding) -> io::Result<()>) -> Result<(), Stopped> {
        let mut scan = Scan::all::<Task>();
        let mut seen: Option<(ExecutionId, Option<onward_execution::Execution>)> = None;
        loop {
            let page: Vec<(Task, u64)> = self.looker.store.list(scan.clone()).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            scan = scan.after(last);
            for (task, _) in page {
                let is_ours = |scope: &Scope| scope.has(&task.tenant_id, &task.project_id, &task.environment_id);
                if !self.scope.is_none_or(is_ours) {
                    continue;
                }
                // Those of an execution follow each other.
                if seen.as_ref().is_none_or(|(id, _)| *id != task.execution_id) {
                    seen = Some((task.execution_id, self.looker.execution(task.execution_id).await?));
                }
                let mut flaw = judge::task(&task, seen.as_ref().and_then(|(_, execution)| execution.as_ref()));
                if flaw.is_some() {
                    tokio::time::sleep(AGAIN).await;
                    flaw = judge::task(&task, self.looker.execution(task.execution_id).await?.as_ref());
                    let still: Option<(Task, u64)> = self.looker.store.get(task::key(task::id(&task))).await?;
                    flaw = flaw.filter(|_| still.is_some());
                }
                if let Some(Flaw { code, message }) = flaw {
                    report(&Finding::new(Some(task.execution_id), code, message)).map_err(Stopped::Report)?;
                }
            }
        }
    }

    /// Whether an execution is one of those that are looked at.
    async fn is_meant(&self, id: ExecutionId) -> Result<bool, Error> {
        if self.scope.is_none() {
            return Ok(true);
        }
        Ok(row(self.looker.store, id).await?.is_some_and(|row| self.is_in_scope(&row)))
    }

    fn is_in_scope(&self, row: &Row) -> bool {
        self.scope.is_none_or(|scope| scope.has(&row.tenant_id, &row.project_id, &row.environment_id))
    }

    /// What is wrong with a message, and stays so as long as it is there.
    async fn message(&self, message: &Message) -> Result<Vec<Flaw>, Error> {
        let store = self.looker.store;
        let flaws = |row: Option<Row>| judge::message(message, message_event(message).err(), row.as_ref());
        let first = flaws(row(store, message.execution_id).await?);
        if first.is_empty() {
            return Ok(first);
        }
        tokio::time::sleep(AGAIN).await;
        let again = flaws(row(store, message.execution_id).await?);
        let still: Option<(Message, u64)> = store.get(Key(vec![message.message_id.to_value()])).await?;
        Ok(if still.is_some() { again } else { Vec::new() })
    }

    /// Alerts about executions that have not gone on since.
    async fn alerts(&mut self, report: &mut impl FnMut(&Finding) -> io::Result<()>) -> Result<(), Stopped> {
        let mut scan = Scan::all::<Alert>();
        loop {
            let page: Vec<(Alert, u64)> = self.looker.store.list(scan.clone()).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            scan = scan.after(last);
            for (alert, _) in page {
                let Ok(id) = alert.subject.parse::<ExecutionId>() else { continue };
                let row = row(self.looker.store, id).await?;
                let Some(row) = row.filter(|row| self.is_in_scope(row) && !is_over(row)) else { continue };
                let seen = self.looker.look(row, 0).await?;
                if seen.last.is_none_or(|last| last <= alert.raised_at) {
                    let message = format!("{} since {}: {}", alert.code, alert.raised_at, alert.message);
                    report(&Finding::new(Some(id), Code::Alert, message)).map_err(Stopped::Report)?;
                }
            }
        }
    }
}

async fn row(store: &dyn Store, id: ExecutionId) -> Result<Option<Row>, Error> {
    let found: Option<(Row, u64)> = store.get(Key(vec![id.to_value()])).await?;
    Ok(found.map(|(row, _)| row))
}

/// What looking at an execution came to.
struct Looked {
    id: ExecutionId,
    flaws: Vec<Flaw>,
    events: u64,
    late: Option<late::Due>,
}

/// Looks at an execution for as long as what is wrong with it changes.
async fn one(looker: &Looker<'_>, row: Row, version: u64, now: Timestamp) -> Result<Looked, Error> {
    let id = row.execution_id;
    let mut seen = looker.look(row, version).await?;
    let mut flaws = judge::execution(&seen, now);
    let looked = |seen: &Seen, flaws| Looked { id, flaws, events: seen.events, late: late::due(seen, now) };
    for round in 0..LOOKS_MAX {
        if flaws.is_empty() {
            return Ok(looked(&seen, flaws));
        }
        // The row comes from a page that was read some time ago: the first look again needs no pause.
        if round > 0 {
            tokio::time::sleep(AGAIN).await;
        }
        let stored: Option<(Row, u64)> = looker.store.get(Key(vec![id.to_value()])).await?;
        let Some((row, version)) = stored else { return Ok(looked(&seen, Vec::new())) };
        let again = looker.look(row, version).await?;
        let still = judge::execution(&again, looker.store.now().await?);
        if round > 0 && again.is_same(&seen) {
            flaws.retain(|flaw| still.contains(flaw));
            return Ok(looked(&again, flaws));
        }
        (seen, flaws) = (again, still);
    }
    Ok(looked(&seen, Vec::new()))
}
