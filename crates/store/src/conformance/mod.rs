//! The conformance suite: what it means to be a [`Store`](crate::Store), as checks that every adapter runs.
//!
//! An adapter implements [`Subject`] in its tests and calls [`run`]. Each check is a sentence, gets an empty store of its
//! own and returns what was wrong instead of panicking, so one report shows everything at once.
//!
//! [`differential`] is the other half: random sequences of operations that have to be answered alike by all subjects,
//! [`OnMemory`] among them.
//!
//! ```
//! # async fn example() {
//! use onward_store::conformance::{self, OnMemory};
//! conformance::run(&OnMemory, Some("fencing")).await.expect_all_passed();
//! # }
//! ```

mod check;
mod check_context;
pub mod differential;
mod fixtures;
mod memory_factory;
mod report;
mod seeded_rng;
mod store_dump;
mod store_factory;
mod topics;

use futures_util::StreamExt as _;

pub use check::{CheckResult, ConformanceCheck, ConformanceFailure, Topic};
pub use check_context::CheckContext;
pub use memory_factory::MemoryStoreFactory;
pub use report::{ConformanceReport, FailedCheck};
pub use seeded_rng::SeededRng;
pub use store_dump::StoreDump;
pub use store_factory::{OpenedStore, StoreFactory, TamperAttempt};

use crate::StorePolicy;

/// How many checks run at a time, each on a store of its own: enough to hide the latency of a database.
const CONCURRENT_CHECKS: usize = 4;

/// Every check, in the order in which the topics build on each other.
pub fn all_checks() -> Vec<ConformanceCheck> {
    topics::collect_checks()
}

/// Runs the checks whose name or topic contains `only`, or all of them.
pub async fn run_checks(subject: &dyn StoreFactory, only: Option<&str>) -> ConformanceReport {
    let checks = all_checks();
    let wanted = checks
        .iter()
        .filter(|check| only.is_none_or(|part| check.matches_filter(part)));
    let verdicts = futures_util::stream::iter(wanted)
        .map(|check| run_check(subject, check))
        .buffered(CONCURRENT_CHECKS);
    verdicts.collect::<Vec<_>>().await.into_iter().collect()
}

async fn run_check<'a>(
    subject: &dyn StoreFactory,
    check: &'a ConformanceCheck,
) -> (&'a ConformanceCheck, CheckResult) {
    let verdict = match CheckContext::open(subject, StorePolicy::default()).await {
        Ok(world) => check.run(&world).await,
        Err(failure) => Err(failure),
    };
    (check, verdict)
}
