//! Generates random commits: mostly valid ones as the engine makes them, with guards read from the
//! model; sometimes with a fault.

use onward_runs::{ExtraFields, IdempotencyKey, RunEventWrite, RunSeq};

use super::operation_generator::{EXECUTION_NUMBERS, OperationGenerator, RUN_IDS, SHARD_IDS};
use crate::conformance::{fixtures, store_dump};
use crate::tables::ShardLeaseRow;
use crate::{
    ChangedColumns, ColumnCodec as _, ColumnValue, Commit, JournalAppend, ReaderAdvance,
    RecordReader as _, RowChange, RowKey, RunEventReader, ShardEpoch, ShardFence, ShardId,
    StoredRow, TableRow, TableSchema, tables,
};

/// Percentage of guards that match the stored state.
const VALID_GUARD_PERCENT: u64 = 90;
/// Range of row keys and unique values, small enough that rows conflict.
const ROW_NUMBERS_MAX: u64 = 5;

impl OperationGenerator {
    pub(super) async fn random_commit(&mut self) -> Commit {
        let mut commit = Commit::new();
        let parts = if self.rng.roll_percent(2) {
            14
        } else {
            1 + self.rng.next_below(4)
        };
        for _ in 0..parts {
            match self.rng.next_below(100) {
                0..8 => commit.fences.push(self.random_fence().await),
                8..25 => commit.journals.push(self.random_journal_append().await),
                25..62 => commit.changes.push(self.random_change().await),
                62..74 => commit
                    .reader_advances
                    .extend(self.random_reader_advance().await),
                _ => self.push_random_events(&mut commit.events),
            }
        }
        if self.rng.roll_percent(85) {
            without_repeats(commit)
        } else {
            commit
        }
    }

    fn roll_valid_guard(&mut self) -> bool {
        self.rng.roll_percent(VALID_GUARD_PERCENT)
    }

    /// Returns a number one more or one less than the right one.
    fn off_by_one(&mut self, right: u64) -> u64 {
        if self.rng.roll_percent(50) {
            right + 1
        } else {
            right.saturating_sub(1)
        }
    }

    async fn random_fence(&mut self) -> ShardFence {
        let shard = *self.rng.pick_element(&SHARD_IDS);
        let row: Option<(ShardLeaseRow, u64)> = self
            .store()
            .read_record(RowKey(vec![shard.to_value()]))
            .await
            .unwrap_or_default();
        let held = row.map_or(ShardEpoch::NONE, |(lease, _)| lease.epoch);
        ShardFence {
            shard,
            epoch: if self.roll_valid_guard() {
                held
            } else {
                ShardEpoch(self.off_by_one(held.0))
            },
        }
    }

    async fn random_journal_append(&mut self) -> JournalAppend {
        let number = *self.rng.pick_element(&EXECUTION_NUMBERS);
        let chunks =
            store_dump::read_whole_journal(self.store(), fixtures::numbered_execution(number))
                .await
                .unwrap_or_default();
        let length = chunks
            .last()
            .map_or(0, |last| last.first + u64::from(last.count));
        let expected = if self.roll_valid_guard() {
            length
        } else {
            self.off_by_one(length)
        };
        let count = *self.rng.pick_element(&[1, 1, 1, 2, 3, 7, 1_000_000]);
        let mut append = fixtures::numbered_append(number, expected, count);
        match self.rng.next_below(100) {
            0 => append.count = 0,
            1 => append.expected_length = u64::MAX,
            2 => append.records = vec![7; 701].into(),
            3 => append.records = vec![].into(),
            _ => {}
        }
        append
    }

    async fn random_reader_advance(&mut self) -> Option<ReaderAdvance> {
        let (run, reader) = (
            self.random_run_id(),
            *self.rng.pick_element(&RunEventReader::ALL),
        );
        let head = self.store().read_run_head(&run).await.ok().flatten();
        if head.is_none() && self.rng.roll_percent(70) {
            return None;
        }
        let (from, last) = head.map_or((RunSeq::ZERO, RunSeq::ZERO), |head| {
            (head.reader_position(reader), head.last_seq)
        });
        let right = from.as_u64() + self.rng.next_below(last.as_u64() - from.as_u64() + 1);
        let to = if self.roll_valid_guard() {
            right
        } else {
            *self
                .rng
                .pick_element(&[from.as_u64().saturating_sub(1), last.as_u64() + 1])
        };
        let from = if self.roll_valid_guard() {
            from
        } else {
            fixtures::run_sequence(self.off_by_one(from.as_u64()))
        };
        Some(ReaderAdvance {
            run,
            reader,
            from,
            to: fixtures::run_sequence(to),
        })
    }

