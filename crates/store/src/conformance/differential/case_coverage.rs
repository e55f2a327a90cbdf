//! Coverage of the generated sequences: counts each kind of case. A generator is only as good as
//! the cases that it produces, so a test requires every case listed here.

use std::collections::BTreeMap;
use std::fmt;

use super::{StoreAnswer, StoreOperation};
use crate::{
    ChangeOutcome, Commit, CommitConflict, CommitReceipt, Error, InvalidRequest, RowChange, tables,
};

/// The number of times each case occurred.
#[derive(Debug, Clone, Default)]
pub struct CaseCoverage(BTreeMap<(&'static str, &'static str), u64>);

/// The cases that must occur, in addition to the cases required for every table.
const EXPECTED_CASES: &[(&str, &[&str])] = &[
    ("commit", &["stored", "of several parts", "under a fence"]),
    (
        "event",
        &[
            "stored",
            "repeated",
            "repeated with another payload",
            "repeated within a commit",
        ],
    ),
    ("part", &["chunk appended", "reader moved"]),
    (
        "conflict",
        &[
            "fenced",
            "journal length",
            "row exists",
            "not unique",
            "row version",
            "row missing",
            "position",
            "foreign run",
            "event id taken",
        ],
    ),
    (
        "invalid",
        &[
            "idempotency key",
            "event",
            "limit",
            "twice",
            "value",
            "move",
            "no such run",
        ],
    ),
    (
        "read",
        &[
            "row", "rows", "chunks", "events", "head", "heads", "snapshot", "time",
        ],
    ),
    (
        "read nothing",
        &[
            "row", "rows", "chunks", "events", "head", "heads", "snapshot",
        ],
    ),
    (
        "lease",
        &["granted", "refused", "renewed", "not renewed", "released"],
    ),
    ("purge", &["of existing data", "of missing data"]),
    ("damage", &["found"]),
];

const EXPECTED_PER_TABLE: [&str; 6] = [
    "inserted into",
    "kept by insert_or_keep in",
    "updated in",
    "columns updated in",
    "deleted from",
    "deleted if existing from",
];

