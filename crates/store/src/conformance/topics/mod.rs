//! The checks, a file a topic. What a check is called is what it promises.

mod atomicity;
mod contiguity;
mod fencing;
mod hostile;
mod idempotency;
mod immutability;
mod journals;
mod keys;
mod limits;
mod paging;
mod purge;
mod readers;
mod removals;
mod rows;
mod rows_of_every_table;
mod scans;
mod snapshots;
mod stamps;
mod tenants;
mod uniqueness;
mod verbatim;

use super::Check;

/// What nearly every check uses.
mod prelude {
    pub(super) use onward_runs::{RunEventWrite, RunSeq};

    pub(super) use crate::conformance::check::{differs, holds, refused, same, some};
    pub(super) use crate::conformance::sample::{self, append, at, event, events, id, seq};
    pub(super) use crate::conformance::{Check, Failure, Topic, Verdict, World};
    pub(super) use crate::{
        Appended, Commit, Conflict, Error, Field as _, Invalid, Key, Kind, Outcome, Page, Policy, Reader, Record,
        Records as _, RunStateStore as _, Scan, Store, Stored, Table, Value,
    };
}

/// Lists the checks of a file, or those of them that are written out.
macro_rules! checks {
    ($topic:ident: $($name:ident),+ $(,)?) => {
        super::checks!(pub(super) fn checks, $topic: $($name),+);
    };
    ($visibility:vis fn $list:ident, $topic:ident: $($name:ident),+ $(,)?) => {
        $visibility fn $list() -> Vec<Check> {
            vec![$(Check::new(Topic::$topic, stringify!($name), |world| Box::pin($name(world)))),+]
        }
    };
}
use checks;

pub(super) fn all() -> Vec<Check> {
    let topics = [
        uniqueness::checks(),
        contiguity::checks(),
        idempotency::checks(),
        immutability::checks(),
        paging::checks(),
        snapshots::checks(),
        fencing::checks(),
        atomicity::checks(),
        rows::checks(),
        rows_of_every_table::checks(),
        removals::checks(),
        scans::checks(),
        journals::checks(),
        readers::checks(),
        purge::checks(),
        stamps::checks(),
        limits::checks(),
        keys::checks(),
        tenants::checks(),
        verbatim::checks(),
        hostile::checks(),
    ];
    topics.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn no_two_checks_have_the_same_name() {
        let checks = super::all();
        let names: BTreeSet<&str> = checks.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names.len(), checks.len());
    }
}
