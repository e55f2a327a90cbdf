//! What is wrong with the tables as such: rows that belong to nothing, and guards that somebody has removed.

/// Each statement selects what must not be there, in words.
pub(crate) const INTEGRITY_CHECKS: &[&str] = &[
    include_str!("../statements/inspect/orphaned_events.sql"),
    include_str!("../statements/inspect/empty_runs.sql"),
    include_str!("../statements/inspect/orphaned_snapshots.sql"),
    include_str!("../statements/inspect/repeated_ids.sql"),
    include_str!("../statements/inspect/misplaced_readers.sql"),
    include_str!("../statements/inspect/missing_triggers.sql"),
    include_str!("../statements/inspect/missing_constraints.sql"),
];
