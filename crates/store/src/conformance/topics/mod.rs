//! The checks, one file per topic. The name of a check states the guarantee that it tests.

mod atomicity;
mod column_updates;
mod commit_faults;
mod contiguity;
mod deduplication_conflicts;
mod delete_if_exists;
mod every_table;
mod fencing;
mod hostile_text;
mod idempotency;
mod idempotency_keys;
mod immutability;
mod insert_or_keep;
mod journal_reads;
mod journals;
mod leases;
mod limits;
mod paging;
mod purge;
mod readers;
mod row_races;
mod rows;
mod scans;
mod serial_numbers;
mod snapshots;
mod tenants;
mod timestamps;
mod unique_columns;
mod uniqueness;
mod verbatim;

use super::ConformanceCheck;

/// Names that nearly every check uses.
mod prelude {
    pub(super) use onward_runs::{RunEventWrite, RunSeq};

    pub(super) use crate::conformance::check::{
        expect_different, expect_holds, expect_refused, expect_same, expect_some,
    };
    pub(super) use crate::conformance::fixtures::{
        self, numbered_append, parse_id, run_sequence, step_event, step_events, timestamp_after_ms,
    };
    pub(super) use crate::conformance::{
        CheckContext, CheckResult, ConformanceCheck, ConformanceFailure, Topic,
    };
    pub(super) use crate::{
        ChangeOutcome, ColumnCodec as _, ColumnValue, Commit, CommitConflict, Error, EventReceipt,
        InvalidRequest, RecordReader as _, RowKey, RunEventQuery, RunEventReader,
        RunStateStore as _, Store, StoreErrorKind, StorePolicy, StoredRow, TableRecord, TableScan,
        TableSchema,
    };
}

/// Generates the function that lists the checks of a file, or those of them that are written as
/// functions.
macro_rules! checks {
    ($topic:ident: $($name:ident),+ $(,)?) => {
        super::checks!(pub(super) fn checks, $topic: $($name),+);
    };
    ($visibility:vis fn $list:ident, $topic:ident: $($name:ident),+ $(,)?) => {
        $visibility fn $list() -> Vec<ConformanceCheck> {
            vec![$(ConformanceCheck::new(Topic::$topic, stringify!($name), |world| Box::pin($name(world)))),+]
        }
    };
}
use checks;

pub(super) fn collect_checks() -> Vec<ConformanceCheck> {
    let topics = [
        uniqueness::checks(),
        contiguity::checks(),
        idempotency::checks(),
        deduplication_conflicts::checks(),
        immutability::checks(),
        paging::checks(),
        snapshots::checks(),
        leases::checks(),
        fencing::checks(),
        atomicity::checks(),
        commit_faults::checks(),
        rows::checks(),
        unique_columns::checks(),
        insert_or_keep::checks(),
        serial_numbers::checks(),
        row_races::checks(),
        column_updates::checks(),
        every_table::checks(),
        delete_if_exists::checks(),
        scans::checks(),
        journals::checks(),
        journal_reads::checks(),
        readers::checks(),
        purge::checks(),
        timestamps::checks(),
        limits::checks(),
        idempotency_keys::checks(),
        tenants::checks(),
        verbatim::checks(),
        hostile_text::checks(),
    ];
    topics.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn check_names_are_unique() {
        let checks = super::collect_checks();
        let names: BTreeSet<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names.len(), checks.len());
    }
}
