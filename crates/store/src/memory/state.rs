//! The complete contents of a store, as maps.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;

use onward_journal::ExecutionId;
use onward_runs::{IdempotencyKey, RunEventId, RunEventRecord, RunId, RunSeq};

use crate::tables::{AlertRow, ExecutionRow, InboxMessageRow, RunSnapshotRow, TaskRow};
use crate::{
    ChangedColumns, ColumnCodec, ColumnValue, Error, JournalChunk, PurgeTarget, RowKey, RowWrite,
    RunEventReader, RunHead, StoredEvent, StoredRow, StoredState, TableRecord, TableRow, TableScan,
    TableSchema, WritePlan,
};

/// The complete contents of a store, or the part of it that an adapter has loaded.
#[derive(Debug, Default)]
pub struct MemoryState {
    rows: BTreeMap<&'static str, BTreeMap<RowKey, StoredRow>>,
    unique: BTreeMap<(&'static str, usize, Vec<ColumnValue>), RowKey>,
    serials: BTreeMap<&'static str, i64>,
    reserved: BTreeMap<&'static str, VecDeque<i64>>,
    journals: BTreeMap<ExecutionId, Vec<JournalChunk>>,
    heads: BTreeMap<RunId, RunHead>,
    events: BTreeMap<RunId, BTreeMap<RunSeq, RunEventRecord>>,
    keys: BTreeMap<(RunId, IdempotencyKey), RunSeq>,
    ids: BTreeMap<RunEventId, RunId>,
}

impl MemoryState {
    /// Applies the writes of a plan.
    pub fn apply_plan(&mut self, plan: &WritePlan<'_>) {
        for append in &plan.journals {
            let chunk = JournalChunk {
                first: append.expected_length,
                count: append.count,
                records: append.records.clone(),
            };
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
        plan.heads
            .iter()
            .for_each(|head| self.put_head(head.clone()));
    }

    fn write_row(&mut self, write: &RowWrite<'_>) {
        match *write {
            RowWrite::Insert(table, row) => {
                let row = self.assign_serial(table, row);
                self.put_row(table, row, 1);
            }
            RowWrite::Update(table, row, version, changed) => {
                self.update_row(table, row, version, changed)
            }
            RowWrite::UpdateIfVersion(table, row, version, changed) => {
                self.update_row(table, row, version.saturating_add(1), changed);
            }
            RowWrite::Delete(table, key) => {
                self.take_row(table, key);
            }
        }
    }

    fn update_row(
        &mut self,
        table: &'static TableSchema,
        row: &TableRow,
        version: u64,
        changed: ChangedColumns,
    ) {
        if let Some(StoredRow {
            row: mut stored, ..
        }) = self.take_row(table, &table.key_of(row))
        {
            changed.copy_changed(&mut stored, row);
            self.put_row(table, stored, version);
        }
    }

    fn assign_serial(&mut self, table: &'static TableSchema, row: &TableRow) -> TableRow {
        let mut row = row.clone();
        if table.has_serial_key() {
            row.0[0] = ColumnValue::Int(self.next_serial(table));
        }
        row
    }

    fn next_serial(&mut self, table: &'static TableSchema) -> i64 {
        let reserved = self
            .reserved
            .get_mut(table.name)
            .and_then(VecDeque::pop_front);
        let last = self.serials.entry(table.name).or_default();
        *last = reserved.unwrap_or(*last + 1);
        *last
    }

    /// Sets the serial numbers of the next rows of a table, for an adapter whose database assigns
    /// them.
    pub fn reserve_serials(
        &mut self,
        table: &'static TableSchema,
        numbers: impl IntoIterator<Item = i64>,
    ) {
        self.reserved.entry(table.name).or_default().extend(numbers);
    }

    /// Stores a row with this version, without checks.
    pub fn put_row(&mut self, table: &'static TableSchema, row: TableRow, version: u64) {
        let key = table.key_of(&row);
        for (place, values) in table.unique_values(&row) {
            self.unique.insert((table.name, place, values), key.clone());
        }
        self.rows
            .entry(table.name)
            .or_default()
            .insert(key, StoredRow { row, version });
    }

    fn take_row(&mut self, table: &'static TableSchema, key: &RowKey) -> Option<StoredRow> {
        let stored = self.rows.get_mut(table.name)?.remove(key)?;
        for (place, values) in table.unique_values(&stored.row) {
            self.unique.remove(&(table.name, place, values));
        }
        Some(stored)
    }

    /// Stores an event with its sequence number, without checks.
    pub fn insert_event(&mut self, record: RunEventRecord) {
        let run = record.event.run_id.clone();
        self.keys
            .insert((run.clone(), record.event.idempotency_key), record.run_seq);
        self.ids.insert(record.event.event_id, run.clone());
        self.events
            .entry(run)
            .or_default()
            .insert(record.run_seq, record);
    }

    /// Stores the head of a run, without checks.
    pub fn put_head(&mut self, head: RunHead) {
        self.heads.insert(head.run_id.clone(), head);
    }

    /// Appends a chunk to a journal, without checks.
    pub fn put_chunk(&mut self, execution: ExecutionId, chunk: JournalChunk) {
        self.journals.entry(execution).or_default().push(chunk);
    }

    pub(super) fn find_row(&self, table: &'static TableSchema, key: &RowKey) -> Option<&StoredRow> {
        self.rows.get(table.name)?.get(key)
    }

    pub(super) fn scan_rows(&self, scan: &TableScan, page_max: usize) -> Vec<StoredRow> {
        let order = scan.table.scan_order(scan.index);
        let wanted = |place: &[ColumnValue]| {
            place.starts_with(&scan.equal)
                && scan.until.as_ref().is_none_or(|until| {
                    place.get(scan.equal.len()).is_none_or(|next| next <= until)
                })
                && scan.after.as_deref().is_none_or(|after| {
                    if scan.is_reversed {
                        place < after
                    } else {
                        place > after
                    }
                })
        };
        let rows = self
            .rows
            .get(scan.table.name)
            .into_iter()
            .flat_map(BTreeMap::values);
        let placed = rows.map(|stored| (scan.table.select_values(&order, &stored.row), stored));
        let found: BTreeMap<Vec<ColumnValue>, &StoredRow> =
            placed.filter(|(place, _)| wanted(place)).collect();
        let limit = scan.limit.min(page_max);
        if scan.is_reversed {
            return found.into_values().rev().take(limit).cloned().collect();
        }
        found.into_values().take(limit).cloned().collect()
    }

    pub(super) fn journal_chunks(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
        bytes_max: usize,
    ) -> Vec<JournalChunk> {
        let chunks = self.journals.get(&execution).into_iter().flatten();
        let mut bytes = 0;
        chunks
            .filter(|chunk| chunk.first + u64::from(chunk.count) > from)
            .take(limit)
            .take_while(|chunk| {
                let is_first = bytes == 0;
                bytes += chunk.records.len().max(1);
                is_first || bytes <= bytes_max
            })
            .cloned()
            .collect()
    }

    pub(super) fn run_events_after(
        &self,
        run: &RunId,
        after: RunSeq,
        limit: usize,
    ) -> Vec<RunEventRecord> {
        let range = (Bound::Excluded(after), Bound::Unbounded);
        let events = self
            .events
            .get(run)
            .into_iter()
            .flat_map(|events| events.range(range));
        events.take(limit).map(|(_, event)| event.clone()).collect()
    }

    pub(super) fn find_run_head(&self, run: &RunId) -> Option<&RunHead> {
        self.heads.get(run)
    }

    pub(super) fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Vec<RunHead> {
        let range: (Bound<&RunId>, Bound<&RunId>) = (
            after.map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Unbounded,
        );
        let is_wanted = |head: &&RunHead| {
            behind.is_none_or(|reader| head.reader_position(reader) < head.last_seq)
        };
        self.heads
            .range::<RunId, _>(range)
            .map(|(_, head)| head)
            .filter(is_wanted)
            .take(limit)
            .cloned()
            .collect()
    }

    pub(super) fn purge(&mut self, purge: &PurgeTarget) -> bool {
        match purge {
            PurgeTarget::Run(run) => self.purge_run(run),
            PurgeTarget::Execution(execution) => self.purge_execution(*execution),
        }
    }

    fn purge_run(&mut self, run: &RunId) -> bool {
        for event in self
            .events
            .remove(run)
            .into_iter()
            .flat_map(BTreeMap::into_values)
        {
            self.keys
                .remove(&(run.clone(), event.event.idempotency_key));
            self.ids.remove(&event.event.event_id);
        }
        self.remove_rows_where(AlertRow::TABLE, "subject", &run.to_value());
        let had_snapshot = self
            .take_row(RunSnapshotRow::TABLE, &RowKey(vec![run.to_value()]))
            .is_some();
        self.heads.remove(run).is_some() || had_snapshot
    }

    fn purge_execution(&mut self, execution: ExecutionId) -> bool {
        let id = execution.to_value();
        let mut had_any = self.journals.remove(&execution).is_some();
        for table in [InboxMessageRow::TABLE, TaskRow::TABLE] {
            had_any |= self.remove_rows_where(table, "execution_id", &id);
        }
        self.take_row(ExecutionRow::TABLE, &RowKey(vec![id]))
            .is_some()
            || had_any
    }

    /// Deletes the rows with this value in a column. Returns whether there were any.
    fn remove_rows_where(
        &mut self,
        table: &'static TableSchema,
        column: &str,
        value: &ColumnValue,
    ) -> bool {
        let place = table.column_position(column);
        let is_its = |stored: &&StoredRow| place.is_some_and(|place| stored.row.0[place] == *value);
        let rows = self
            .rows
            .get(table.name)
            .into_iter()
            .flat_map(BTreeMap::values);
        let keys: Vec<RowKey> = rows
            .filter(is_its)
            .map(|stored| table.key_of(&stored.row))
            .collect();
        keys.iter().for_each(|key| drop(self.take_row(table, key)));
        !keys.is_empty()
    }
}

impl StoredState for MemoryState {
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error> {
        let last = self
            .journals
            .get(&execution)
            .and_then(|chunks| chunks.last());
        Ok(last.map_or(0, |chunk| chunk.first + u64::from(chunk.count)))
    }

    fn stored_row(
        &mut self,
        table: &'static TableSchema,
        key: &RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        Ok(self.find_row(table, key).cloned())
    }

    fn row_by_unique(
        &mut self,
        table: &'static TableSchema,
        unique: usize,
        values: &[ColumnValue],
    ) -> Result<Option<StoredRow>, Error> {
        let key = self.unique.get(&(table.name, unique, values.to_vec()));
        Ok(key.and_then(|key| self.find_row(table, key)).cloned())
    }

    fn run_head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        Ok(self.heads.get(run).cloned())
    }

    fn event_by_key(
        &mut self,
        run: &RunId,
        key: &IdempotencyKey,
    ) -> Result<Option<StoredEvent>, Error> {
        let place = self.keys.get(&(run.clone(), *key)).copied();
        let event = place.and_then(|place| self.events.get(run)?.get(&place));
        Ok(event.map(StoredEvent::from))
    }

    fn has_event_id(&mut self, id: &RunEventId) -> Result<bool, Error> {
        Ok(self.ids.contains_key(id))
    }
}