impl CaseCoverage {
    /// Adds the counts of another run.
    pub fn merge_counts(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// Returns the required cases that never occurred.
    pub fn uncovered_cases(&self) -> Vec<(&'static str, &'static str)> {
        let named = EXPECTED_CASES
            .iter()
            .flat_map(|(what, all)| all.iter().map(move |which| (*what, *which)));
        let in_tables = tables::ALL_TABLES
            .iter()
            .flat_map(|table| EXPECTED_PER_TABLE.map(|what| (what, table.name)));
        // The audit log has no unique columns except its serial key, so an insert never keeps a row
        // there.
        let can_happen =
            in_tables.filter(|it| *it != ("kept by insert_or_keep in", "campaign_audit_log"));
        named
            .chain(can_happen)
            .filter(|what| !self.0.contains_key(what))
            .collect()
    }

    fn count_case(&mut self, what: &'static str, which: &'static str) {
        *self.0.entry((what, which)).or_default() += 1;
    }

    pub(super) fn record_answer(&mut self, operation: &StoreOperation, answer: &StoreAnswer) {
        match (operation, answer) {
            (_, StoreAnswer::Error(error)) => self.record_error(error),
            (StoreOperation::Commit(commit), StoreAnswer::Receipt(receipt)) => {
                self.record_commit(commit, receipt)
            }
            (StoreOperation::Claim { .. }, StoreAnswer::Lease(granted)) => {
                self.count_case(
                    "lease",
                    if granted.is_some() {
                        "granted"
                    } else {
                        "refused"
                    },
                );
            }
            (_, StoreAnswer::Lease(granted)) => self.count_case(
                "lease",
                if granted.is_some() {
                    "renewed"
                } else {
                    "not renewed"
                },
            ),
            (StoreOperation::Release { .. }, _) => self.count_case("lease", "released"),
            (_, StoreAnswer::Purged(any)) => self.count_case(
                "purge",
                if *any {
                    "of existing data"
                } else {
                    "of missing data"
                },
            ),
            (_, read) => self.record_read(read),
        }
    }

    fn record_commit(&mut self, commit: &Commit, receipt: &CommitReceipt) {
        self.count_case("commit", "stored");
        let parts = commit.journals.len()
            + commit.changes.len()
            + commit.reader_advances.len()
            + commit.events.len();
        if parts > 2 {
            self.count_case("commit", "of several parts");
        }
        commit
            .fences
            .iter()
            .take(1)
            .for_each(|_| self.count_case("commit", "under a fence"));
        commit
            .journals
            .iter()
            .for_each(|_| self.count_case("part", "chunk appended"));
        commit
            .reader_advances
            .iter()
            .filter(|step| step.to > step.from)
            .for_each(|_| self.count_case("part", "reader moved"));
        for (change, outcome) in commit.changes.iter().zip(&receipt.changes) {
            let what = match (change, outcome) {
                (_, ChangeOutcome::Kept(_)) => "kept by insert_or_keep in",
                (RowChange::Insert { .. } | RowChange::InsertOrKeep { .. }, _) => "inserted into",
                (RowChange::Update { .. }, _) => "updated in",
                (RowChange::UpdateColumns { .. }, _) => "columns updated in",
                (RowChange::Delete { .. }, _) => "deleted from",
                (RowChange::DeleteIfExists { .. }, _) => "deleted if existing from",
            };
            self.count_case(what, change.table().name);
        }
        let persisted: Vec<_> = receipt
            .events
            .iter()
            .filter(|it| it.result.persisted)
            .map(|it| it.result.event_id)
            .collect();
        for appended in &receipt.events {
            match (appended.result.persisted, appended.differs) {
                (true, _) => self.count_case("event", "stored"),
                (false, true) => self.count_case("event", "repeated with another payload"),
                (false, false) => self.count_case("event", "repeated"),
            }
            if !appended.result.persisted && persisted.contains(&appended.result.event_id) {
                self.count_case("event", "repeated within a commit");
            }
        }
    }

    fn record_read(&mut self, answer: &StoreAnswer) {
        let (which, is_empty) = match answer {
            StoreAnswer::Row(found) => ("row", found.is_none()),
            StoreAnswer::Rows(found) => ("rows", found.is_empty()),
            StoreAnswer::Chunks(found) => ("chunks", found.is_empty()),
            StoreAnswer::Events(found) => ("events", found.is_empty()),
            StoreAnswer::Head(found) => ("head", found.is_none()),
            StoreAnswer::Heads(found) => ("heads", found.is_empty()),
            StoreAnswer::Snapshot(found) => ("snapshot", found.is_none()),
            StoreAnswer::Time(_) => ("time", false),
            _ => return,
        };
        self.count_case(if is_empty { "read nothing" } else { "read" }, which);
    }

    fn record_error(&mut self, error: &Error) {
        match error {
            Error::Conflict(conflict) => self.count_case("conflict", conflict_name(conflict)),
            Error::Invalid(invalid) => self.count_case("invalid", invalid_request_name(invalid)),
            Error::Corrupt(_) | Error::UnreadableEvent { .. } => self.count_case("damage", "found"),
            _ => self.count_case("failure", "of any other kind"),
        }
    }
}

const fn conflict_name(conflict: &CommitConflict) -> &'static str {
    match conflict {
        CommitConflict::Fenced { .. } => "fenced",
        CommitConflict::JournalLength { .. } => "journal length",
        CommitConflict::RowExists { .. } => "row exists",
        CommitConflict::NotUnique { .. } => "not unique",
        CommitConflict::RowVersion { found: 0, .. } => "row missing",
        CommitConflict::RowVersion { .. } => "row version",
        CommitConflict::ReaderPosition { .. } => "position",
        CommitConflict::ForeignRun { .. } => "foreign run",
        CommitConflict::EventIdTaken { .. } => "event id taken",
    }
}

const fn invalid_request_name(invalid: &InvalidRequest) -> &'static str {
    match invalid {
        InvalidRequest::IdempotencyKey { .. } => "idempotency key",
        InvalidRequest::Event { .. } => "event",
        InvalidRequest::Limit { .. } => "limit",
        InvalidRequest::EmptyAppend(_) => "append",
        InvalidRequest::TouchedTwice(_) => "twice",
        InvalidRequest::Value { .. } => "value",
        InvalidRequest::ReaderAdvance { .. } => "move",
        InvalidRequest::NoSuchRun(_) => "no such run",
        InvalidRequest::RefusedByDatabase(_) => "refused by the database",
    }
}

impl fmt::Display for CaseCoverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|((what, which), count)| writeln!(f, "{count:>8}  {what} {which}"))
    }
}
