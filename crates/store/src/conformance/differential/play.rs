//! Playing operations on one store, and the answers as values that can be compared.

use std::sync::Arc;

use onward_journal::Timestamp;
use onward_runs::{RunEventRecord, RunSnapshot};

use super::lens::Lens;
use super::{Operation, POLICY};
use crate::conformance::{Dump, Opened, Subject, dump, sample};
use crate::lease::{self, Lease};
use crate::{
    Change, Commit, Conflict, Error, JournalChunk, ManualClock, Outcome, Receipt, RunHead, RunStateStore as _, Scan,
    Store, Stored, Table, Value, tables,
};

/// What a store answered.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the answer to the operation of that name")]
pub enum Answer {
    Receipt(Receipt),
    Row(Option<Stored>),
    Rows(Vec<Stored>),
    Chunks(Vec<JournalChunk>),
    Events(Vec<RunEventRecord>),
    Head(Option<RunHead>),
    Heads(Vec<RunHead>),
    Snapshot(Option<Box<RunSnapshot>>),
    Purged(bool),
    Lease(Option<Lease>),
    Time(Timestamp),
    Done,
    Error(Error),
}

/// A store with all that a sequence of operations has to remember.
pub struct Player {
    opened: Box<dyn Opened>,
    clock: Arc<ManualClock>,
    leases: Vec<Lease>,
    lens: Lens,
}

impl Player {
    /// Begins with an empty store.
    pub async fn open(subject: &dyn Subject) -> Result<Self, Error> {
        let clock = Arc::new(ManualClock::new(sample::at(0)));
        let opened = subject.fresh(POLICY, Arc::clone(&clock)).await?;
        Ok(Self { opened, clock, leases: Vec::new(), lens: Lens::default() })
    }

    /// What the store answers to `operation`.
    pub async fn play(&mut self, operation: &Operation) -> Answer {
        self.perform(operation).await.unwrap_or_else(|error| Answer::Error(self.error(error)))
    }

    /// How many leases were granted.
    pub(super) const fn leases(&self) -> usize {
        self.leases.len()
    }

    /// All rows of a table.
    pub(super) async fn rows(&self, table: &'static Table) -> Vec<Stored> {
        let rows = dump::rows(self.store(), table).await.unwrap_or_default();
        rows.into_iter().map(|stored| self.seen(table, stored)).collect()
    }

    /// Everything that is stored.
    pub(super) async fn dump(&self) -> Result<Dump, Error> {
        let mut dump = Dump::of(self.store()).await?;
        for table in tables::ALL {
            let rows = dump.rows.get_mut(table.name).into_iter().flatten();
            rows.for_each(|stored| self.lens.row_seen(table, stored));
        }
        Ok(dump)
    }

    pub(super) fn store(&self) -> &(dyn Store + 'static) {
        self.opened.store()
    }

    async fn perform(&mut self, operation: &Operation) -> Result<Answer, Error> {
        match operation.clone() {
            Operation::Commit(commit) => self.commit(commit).await.map(Answer::Receipt),
            Operation::Row(table, mut key) => {
                self.lens.key_for_store(table, &mut key);
                let found = self.store().row(table, key).await?;
                Ok(Answer::Row(found.map(|stored| self.seen(table, stored))))
            }
            Operation::Rows(mut scan) => {
                self.lens.scan_for_store(&mut scan);
                let table = scan.table;
                let found = self.store().rows(scan).await?;
                Ok(Answer::Rows(found.into_iter().map(|stored| self.seen(table, stored)).collect()))
            }
            Operation::Pages(scan) => self.pages(scan).await.map(Answer::Rows),
            Operation::Journal { execution, from, limit } => {
                self.store().journal(execution, from, limit).await.map(Answer::Chunks)
            }
            Operation::RunEvents(run, page) => self.store().run_events(&run, page).await.map(Answer::Events),
            Operation::Run(run) => self.store().run(&run).await.map(Answer::Head),
            Operation::Runs { behind, after, limit } => {
                self.store().runs(behind, after.as_ref(), limit).await.map(Answer::Heads)
            }
            Operation::Snapshot(run) => {
                self.store().get_snapshot(&run).await.map(|found| Answer::Snapshot(found.map(Box::new)))
            }
            Operation::Project(run) => {
                self.store().project_snapshot(&run).await.map(|found| Answer::Snapshot(Some(Box::new(found))))
            }
            Operation::Purge(purge) => self.store().purge(purge).await.map(Answer::Purged),
            Operation::Now => self.store().now().await.map(Answer::Time),
            Operation::SetClock(at) => {
                self.clock.set(at);
                Ok(Answer::Done)
            }
            leasing => self.lease(&leasing).await,
        }
    }

