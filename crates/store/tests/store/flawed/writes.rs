//! Stores that are wrong about commits, rows and retention.

use std::collections::BTreeMap;
use std::sync::Mutex;

use async_trait::async_trait;
use onward_journal::Timestamp;
use onward_store::memory::Memory;
use onward_store::tables::{Execution, Message, ShardLease};
use onward_store::{
    Change, Commit, Conflict, Error, Field as _, Invalid, Key, Outcome, Purge, Receipt, Record as _, Records as _, Row,
    Scan, Store as _, Stored, Table, Value,
};

use super::Flaw;

/// Nobody looks at the epoch.
pub(crate) struct IgnoresFences;

#[async_trait]
impl Flaw for IgnoresFences {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        commit.fences.clear();
        memory.commit(commit).await
    }
}

/// An epoch is only refused if it is too old.
pub(crate) struct LetsFutureEpochsPass;

#[async_trait]
impl Flaw for LetsFutureEpochsPass {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        for fence in std::mem::take(&mut commit.fences) {
            let row: Option<(ShardLease, u64)> = memory.get(Key(vec![fence.shard.to_value()])).await?;
            if row.is_none_or(|(lease, _)| lease.epoch > fence.epoch) {
                commit.fences.push(fence);
            }
        }
        memory.commit(commit).await
    }
}

/// A journal is appended to, however long it is.
pub(crate) struct IgnoresJournalLength;

#[async_trait]
impl Flaw for IgnoresJournalLength {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        for append in &mut commit.journals {
            let chunks = memory.journal(append.execution, 0, usize::MAX).await?;
            append.expected = chunks.last().map_or(0, |last| last.first + u64::from(last.count));
        }
        memory.commit(commit).await
    }
}

/// A row is changed, whatever its version.
pub(crate) struct IgnoresVersions;

#[async_trait]
impl Flaw for IgnoresVersions {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        for change in &mut commit.changes {
            let (table, key) = (change.table(), change.key());
            if let Change::Update { version, .. } | Change::Amend { version, .. } | Change::Delete { version, .. } =
                change
                && let Some(stored) = memory.row(table, key).await?
            {
                *version = stored.version;
            }
        }
        memory.commit(commit).await
    }
}

/// An amendment writes the row as it was given, whole.
pub(crate) struct AmendsAllColumns;

#[async_trait]
impl Flaw for AmendsAllColumns {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        let changes = std::mem::take(&mut commit.changes);
        commit.changes = changes.into_iter().map(all_columns).collect();
        memory.commit(commit).await
    }
}

fn all_columns(change: Change) -> Change {
    match change {
        Change::Amend { table, row, version, .. } => Change::Update { table, row, version },
        other => other,
    }
}

/// Makes the commit without those removals that `is_lost` picks, and says that they were made.
async fn losing(memory: &Memory, mut commit: Commit, is_lost: impl Fn(&Change) -> bool) -> Result<Receipt, Error> {
    let lost: Vec<bool> = commit.changes.iter().map(|it| matches!(it, Change::Remove { .. }) && is_lost(it)).collect();
    let mut places = lost.iter();
    commit.changes.retain(|_| places.next() == Some(&false));
    let mut receipt = memory.commit(commit).await?;
    let mut made = std::mem::take(&mut receipt.changes).into_iter();
    receipt.changes =
        lost.iter().filter_map(|is_lost| if *is_lost { Some(Outcome::Made) } else { made.next() }).collect();
    Ok(receipt)
}

/// A removal is said to be made, and is not.
pub(crate) struct OnlyPretendsToRemove;

#[async_trait]
impl Flaw for OnlyPretendsToRemove {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        losing(memory, commit, |_| true).await
    }
}

/// A row is removed only if nobody has changed it.
pub(crate) struct RemovesOnlyTheFirstVersion;

#[async_trait]
impl Flaw for RemovesOnlyTheFirstVersion {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        let mut changed: Vec<(&str, Key)> = Vec::new();
        for change in &commit.changes {
            let stored = memory.row(change.table(), change.key()).await?;
            changed.extend(stored.filter(|stored| stored.version > 1).map(|_| (change.table().name, change.key())));
        }
        losing(memory, commit, |change| changed.contains(&(change.table().name, change.key()))).await
    }
}

/// A removal is lost where its commit changes other rows as well.
pub(crate) struct LosesRemovalsAmongOthers;

#[async_trait]
impl Flaw for LosesRemovalsAmongOthers {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        let is_alone = commit.changes.len() == 1;
        losing(memory, commit, |_| !is_alone).await
    }
}