    async fn random_change(&mut self) -> RowChange {
        let table = *self.rng.pick_element(&tables::ALL_TABLES);
        let known = self.pick_stored_row(table).await;
        let kinds = if known.is_some() { 100 } else { 65 };
        let kind = self.rng.next_below(kinds);
        let mut change = match kind {
            0..27 => RowChange::Insert {
                table,
                row: self.row_sharing_unique_values(table, known),
            },
            27..54 => RowChange::InsertOrKeep {
                table,
                row: self.row_for_insert_or_keep(table, known),
            },
            54..60 => self.random_removal(table, known),
            _ => self.change_stored_row(table, known, kind),
        };
        if self.rng.roll_percent(2) {
            self.spoil_change(&mut change);
        }
        change
    }

    fn random_table_row(&mut self, table: &'static TableSchema) -> TableRow {
        let (key, unique) = (
            1 + self.rng.next_below(ROW_NUMBERS_MAX),
            self.rng.next_below(ROW_NUMBERS_MAX),
        );
        fixtures::random_row(table, &mut self.rng, key, unique)
    }

    /// Returns a row that sometimes has the unique values of an existing row.
    fn row_sharing_unique_values(
        &mut self,
        table: &'static TableSchema,
        known: Option<StoredRow>,
    ) -> TableRow {
        let mut row = self.random_table_row(table);
        let shared = known.filter(|_| self.rng.roll_percent(20)).into_iter();
        for (stored, columns) in
            shared.flat_map(|stored| table.unique.iter().map(move |it| (stored.clone(), it)))
        {
            for place in columns
                .iter()
                .filter_map(|column| table.column_position(column))
            {
                row.0[place] = stored.row.0[place].clone();
            }
        }
        row
    }

    /// Like `row_sharing_unique_values`, but sometimes with the key of an existing row, because
    /// random keys of several columns rarely match.
    fn row_for_insert_or_keep(
        &mut self,
        table: &'static TableSchema,
        known: Option<StoredRow>,
    ) -> TableRow {
        let is_again = !table.has_serial_key() && known.is_some() && self.rng.roll_percent(20);
        if is_again {
            self.row_with_key(table, known)
        } else {
            self.row_sharing_unique_values(table, known)
        }
    }

    fn change_stored_row(
        &mut self,
        table: &'static TableSchema,
        known: Option<StoredRow>,
        kind: u64,
    ) -> RowChange {
        let version = known.as_ref().map_or(1, |stored| stored.version);
        let version = if self.roll_valid_guard() {
            version
        } else {
            self.off_by_one(version)
        };
        let row = self.row_with_key(table, known);
        match kind {
            0..74 => RowChange::Update {
                table,
                row,
                version,
            },
            74..87 => RowChange::UpdateColumns {
                table,
                changed: self.random_updated_columns(table),
                row,
                version,
            },
            _ => RowChange::Delete {
                table,
                key: table.key_of(&row),
                version,
            },
        }
    }

    /// Returns all columns except identifying ones; rarely includes these too, which the store must
    /// reject.
    fn random_updated_columns(&mut self, table: &'static TableSchema) -> ChangedColumns {
        let is_too_much = self.rng.roll_percent(3);
        ChangedColumns::from_positions(
            (0..table.columns.len())
                .filter(|place| is_too_much || !table.is_identifying_column(*place)),
        )
    }

    /// Returns an unconditional deletion, mostly of an existing row.
    fn random_removal(
        &mut self,
        table: &'static TableSchema,
        known: Option<StoredRow>,
    ) -> RowChange {
        let known = known.filter(|_| self.rng.roll_percent(70));
        RowChange::DeleteIfExists {
            table,
            key: table.key_of(&self.row_with_key(table, known)),
        }
    }

    /// Returns a row with the key of `known`, or with a random key if it is `None`.
    fn row_with_key(&mut self, table: &'static TableSchema, known: Option<StoredRow>) -> TableRow {
        let mut row = self.random_table_row(table);
        if let Some(stored) = known {
            row.0[..table.key_length].clone_from_slice(&stored.row.0[..table.key_length]);
        } else if table.has_serial_key() {
            row.0[0] = ColumnValue::Int(1 + self.rng.next_below(ROW_NUMBERS_MAX).cast_signed());
        }
        row
    }

