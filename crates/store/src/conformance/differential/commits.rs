//! Random commits: mostly such as the engine makes, with guards read from the model; sometimes wrong in one way or other.

use onward_runs::{Extra, IdempotencyKey, RunEventWrite, RunSeq};

use super::generate::{EXECUTIONS, Generator, RUNS, SHARDS};
use crate::conformance::{dump, sample};
use crate::tables::ShardLease;
use crate::{
    Change, Changed, Commit, Epoch, Fence, Field as _, JournalAppend, Key, Move, Reader, Records as _, Row, Shard,
    Stored, Table, Value, tables,
};

/// How often a guard is what the store holds.
const RIGHT_PERCENT: u64 = 90;
/// Rows have keys and unique values from so small a range that they clash.
const ROWS: u64 = 5;

impl Generator {
    pub(super) async fn commit(&mut self) -> Commit {
        let mut commit = Commit::new();
        let parts = if self.draw.percent(2) { 14 } else { 1 + self.draw.below(4) };
        for _ in 0..parts {
            match self.draw.below(100) {
                0..8 => commit.fences.push(self.fence().await),
                8..25 => commit.journals.push(self.append().await),
                25..62 => commit.changes.push(self.change().await),
                62..74 => commit.moves.extend(self.step().await),
                _ => self.events(&mut commit.events),
            }
        }
        if self.draw.percent(85) { once_each(commit) } else { commit }
    }

    fn right(&mut self) -> bool {
        self.draw.percent(RIGHT_PERCENT)
    }

    /// A little more or less than what is right.
    fn off(&mut self, right: u64) -> u64 {
        if self.draw.percent(50) { right + 1 } else { right.saturating_sub(1) }
    }

    async fn fence(&mut self) -> Fence {
        let shard = *self.draw.pick(&SHARDS);
        let row: Option<(ShardLease, u64)> = self.store().get(Key(vec![shard.to_value()])).await.unwrap_or_default();
        let held = row.map_or(Epoch::NONE, |(lease, _)| lease.epoch);
        Fence { shard, epoch: if self.right() { held } else { Epoch(self.off(held.0)) } }
    }

    async fn append(&mut self) -> JournalAppend {
        let number = *self.draw.pick(&EXECUTIONS);
        let chunks = dump::journal(self.store(), sample::execution(number)).await.unwrap_or_default();
        let length = chunks.last().map_or(0, |last| last.first + u64::from(last.count));
        let expected = if self.right() { length } else { self.off(length) };
        let count = *self.draw.pick(&[1, 1, 1, 2, 3, 7, 1_000_000]);
        let mut append = sample::append(number, expected, count);
        match self.draw.below(100) {
            0 => append.count = 0,
            1 => append.expected = u64::MAX,
            2 => append.records = vec![7; 701].into(),
            3 => append.records = vec![].into(),
            _ => {}
        }
        append
    }

    async fn step(&mut self) -> Option<Move> {
        let (run, reader) = (self.run(), *self.draw.pick(&Reader::ALL));
        let head = self.store().run(&run).await.ok().flatten();
        if head.is_none() && self.draw.percent(70) {
            return None;
        }
        let (from, last) = head.map_or((RunSeq::ZERO, RunSeq::ZERO), |head| (head.position(reader), head.last_seq));
        let right = from.get() + self.draw.below(last.get() - from.get() + 1);
        let to = if self.right() { right } else { *self.draw.pick(&[from.get().saturating_sub(1), last.get() + 1]) };
        let from = if self.right() { from } else { sample::seq(self.off(from.get())) };
        Some(Move { run, reader, from, to: sample::seq(to) })
    }

    async fn change(&mut self) -> Change {
        let table = *self.draw.pick(&tables::ALL);
        let known = self.known(table).await;
        let kinds = if known.is_some() { 100 } else { 65 };
        let kind = self.draw.below(kinds);
        let mut change = match kind {
            0..27 => Change::Insert { table, row: self.row_beside(table, known) },
            27..54 => Change::InsertOrKeep { table, row: self.row_to_keep(table, known) },
            54..60 => self.removal(table, known),
            _ => self.change_of(table, known, kind),
        };
        if self.draw.percent(2) {
            self.spoil(&mut change);
        }
        change
    }

    fn row(&mut self, table: &'static Table) -> Row {
        let (key, unique) = (1 + self.draw.below(ROWS), self.draw.below(ROWS));
        sample::drawn_row(table, &mut self.draw, key, unique)
    }

    /// A row whose unique values are sometimes those of one that is there.
    fn row_beside(&mut self, table: &'static Table, known: Option<Stored>) -> Row {
        let mut row = self.row(table);
        let shared = known.filter(|_| self.draw.percent(20)).into_iter();
        for (stored, columns) in shared.flat_map(|stored| table.unique.iter().map(move |it| (stored.clone(), it))) {
            for place in columns.iter().filter_map(|column| table.position(column)) {
                row.0[place] = stored.row.0[place].clone();
            }
        }
        row
    }

    /// The same, or one that has the key of one that is there: few would, by chance, where a key is of several columns.
    fn row_to_keep(&mut self, table: &'static Table, known: Option<Stored>) -> Row {
        let is_again = !table.is_serial() && known.is_some() && self.draw.percent(20);
        if is_again { self.row_with_key(table, known) } else { self.row_beside(table, known) }
    }

