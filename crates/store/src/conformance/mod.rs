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
pub mod differential;
mod draw;
mod dump;
mod on_memory;
mod report;
mod sample;
mod subject;
mod topics;
mod world;

use futures_util::StreamExt as _;

pub use check::{Check, Failure, Topic, Verdict};
pub use draw::Draw;
pub use dump::Dump;
pub use on_memory::OnMemory;
pub use report::{Failed, Report};
pub use subject::{Opened, Subject, Tampering};
pub use world::World;

use crate::Policy;

/// How many checks run at a time, each on a store of its own: enough to hide the latency of a database.
const AT_ONCE: usize = 4;

/// Every check, in the order in which the topics build on each other.
pub fn checks() -> Vec<Check> {
    topics::all()
}

/// Runs the checks whose name or topic contains `only`, or all of them.
pub async fn run(subject: &dyn Subject, only: Option<&str>) -> Report {
    let checks = checks();
    let wanted = checks.iter().filter(|check| only.is_none_or(|part| check.matches(part)));
    let verdicts = futures_util::stream::iter(wanted).map(|check| judge(subject, check)).buffered(AT_ONCE);
    verdicts.collect::<Vec<_>>().await.into_iter().collect()
}

async fn judge<'a>(subject: &dyn Subject, check: &'a Check) -> (&'a Check, Verdict) {
    let verdict = match World::open(subject, Policy::default()).await {
        Ok(world) => check.run(&world).await,
        Err(failure) => Err(failure),
    };
    (check, verdict)
}