    /// The pages of a scan together; at most some, so that a store that repeats itself does not keep us for ever.
    async fn pages(&self, mut scan: Scan) -> Result<Vec<Stored>, Error> {
        const PAGES_MAX: usize = 50;
        self.lens.scan_for_store(&mut scan);
        let (table, order) = (scan.table, scan.table.order_of(scan.index));
        let mut all = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.store().rows(scan.clone()).await?;
            let Some(last) = page.last() else { break };
            scan.after = Some(table.pick(&order, &last.row));
            all.extend(page.into_iter().map(|stored| self.seen(table, stored)));
        }
        Ok(all)
    }

    async fn lease(&mut self, operation: &Operation) -> Result<Answer, Error> {
        let store = self.opened.store();
        let granted = match *operation {
            Operation::Claim { shard, node, lease_ms } => lease::claim(store, shard, node, lease_ms).await?,
            Operation::Renew { nth, lease_ms } => match self.leases.get(nth) {
                Some(lease) => lease::renew(store, lease, lease_ms).await?,
                None => None,
            },
            Operation::Release { nth } => {
                if let Some(lease) = self.leases.get(nth) {
                    lease::release(store, lease).await?;
                }
                return Ok(Answer::Done);
            }
            _ => None,
        };
        self.leases.extend(granted.clone());
        Ok(Answer::Lease(granted))
    }

    async fn commit(&mut self, mut commit: Commit) -> Result<Receipt, Error> {
        let tables: Vec<&'static Table> = commit.changes.iter().map(Change::table).collect();
        commit.changes.iter_mut().for_each(|change| self.point(change));
        let mut receipt = self.store().commit(commit).await?;
        for table in tables::ALL.into_iter().filter(|table| table.is_serial() && touches(&tables, table)) {
            self.learn(table).await?;
        }
        for (outcome, table) in receipt.changes.iter_mut().zip(tables) {
            if let Outcome::Kept(stored) = outcome {
                self.lens.row_seen(table, stored);
            }
        }
        Ok(receipt)
    }

    /// Points a change at the row that the store knows.
    fn point(&self, change: &mut Change) {
        match change {
            Change::Update { table, row, .. } | Change::Amend { table, row, .. } => {
                self.lens.row_for_store(table, row);
            }
            Change::Delete { table, key, .. } | Change::Remove { table, key } => self.lens.key_for_store(table, key),
            Change::Insert { .. } | Change::InsertOrKeep { .. } => {}
        }
    }

    /// Reads which numbers the store has assigned since.
    async fn learn(&mut self, table: &'static Table) -> Result<(), Error> {
        loop {
            let after = Some(vec![Value::Int(self.lens.last(table))]);
            let scan = Scan { after, limit: usize::MAX, ..Scan::of(table, None) };
            let rows = self.store().rows(scan).await?;
            let before = self.lens.last(table);
            self.lens.learn(table, &rows);
            if self.lens.last(table) <= before {
                return Ok(());
            }
        }
    }

    fn seen(&self, table: &'static Table, mut stored: Stored) -> Stored {
        self.lens.row_seen(table, &mut stored);
        stored
    }

    fn error(&self, mut error: Error) -> Error {
        if let Error::Conflict(
            Conflict::RowVersion { table: name, key, .. }
            | Conflict::RowExists { table: name, key }
            | Conflict::NotUnique { table: name, key, .. },
        ) = &mut error
            && let Some(table) = tables::ALL.into_iter().find(|table| table.name == *name)
        {
            self.lens.key_seen(table, key);
        }
        error
    }
}

fn touches(touched: &[&'static Table], table: &'static Table) -> bool {
    touched.iter().any(|it| it.name == table.name)
}