/// Removing what is absent is a conflict, as deleting it is.
pub(crate) struct RefusesToRemoveNothing;

#[async_trait]
impl Flaw for RefusesToRemoveNothing {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        for change in &mut commit.changes {
            if let Change::Remove { table, key } = change {
                let version = memory.row(table, key.clone()).await?.map_or(1, |stored| stored.version);
                *change = Change::Delete { table, key: key.clone(), version };
            }
        }
        memory.commit(commit).await
    }
}

/// Part of a refused commit is stored all the same.
pub(crate) struct StoresPart(pub(crate) fn(Commit) -> Commit);

#[async_trait]
impl Flaw for StoresPart {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        let answer = memory.commit(commit.clone()).await;
        if answer.is_err() {
            drop(memory.commit((self.0)(commit)).await);
        }
        answer
    }
}

/// Run events are stored first, and all else afterwards: two writes where there should be one.
pub(crate) struct WritesTwice;

#[async_trait]
impl Flaw for WritesTwice {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        let events = memory.commit(Commit::new().events(std::mem::take(&mut commit.events))).await?.events;
        let changes = memory.commit(commit).await?.changes;
        Ok(Receipt { changes, events })
    }
}

/// What must be unique is made to be, by leaving it out.
pub(crate) struct IgnoresUniqueColumns;

#[async_trait]
impl Flaw for IgnoresUniqueColumns {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        let answer = memory.commit(commit.clone()).await;
        let Err(Error::Conflict(Conflict::NotUnique { .. })) = answer else { return answer };
        for change in &mut commit.changes {
            let table = change.table();
            if let Change::Insert { row, .. } | Change::Update { row, .. } = change {
                leave_out_unique(table, row);
            }
        }
        memory.commit(commit).await
    }
}

/// Whether there is such a row already is judged by its key, and not by what else is unique.
pub(crate) struct KeepsByKeyOnly;

#[async_trait]
impl Flaw for KeepsByKeyOnly {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        for change in &mut commit.changes {
            if let Change::InsertOrKeep { table, row } = change {
                leave_out_unique(table, row);
            }
        }
        memory.commit(commit).await
    }
}

fn leave_out_unique(table: &'static Table, Row(values): &mut Row) {
    let columns = table.unique.iter().copied().flatten().filter_map(|name| table.position(name));
    columns.filter(|place| table.columns[*place].nullable).for_each(|place| values[place] = Value::Null);
}

/// What is there is overwritten, not kept.
pub(crate) struct OverwritesWhatShouldBeKept;

#[async_trait]
impl Flaw for OverwritesWhatShouldBeKept {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        let receipt = memory.commit(commit.clone()).await?;
        for (change, outcome) in commit.changes.into_iter().zip(&receipt.changes) {
            if let (Change::InsertOrKeep { table, row }, Outcome::Kept(Stored { version, .. })) = (change, outcome) {
                let mut update = Commit::new();
                update.changes.push(Change::Update { table, row, version: *version });
                drop(memory.commit(update).await);
            }
        }
        Ok(receipt)
    }
}

/// A number is given again once its row is gone: the largest there is, plus one.
#[derive(Default)]
pub(crate) struct ReusesSerials(Mutex<BTreeMap<Value, i64>>);

#[async_trait]
impl Flaw for ReusesSerials {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        for change in &mut commit.changes {
            if let Change::Delete { table, key: Key(values), .. } | Change::Remove { table, key: Key(values) } = change
                && table.name == Message::TABLE.name
            {
                let shown = self.0.lock().unwrap();
                let real = shown.iter().find(|(_, shown)| Value::Int(**shown) == values[0]);
                values[0] = real.map_or(Value::Int(-1), |(real, _)| real.clone());
            }
        }
        let receipt = memory.commit(commit).await?;
        let rows = memory.rows(Scan::all::<Message>()).await?;
        let mut shown = self.0.lock().unwrap();
        shown.retain(|real, _| rows.iter().any(|stored| stored.row.0[0] == *real));
        for stored in rows {
            let next = shown.values().max().copied().unwrap_or(0) + 1;
            shown.entry(stored.row.0[0].clone()).or_insert(next);
        }
        Ok(receipt)
    }

    async fn rows(&self, memory: &Memory, scan: Scan) -> Result<Vec<Stored>, Error> {
        let is_inbox = scan.table.name == Message::TABLE.name;
        let mut rows = memory.rows(scan).await?;
        for stored in rows.iter_mut().filter(|_| is_inbox) {
            stored.row.0[0] = Value::Int(self.0.lock().unwrap()[&stored.row.0[0]]);
        }
        Ok(rows)
    }
}

