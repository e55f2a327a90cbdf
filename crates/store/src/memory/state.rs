//! Everything a store holds, as maps.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use onward_journal::ExecutionId;
use onward_runs::{EventId, IdempotencyKey, RunEventRecord, RunId, RunSeq};

use crate::tables::{Alert, Execution, Message, Snapshot, Task, Timer};
use crate::{
    Before, Changed, Error, Field, JournalChunk, Key, Known, Plan, Purge, Reader, Record, Row, RunHead, Scan, Stored,
    Table, Value, Write,
};

/// Everything a store holds.
#[derive(Debug, Default)]
pub struct State {
    rows: BTreeMap<&'static str, BTreeMap<Key, Stored>>,
    unique: BTreeMap<(&'static str, usize, Vec<Value>), Key>,
    serials: BTreeMap<&'static str, i64>,
    reserved: BTreeMap<&'static str, VecDeque<i64>>,
    journals: BTreeMap<ExecutionId, Vec<JournalChunk>>,
    heads: BTreeMap<RunId, RunHead>,
    events: BTreeMap<RunId, BTreeMap<RunSeq, RunEventRecord>>,
    keys: BTreeMap<(RunId, IdempotencyKey), RunSeq>,
    ids: BTreeMap<EventId, RunId>,
}

impl State {
    /// Carries a plan out.
    pub fn write(&mut self, plan: &Plan<'_>) {
        for append in &plan.journals {
            let chunk = JournalChunk { first: append.expected, count: append.count, records: append.records.clone() };
            self.put_chunk(append.execution, chunk);
        }
        plan.rows.iter().for_each(|write| self.write_row(write));
        for planned in &plan.events {
            let record = RunEventRecord {
                event: planned.event.clone(),
                run_seq: planned.run_seq,
                persisted_at: planned.persisted_at,
            };
            self.insert_event(record);
        }
        plan.heads.iter().for_each(|head| self.put_head(head.clone()));
    }

    fn write_row(&mut self, write: &Write<'_>) {
        match *write {
            Write::Insert(table, row) => {
                let row = self.with_serial(table, row);
                self.put(table, row, 1);
            }
            Write::Update(table, row, version, changed) => self.change(table, row, version, changed),
            Write::Amend(table, row, version, changed) => {
                self.change(table, row, version.saturating_add(1), changed);
            }
            Write::Delete(table, key) => {
                self.take(table, key);
            }
        }
    }

    fn change(&mut self, table: &'static Table, row: &Row, version: u64, changed: Changed) {
        if let Some(Stored { row: mut stored, .. }) = self.take(table, &table.key_of(row)) {
            changed.apply(&mut stored, row);
            self.put(table, stored, version);
        }
    }

    fn with_serial(&mut self, table: &'static Table, row: &Row) -> Row {
        let mut row = row.clone();
        if table.is_serial() {
            row.0[0] = Value::Int(self.next_serial(table));
        }
        row
    }

    fn next_serial(&mut self, table: &'static Table) -> i64 {
        let reserved = self.reserved.get_mut(table.name).and_then(VecDeque::pop_front);
        let last = self.serials.entry(table.name).or_default();
        *last = reserved.unwrap_or(*last + 1);
        *last
    }

    /// Has the next rows of a table numbered so, by whoever really assigns the numbers.
    pub fn reserve_serials(&mut self, table: &'static Table, numbers: impl IntoIterator<Item = i64>) {
        self.reserved.entry(table.name).or_default().extend(numbers);
    }

    /// Puts a row as it is.
    pub fn put(&mut self, table: &'static Table, row: Row, version: u64) {
        let key = table.key_of(&row);
        for (place, values) in table.unique_values(&row) {
            self.unique.insert((table.name, place, values), key.clone());
        }
        self.rows.entry(table.name).or_default().insert(key, Stored { row, version });
    }

    fn take(&mut self, table: &'static Table, key: &Key) -> Option<Stored> {
        let stored = self.rows.get_mut(table.name)?.remove(key)?;
        for (place, values) in table.unique_values(&stored.row) {
            self.unique.remove(&(table.name, place, values));
        }
        Some(stored)
    }

    /// Puts an event as it is.
    pub fn insert_event(&mut self, record: RunEventRecord) {
        let run = record.event.run_id.clone();
        self.keys.insert((run.clone(), record.event.idempotency_key), record.run_seq);
        self.ids.insert(record.event.event_id, run.clone());
        self.events.entry(run).or_default().insert(record.run_seq, record);
    }

    /// Puts the head of a run as it is.
    pub fn put_head(&mut self, head: RunHead) {
        self.heads.insert(head.run_id.clone(), head);
    }

    /// Puts a chunk after those that the journal has.
    pub fn put_chunk(&mut self, execution: ExecutionId, chunk: JournalChunk) {
        self.journals.entry(execution).or_default().push(chunk);
    }

    pub(super) fn get(&self, table: &'static Table, key: &Key) -> Option<&Stored> {
        self.rows.get(table.name)?.get(key)
    }

