//! The type of a check, and the expectations that checks are written with.

use std::fmt::{self, Debug};
use std::panic::Location;

use futures_util::future::BoxFuture;

use super::CheckContext;
use crate::Error;

/// The result of a check: success, or the first failed expectation.
pub type CheckResult = Result<(), ConformanceFailure>;

type CheckBody =
    Box<dyn for<'a> Fn(&'a CheckContext<'a>) -> BoxFuture<'a, CheckResult> + Send + Sync>;

/// One guarantee that every store must give, with the code that tests it.
pub struct ConformanceCheck {
    /// The guarantee as a sentence in snake case.
    pub name: String,
    /// The topic that the check belongs to.
    pub topic: Topic,
    body: CheckBody,
}

impl ConformanceCheck {
    pub(super) fn new(
        topic: Topic,
        name: impl Into<String>,
        body: impl for<'a> Fn(&'a CheckContext<'a>) -> BoxFuture<'a, CheckResult>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            topic,
            body: Box::new(body),
        }
    }

    /// Runs the check on an empty store.
    pub async fn run(&self, world: &CheckContext<'_>) -> CheckResult {
        (self.body)(world).await
    }

    /// Whether the name or the topic contains `part`.
    pub fn matches_filter(&self, part: &str) -> bool {
        self.name.contains(part) || self.topic.to_string().contains(part)
    }
}

impl Debug for ConformanceCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.topic, self.name)
    }
}

macro_rules! check_topics {
    ($($(#[$doc:meta])* $topic:ident $name:literal,)+) => {
        /// The topic of a check.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Topic { $($(#[$doc])* $topic),+ }

        impl fmt::Display for Topic {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(match self { $(Self::$topic => $name),+ })
            }
        }
    };
}

check_topics! {
    /// No two events share an idempotency key, an id or a sequence number.
    Uniqueness "uniqueness",
    /// Sequence numbers are 1, 2, 3 … without gaps.
    Contiguity "contiguity",
    /// A duplicate gets the result of the first event.
    Idempotency "idempotency",
    /// Stored data never changes.
    Immutability "immutability",
    /// Reading a log page by page.
    Paging "paging",
    /// Snapshots of runs, stored and computed.
    Snapshots "snapshots",
    /// Leases, epochs and fenced commits.
    Fencing "fencing",
    /// The store applies all of a commit or nothing.
    Atomicity "atomicity",
    /// Rows, versions, unique columns and serials.
    Rows "rows",
    /// Rows in the order of an index.
    Scans "scans",
    /// Journals of executions.
    Journals "journals",
    /// Positions of readers, and lists of runs.
    Readers "readers",
    /// Retention: deleting complete runs and executions.
    Purge "purge",
    /// Timestamps of the producer and of the store.
    Stamps "stamps",
    /// Size limits of a call.
    Limits "limits",
    /// Events that contradict their idempotency key or themselves.
    Keys "keys",
    /// Isolation of runs between tenants, projects and environments.
    Tenants "tenants",
    /// Reads return exactly what was written.
    Verbatim "verbatim",
    /// Malicious text in every place that accepts text.
    Hostile "hostile",
}

/// The reason of a failure, and the source location of the expectation.
#[derive(Debug, Clone)]
pub struct ConformanceFailure {
    reason: String,
    location: &'static Location<'static>,
}

impl ConformanceFailure {
    /// Returns a failure at the caller's source location.
    #[track_caller]
    pub fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            location: Location::caller(),
        }
    }
}

impl From<Error> for ConformanceFailure {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::new(format!("an unexpected error: {error:?}"))
    }
}

impl fmt::Display for ConformanceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} ({}:{})",
            self.reason,
            self.location.file(),
            self.location.line()
        )
    }
}

/// Expects `found` to equal `expected`.
#[track_caller]
#[expect(
    clippy::needless_pass_by_value,
    reason = "checks read better without borrowing what they compare"
)]
pub(super) fn expect_same<T: PartialEq + Debug>(what: &str, found: T, expected: T) -> CheckResult {
    if found == expected {
        return Ok(());
    }
    Err(ConformanceFailure::new(format!(
        "{what}\n  found    {found:?}\n  expected {expected:?}"
    )))
}

/// Expects `found` to differ from `other`.
#[track_caller]
#[expect(
    clippy::needless_pass_by_value,
    reason = "checks read better without borrowing what they compare"
)]
pub(super) fn expect_different<T: PartialEq + Debug>(
    what: &str,
    found: T,
    other: T,
) -> CheckResult {
    if found == other {
        Err(ConformanceFailure::new(format!(
            "{what}: both are {found:?}"
        )))
    } else {
        Ok(())
    }
}

/// Expects `condition` to be true.
#[track_caller]
pub(super) fn expect_holds(what: &str, condition: bool) -> CheckResult {
    if condition {
        Ok(())
    } else {
        Err(ConformanceFailure::new(what))
    }
}

/// Expects the call to fail with this error.
#[track_caller]
pub(super) fn expect_refused<T: Debug>(
    answer: Result<T, Error>,
    error: impl Into<Error>,
) -> CheckResult {
    let error = error.into();
    match answer {
        Err(found) if found == error => Ok(()),
        other => Err(ConformanceFailure::new(format!(
            "the result\n  found    {other:?}\n  expected Err({error:?})"
        ))),
    }
}

/// Returns the value, or a failure that names what is missing.
#[track_caller]
pub(super) fn expect_some<T>(what: &str, found: Option<T>) -> Result<T, ConformanceFailure> {
    // Not `ok_or_else`: `#[track_caller]` would record the closure as the location.
    match found {
        Some(found) => Ok(found),
        None => Err(ConformanceFailure::new(format!("{what} is missing"))),
    }
}