/// Nobody minds a reader that goes back.
pub(crate) struct LetsReadersGoBack;

#[async_trait]
impl Flaw for LetsReadersGoBack {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        commit.moves.retain(|step| step.to >= step.from);
        memory.commit(commit).await
    }
}

/// A reader that is elsewhere than it believes is moved all the same.
pub(crate) struct IgnoresPositions;

#[async_trait]
impl Flaw for IgnoresPositions {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        for step in &mut commit.moves {
            let head = memory.run(&step.run).await?;
            step.from = head.map_or(step.from, |head| head.position(step.reader));
        }
        memory.commit(commit).await
    }
}

/// A reader that would go beyond the end is moved to the end.
pub(crate) struct StopsReadersAtTheEnd;

#[async_trait]
impl Flaw for StopsReadersAtTheEnd {
    async fn commit(&self, memory: &Memory, mut commit: Commit) -> Result<Receipt, Error> {
        let answer = memory.commit(commit.clone()).await;
        let Err(Error::Invalid(Invalid::Move { last, .. })) = answer else { return answer };
        commit.moves.iter_mut().for_each(|step| step.to = step.to.min(last));
        memory.commit(commit).await
    }
}

/// Values are changed on their way into a row.
async fn rewriting(memory: &Memory, mut commit: Commit, change: impl Fn(&mut Value)) -> Result<Receipt, Error> {
    for it in &mut commit.changes {
        if let Change::Insert { row, .. }
        | Change::InsertOrKeep { row, .. }
        | Change::Update { row, .. }
        | Change::Amend { row, .. } = it
        {
            row.0.iter_mut().for_each(&change);
        }
    }
    memory.commit(commit).await
}

/// Instants in rows are cut off at the millisecond.
pub(crate) struct CutsInstants;

#[async_trait]
impl Flaw for CutsInstants {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        let cut = |at: Timestamp| Timestamp::from_micros(at.as_micros().div_euclid(1_000) * 1_000).unwrap_or(at);
        rewriting(memory, commit, |value| {
            if let Value::Time(at) = value {
                *at = cut(*at);
            }
        })
        .await
    }
}

/// Text is stored without the blanks at its end.
pub(crate) struct TrimsText;

#[async_trait]
impl Flaw for TrimsText {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        rewriting(memory, commit, |value| {
            if let Value::Text(text) = value {
                *text = text.trim_end_matches(' ').into();
            }
        })
        .await
    }
}

/// Deleting the row of an execution takes its journal along.
pub(crate) struct DeletesInCascade;

#[async_trait]
impl Flaw for DeletesInCascade {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        let receipt = memory.commit(commit.clone()).await?;
        for change in commit.changes {
            if let Change::Delete { table, key, .. } | Change::Remove { table, key } = change
                && table.name == Execution::TABLE.name
                && let Some(execution) = onward_journal::ExecutionId::from_value(&key.0[0])
            {
                memory.purge(Purge::Execution(execution)).await?;
            }
        }
        Ok(receipt)
    }
}

/// Retention says yes and does nothing.
pub(crate) struct OnlyPretendsToPurge;

#[async_trait]
impl Flaw for OnlyPretendsToPurge {
    async fn purge(&self, _: &Memory, _: Purge) -> Result<bool, Error> {
        Ok(true)
    }
}

/// Retention takes every run along whose name begins with that of the run.
pub(crate) struct PurgesByPrefix;

#[async_trait]
impl Flaw for PurgesByPrefix {
    async fn purge(&self, memory: &Memory, purge: Purge) -> Result<bool, Error> {
        let Purge::Run(run) = purge else { return memory.purge(purge).await };
        for head in memory.runs(None, None, usize::MAX).await? {
            if head.run_id.starts_with(&*run) && head.run_id != run {
                memory.purge(Purge::Run(head.run_id)).await?;
            }
        }
        memory.purge(Purge::Run(run)).await
    }
}

/// Retention removes an execution's row and forgets what belongs to it.
pub(crate) struct PurgesOnlyTheRow;

#[async_trait]
impl Flaw for PurgesOnlyTheRow {
    async fn purge(&self, memory: &Memory, purge: Purge) -> Result<bool, Error> {
        let Purge::Execution(execution) = purge else { return memory.purge(purge).await };
        let row: Option<(Execution, u64)> = memory.get(Key(vec![execution.to_value()])).await?;
        let Some((row, version)) = row else { return Ok(false) };
        memory.commit(Commit::new().delete(&row, version)).await.map(|_| true)
    }
}