    pub(super) fn scan(&self, scan: &Scan, page_max: usize) -> Vec<Stored> {
        let order = scan.table.order_of(scan.index);
        let wanted = |place: &[Value]| {
            place.starts_with(&scan.equal)
                && scan.until.as_ref().is_none_or(|until| place.get(scan.equal.len()).is_none_or(|next| next <= until))
                && scan
                    .after
                    .as_deref()
                    .is_none_or(|after| if scan.is_reversed { place < after } else { place > after })
        };
        let rows = self.rows.get(scan.table.name).into_iter().flat_map(BTreeMap::values);
        let placed = rows.map(|stored| (scan.table.pick(&order, &stored.row), stored));
        let found: BTreeMap<Vec<Value>, &Stored> = placed.filter(|(place, _)| wanted(place)).collect();
        let limit = scan.limit.min(page_max);
        if scan.is_reversed {
            return found.into_values().rev().take(limit).cloned().collect();
        }
        found.into_values().take(limit).cloned().collect()
    }

    pub(super) fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Vec<JournalChunk> {
        let chunks = self.journals.get(&execution).into_iter().flatten();
        chunks.filter(|chunk| chunk.first + u64::from(chunk.count) > from).take(limit).cloned().collect()
    }

    pub(super) fn run_events(&self, run: &RunId, after: RunSeq, limit: usize) -> Vec<RunEventRecord> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let events = self.events.get(run).into_iter().flat_map(|events| events.range(range));
        events.take(limit).map(|(_, event)| event.clone()).collect()
    }

    pub(super) fn run(&self, run: &RunId) -> Option<&RunHead> {
        self.heads.get(run)
    }

    pub(super) fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Vec<RunHead> {
        let range: (Bound<&RunId>, Bound<&RunId>) = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let is_wanted = |head: &&RunHead| behind.is_none_or(|reader| head.position(reader) < head.last_seq);
        self.heads.range::<RunId, _>(range).map(|(_, head)| head).filter(is_wanted).take(limit).cloned().collect()
    }

    pub(super) fn purge(&mut self, purge: &Purge) -> bool {
        match purge {
            Purge::Run(run) => self.purge_run(run),
            Purge::Execution(execution) => self.purge_execution(*execution),
        }
    }

    fn purge_run(&mut self, run: &RunId) -> bool {
        for event in self.events.remove(run).into_iter().flat_map(BTreeMap::into_values) {
            self.keys.remove(&(run.clone(), event.event.idempotency_key));
            self.ids.remove(&event.event.event_id);
        }
        self.remove_where(Alert::TABLE, "subject", &run.to_value());
        let had_snapshot = self.take(Snapshot::TABLE, &Key(vec![run.to_value()])).is_some();
        self.heads.remove(run).is_some() || had_snapshot
    }

    fn purge_execution(&mut self, execution: ExecutionId) -> bool {
        let id = execution.to_value();
        let mut had_any = self.journals.remove(&execution).is_some();
        for table in [Timer::TABLE, Message::TABLE, Task::TABLE] {
            had_any |= self.remove_where(table, "execution_id", &id);
        }
        self.take(Execution::TABLE, &Key(vec![id])).is_some() || had_any
    }

    /// Removes the rows with this value in a column; tells whether there were any.
    fn remove_where(&mut self, table: &'static Table, column: &str, value: &Value) -> bool {
        let place = table.position(column);
        let is_its = |stored: &&Stored| place.is_some_and(|place| stored.row.0[place] == *value);
        let rows = self.rows.get(table.name).into_iter().flat_map(BTreeMap::values);
        let keys: Vec<Key> = rows.filter(is_its).map(|stored| table.key_of(&stored.row)).collect();
        keys.iter().for_each(|key| drop(self.take(table, key)));
        !keys.is_empty()
    }
}

impl Before for State {
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error> {
        let last = self.journals.get(&execution).and_then(|chunks| chunks.last());
        Ok(last.map_or(0, |chunk| chunk.first + u64::from(chunk.count)))
    }

    fn row(&mut self, table: &'static Table, key: &Key) -> Result<Option<Stored>, Error> {
        Ok(self.get(table, key).cloned())
    }

    fn row_by_unique(
        &mut self,
        table: &'static Table,
        unique: usize,
        values: &[Value],
    ) -> Result<Option<Stored>, Error> {
        let key = self.unique.get(&(table.name, unique, values.to_vec()));
        Ok(key.and_then(|key| self.get(table, key)).cloned())
    }

    fn head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        Ok(self.heads.get(run).cloned())
    }

    fn event_by_key(&mut self, run: &RunId, key: &IdempotencyKey) -> Result<Option<Known>, Error> {
        let place = self.keys.get(&(run.clone(), *key)).copied();
        let event = place.and_then(|place| self.events.get(run)?.get(&place));
        Ok(event.map(Known::from))
    }

    fn has_event(&mut self, id: &EventId) -> Result<bool, Error> {
        Ok(self.ids.contains_key(id))
    }
}
