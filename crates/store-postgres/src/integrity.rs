//! Integrity checks of the tables: orphaned rows, and triggers, functions or constraints that were
//! removed or changed.

/// Each statement selects a description of every violation it finds.
pub(crate) const INTEGRITY_CHECKS: &[&str] = &[
    include_str!("../statements/inspect/orphaned_events.sql"),
    include_str!("../statements/inspect/empty_runs.sql"),
    include_str!("../statements/inspect/orphaned_snapshots.sql"),
    include_str!("../statements/inspect/repeated_ids.sql"),
    include_str!("../statements/inspect/misplaced_readers.sql"),
    include_str!("../statements/inspect/missing_triggers.sql"),
    include_str!("../statements/inspect/missing_constraints.sql"),
    include_str!("../statements/inspect/changed_functions.sql"),
];