    /// Returns a random existing row, or `None` if the table is empty.
    pub(super) async fn pick_stored_row(
        &mut self,
        table: &'static TableSchema,
    ) -> Option<StoredRow> {
        let rows = self.read_rows(table).await;
        if rows.is_empty() {
            None
        } else {
            Some(self.rng.pick_element(&rows).clone())
        }
    }

    /// Puts an invalid value into a change.
    fn spoil_change(&mut self, change: &mut RowChange) {
        let (RowChange::Insert {
            row: TableRow(values),
            ..
        }
        | RowChange::InsertOrKeep {
            row: TableRow(values),
            ..
        }
        | RowChange::Update {
            row: TableRow(values),
            ..
        }
        | RowChange::UpdateColumns {
            row: TableRow(values),
            ..
        }
        | RowChange::Delete {
            key: RowKey(values),
            ..
        }
        | RowChange::DeleteIfExists {
            key: RowKey(values),
            ..
        }) = change;
        let place = usize::try_from(self.rng.next_below(values.len() as u64)).unwrap_or(0);
        match self.rng.next_below(5) {
            0 => values[place] = ColumnValue::Null,
            1 => values[place] = ColumnValue::Int(7),
            2 => values[place] = ColumnValue::Text("\0".into()),
            3 => values[place] = ColumnValue::Text("x".repeat(701).into()),
            _ => drop(values.pop()),
        }
    }

    fn push_random_events(&mut self, events: &mut Vec<RunEventWrite>) {
        let run = *self.rng.pick_element(&RUN_IDS);
        for _ in 0..=self.rng.next_below(3) {
            let event = self.random_event(run);
            let again = self.rng.roll_percent(6).then(|| event.clone());
            events.push(event);
            events.extend(again);
        }
    }

    fn random_event(&mut self, run: &str) -> RunEventWrite {
        let number = u32::try_from(1 + self.rng.next_below(25)).unwrap_or(1);
        let mut event = fixtures::step_event(run, number);
        match self.rng.next_below(100) {
            0..6 => event = fixtures::with_payload(event, "{\"b\":1,\"a\":2}"),
            6..12 => event = fixtures::with_payload(event, "{\"a\":2,\"b\":1}"),
            12..18 => {
                event = fixtures::with_payload(event, r#"{"signalType":"PAUSE","signalId":"s-1"}"#)
            }
            18..21 => event.tenant_id = fixtures::parse_id("other"),
            21..24 => event.event_id = fixtures::event_id(run, 1),
            24 => event.idempotency_key = IdempotencyKey::from_bytes([1; 32]),
            25 => event.step_id = None,
            26 => {
                event = fixtures::with_payload(event, &format!("{{\"a\":\"{}\"}}", "x".repeat(120)))
            }
            27..30 => event.event_type = fixtures::parse_id("StepCompleted"),
            30..33 => event.emitted_at = fixtures::parse_id("2026-03-01t12:00:00.10z"),
            33..36 => event.extra = ExtraFields::parse(r#"{"cost":1e400}"#).unwrap_or_default(),
            _ => {}
        }
        let keeps_key = event.idempotency_key == IdempotencyKey::from_bytes([1; 32]);
        if keeps_key {
            event
        } else {
            fixtures::with_computed_key(event)
        }
    }
}

/// Removes the parts that would touch something twice.
fn without_repeats(mut commit: Commit) -> Commit {
    let mut shards: Vec<ShardId> = Vec::new();
    commit
        .fences
        .retain(|fence| is_first_occurrence(&mut shards, fence.shard));
    let mut executions = Vec::new();
    commit
        .journals
        .retain(|append| is_first_occurrence(&mut executions, append.execution));
    let mut positions = Vec::new();
    commit
        .reader_advances
        .retain(|step| is_first_occurrence(&mut positions, (step.run.clone(), step.reader)));
    let (mut keys, mut unique) = (Vec::new(), Vec::new());
    commit.changes.retain(|change| {
        let table = change.table();
        let has_key = !change.key().0.contains(&ColumnValue::Null);
        let values = change
            .row()
            .map(|row| table.unique_values(row))
            .unwrap_or_default();
        (!has_key || is_first_occurrence(&mut keys, (table.name, change.key())))
            && values
                .into_iter()
                .all(|value| is_first_occurrence(&mut unique, (table.name, value)))
    });
    commit
}

fn is_first_occurrence<T: PartialEq>(seen: &mut Vec<T>, value: T) -> bool {
    let is_new = !seen.contains(&value);
    seen.push(value);
    is_new
}