    fn change_of(&mut self, table: &'static Table, known: Option<Stored>, kind: u64) -> Change {
        let version = known.as_ref().map_or(1, |stored| stored.version);
        let version = if self.right() { version } else { self.off(version) };
        let row = self.row_with_key(table, known);
        match kind {
            0..74 => Change::Update { table, row, version },
            74..87 => Change::Amend { table, changed: self.amended(table), row, version },
            _ => Change::Delete { table, key: table.key_of(&row), version },
        }
    }

    /// All columns but those that identify a row; rarely these as well, which is refused.
    fn amended(&mut self, table: &'static Table) -> Changed {
        let is_too_much = self.draw.percent(3);
        Changed::of((0..table.columns.len()).filter(|place| is_too_much || !table.identifies(*place)))
    }

    /// Of a row that is there, mostly, or of any.
    fn removal(&mut self, table: &'static Table, known: Option<Stored>) -> Change {
        let known = known.filter(|_| self.draw.percent(70));
        Change::Remove { table, key: table.key_of(&self.row_with_key(table, known)) }
    }

    /// A row with the key of one that is there, or with any.
    fn row_with_key(&mut self, table: &'static Table, known: Option<Stored>) -> Row {
        let mut row = self.row(table);
        if let Some(stored) = known {
            row.0[..table.key].clone_from_slice(&stored.row.0[..table.key]);
        } else if table.is_serial() {
            row.0[0] = Value::Int(1 + self.draw.below(ROWS).cast_signed());
        }
        row
    }

    /// A row that is there, if there is one.
    pub(super) async fn known(&mut self, table: &'static Table) -> Option<Stored> {
        let rows = self.rows(table).await;
        if rows.is_empty() { None } else { Some(self.draw.pick(&rows).clone()) }
    }

    /// Puts a value where it does not belong.
    fn spoil(&mut self, change: &mut Change) {
        let (Change::Insert { row: Row(values), .. }
        | Change::InsertOrKeep { row: Row(values), .. }
        | Change::Update { row: Row(values), .. }
        | Change::Amend { row: Row(values), .. }
        | Change::Delete { key: Key(values), .. }
        | Change::Remove { key: Key(values), .. }) = change;
        let place = usize::try_from(self.draw.below(values.len() as u64)).unwrap_or(0);
        match self.draw.below(5) {
            0 => values[place] = Value::Null,
            1 => values[place] = Value::Int(7),
            2 => values[place] = Value::Text("\0".into()),
            3 => values[place] = Value::Text("x".repeat(701).into()),
            _ => drop(values.pop()),
        }
    }

    fn events(&mut self, events: &mut Vec<RunEventWrite>) {
        let run = *self.draw.pick(&RUNS);
        for _ in 0..=self.draw.below(3) {
            let event = self.event(run);
            let again = self.draw.percent(6).then(|| event.clone());
            events.push(event);
            events.extend(again);
        }
    }

    fn event(&mut self, run: &str) -> RunEventWrite {
        let number = u32::try_from(1 + self.draw.below(25)).unwrap_or(1);
        let mut event = sample::event(run, number);
        match self.draw.below(100) {
            0..6 => event = sample::carrying(event, "{\"b\":1,\"a\":2}"),
            6..12 => event = sample::carrying(event, "{\"a\":2,\"b\":1}"),
            12..18 => event = sample::carrying(event, r#"{"signalType":"PAUSE","signalId":"s-1"}"#),
            18..21 => event.tenant_id = sample::id("other"),
            21..24 => event.event_id = sample::event_id(run, 1),
            24 => event.idempotency_key = IdempotencyKey::from_bytes([1; 32]),
            25 => event.step_id = None,
            26 => event = sample::carrying(event, &format!("{{\"a\":\"{}\"}}", "x".repeat(120))),
            27..30 => event.event_type = sample::id("StepCompleted"),
            30..33 => event.emitted_at = sample::id("2026-03-01t12:00:00.10z"),
            33..36 => event.extra = Extra::parse(r#"{"cost":1e400}"#).unwrap_or_default(),
            _ => {}
        }
        let keeps_key = event.idempotency_key == IdempotencyKey::from_bytes([1; 32]);
        if keeps_key { event } else { sample::keyed(event) }
    }
}

/// The commit without what would touch something twice.
fn once_each(mut commit: Commit) -> Commit {
    let mut shards: Vec<Shard> = Vec::new();
    commit.fences.retain(|fence| first_time(&mut shards, fence.shard));
    let mut executions = Vec::new();
    commit.journals.retain(|append| first_time(&mut executions, append.execution));
    let mut positions = Vec::new();
    commit.moves.retain(|step| first_time(&mut positions, (step.run.clone(), step.reader)));
    let (mut keys, mut unique) = (Vec::new(), Vec::new());
    commit.changes.retain(|change| {
        let table = change.table();
        let has_key = !change.key().0.contains(&Value::Null);
        let values = change.row().map(|row| table.unique_values(row)).unwrap_or_default();
        (!has_key || first_time(&mut keys, (table.name, change.key())))
            && values.into_iter().all(|value| first_time(&mut unique, (table.name, value)))
    });
    commit
}

fn first_time<T: PartialEq>(seen: &mut Vec<T>, value: T) -> bool {
    let is_new = !seen.contains(&value);
    seen.push(value);
    is_new
}
