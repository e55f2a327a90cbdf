//! What happened how often. A generator is only as good as what it makes happen, so a test insists on everything here.

use std::collections::BTreeMap;
use std::fmt;

use super::{Answer, Operation};
use crate::{Change, Commit, Conflict, Error, Invalid, Outcome, Receipt, tables};

/// What happened, and how often.
#[derive(Debug, Clone, Default)]
pub struct Sometimes(BTreeMap<(&'static str, &'static str), u64>);

/// What has to happen sometimes, besides something in every table.
const EXPECTED: &[(&str, &[&str])] = &[
    ("commit", &["stored", "of several parts", "under a fence"]),
    ("event", &["stored", "repeated", "repeated with another payload", "repeated within a commit"]),
    ("part", &["chunk appended", "reader moved"]),
    (
        "conflict",
        &[
            "fenced",
            "journal length",
            "row exists",
            "not unique",
            "row version",
            "row absent",
            "position",
            "foreign run",
            "event id taken",
        ],
    ),
    ("invalid", &["idempotency key", "event", "limit", "twice", "value", "move", "no such run"]),
    ("read", &["row", "rows", "chunks", "events", "head", "heads", "snapshot", "time"]),
    ("read nothing", &["row", "rows", "chunks", "events", "head", "heads", "snapshot"]),
    ("lease", &["granted", "refused", "renewed", "not renewed", "released"]),
    ("purge", &["of something", "of nothing"]),
    ("damage", &["found"]),
];

const IN_EVERY_TABLE: [&str; 6] =
    ["inserted into", "kept in", "updated in", "amended in", "deleted from", "removed from"];

impl Sometimes {
    /// Adds what happened elsewhere.
    pub fn add(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }

    /// What never happened.
    pub fn missing(&self) -> Vec<(&'static str, &'static str)> {
        let named = EXPECTED.iter().flat_map(|(what, all)| all.iter().map(move |which| (*what, *which)));
        let in_tables = tables::ALL.iter().flat_map(|table| IN_EVERY_TABLE.map(|what| (what, table.name)));
        // Nothing in the audit log is unique but the number that the store assigns.
        let can_happen = in_tables.filter(|it| *it != ("kept in", "campaign_audit_log"));
        named.chain(can_happen).filter(|what| !self.0.contains_key(what)).collect()
    }

    fn hit(&mut self, what: &'static str, which: &'static str) {
        *self.0.entry((what, which)).or_default() += 1;
    }

    pub(super) fn note(&mut self, operation: &Operation, answer: &Answer) {
        match (operation, answer) {
            (_, Answer::Error(error)) => self.note_error(error),
            (Operation::Commit(commit), Answer::Receipt(receipt)) => self.note_commit(commit, receipt),
            (Operation::Claim { .. }, Answer::Lease(granted)) => {
                self.hit("lease", if granted.is_some() { "granted" } else { "refused" });
            }
            (_, Answer::Lease(granted)) => self.hit("lease", if granted.is_some() { "renewed" } else { "not renewed" }),
            (Operation::Release { .. }, _) => self.hit("lease", "released"),
            (_, Answer::Purged(any)) => self.hit("purge", if *any { "of something" } else { "of nothing" }),
            (_, read) => self.note_read(read),
        }
    }

    fn note_commit(&mut self, commit: &Commit, receipt: &Receipt) {
        self.hit("commit", "stored");
        let parts = commit.journals.len() + commit.changes.len() + commit.moves.len() + commit.events.len();
        if parts > 2 {
            self.hit("commit", "of several parts");
        }
        commit.fences.iter().take(1).for_each(|_| self.hit("commit", "under a fence"));
        commit.journals.iter().for_each(|_| self.hit("part", "chunk appended"));
        commit.moves.iter().filter(|step| step.to > step.from).for_each(|_| self.hit("part", "reader moved"));
        for (change, outcome) in commit.changes.iter().zip(&receipt.changes) {
            let what = match (change, outcome) {
                (_, Outcome::Kept(_)) => "kept in",
                (Change::Insert { .. } | Change::InsertOrKeep { .. }, _) => "inserted into",
                (Change::Update { .. }, _) => "updated in",
                (Change::Amend { .. }, _) => "amended in",
                (Change::Delete { .. }, _) => "deleted from",
                (Change::Remove { .. }, _) => "removed from",
            };
            self.hit(what, change.table().name);
        }
        let persisted: Vec<_> =
            receipt.events.iter().filter(|it| it.result.persisted).map(|it| it.result.event_id).collect();
        for appended in &receipt.events {
            match (appended.result.persisted, appended.differs) {
                (true, _) => self.hit("event", "stored"),
                (false, true) => self.hit("event", "repeated with another payload"),
                (false, false) => self.hit("event", "repeated"),
            }
            if !appended.result.persisted && persisted.contains(&appended.result.event_id) {
                self.hit("event", "repeated within a commit");
            }
        }
    }

    fn note_read(&mut self, answer: &Answer) {
        let (which, is_empty) = match answer {
            Answer::Row(found) => ("row", found.is_none()),
            Answer::Rows(found) => ("rows", found.is_empty()),
            Answer::Chunks(found) => ("chunks", found.is_empty()),
            Answer::Events(found) => ("events", found.is_empty()),
            Answer::Head(found) => ("head", found.is_none()),
            Answer::Heads(found) => ("heads", found.is_empty()),
            Answer::Snapshot(found) => ("snapshot", found.is_none()),
            Answer::Time(_) => ("time", false),
            _ => return,
        };
        self.hit(if is_empty { "read nothing" } else { "read" }, which);
    }

    fn note_error(&mut self, error: &Error) {
        match error {
            Error::Conflict(conflict) => self.hit("conflict", name_of_conflict(conflict)),
            Error::Invalid(invalid) => self.hit("invalid", name_of_invalid(invalid)),
            Error::Corrupt(_) => self.hit("damage", "found"),
            _ => self.hit("failure", "of any other kind"),
        }
    }
}

const fn name_of_conflict(conflict: &Conflict) -> &'static str {
    match conflict {
        Conflict::Fenced { .. } => "fenced",
        Conflict::JournalLength { .. } => "journal length",
        Conflict::RowExists { .. } => "row exists",
        Conflict::NotUnique { .. } => "not unique",
        Conflict::RowVersion { found: 0, .. } => "row absent",
        Conflict::RowVersion { .. } => "row version",
        Conflict::Position { .. } => "position",
        Conflict::ForeignRun { .. } => "foreign run",
        Conflict::EventIdTaken { .. } => "event id taken",
    }
}

const fn name_of_invalid(invalid: &Invalid) -> &'static str {
    match invalid {
        Invalid::IdempotencyKey { .. } => "idempotency key",
        Invalid::Event { .. } => "event",
        Invalid::Limit { .. } => "limit",
        Invalid::Append(_) => "append",
        Invalid::Twice(_) => "twice",
        Invalid::Value { .. } => "value",
        Invalid::Move { .. } => "move",
        Invalid::NoSuchRun(_) => "no such run",
        Invalid::Refused(_) => "refused by the database",
    }
}

impl fmt::Display for Sometimes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((what, which), count)| writeln!(f, "{count:>8}  {what} {which}"))
    }
}
