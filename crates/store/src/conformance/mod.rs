//! The conformance suite: the guarantees of a [`Store`](crate::Store), as checks that every adapter
//! runs.
//!
//! An adapter implements [`StoreFactory`] in its tests and calls [`run_checks`]. The name of each
//! check is a sentence. Each check gets its own empty store and returns a failure instead of
//! panicking, so that one report shows all failures.
//!
//! [`differential`] is the other half: random sequences of operations that all implementations,
//! including [`MemoryStoreFactory`], must answer alike.
//!
//! ```
//! # async fn example() {
//! use onward_store::conformance::{self, MemoryStoreFactory};
//! conformance::run_checks(&MemoryStoreFactory, Some("fencing")).await.expect_all_passed();
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

/// Number of checks that run concurrently, each on its own store: enough to hide the latency of a
/// database.
const CONCURRENT_CHECKS: usize = 4;

/// Returns every check, in the order in which the topics build on each other.
pub fn all_checks() -> Vec<ConformanceCheck> {
    topics::collect_checks()
}

/// Runs the checks whose name or topic contains `only`, or all checks if it is `None`.
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
