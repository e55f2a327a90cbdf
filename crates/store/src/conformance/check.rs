//! What a check is, and the few words in which checks say what they expect.

use std::fmt::{self, Debug};
use std::panic::Location;

use futures_util::future::BoxFuture;

use super::CheckContext;
use crate::Error;

/// What a check comes to.
pub type CheckResult = Result<(), ConformanceFailure>;

type CheckBody =
    Box<dyn for<'a> Fn(&'a CheckContext<'a>) -> BoxFuture<'a, CheckResult> + Send + Sync>;

/// One thing that is true of every store.
pub struct ConformanceCheck {
    /// The thing, as a sentence.
    pub name: String,
    /// What it is about.
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

    /// Holds the check against an empty store.
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
        /// What checks are about.
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
    /// No two events share a key, an id or a place.
    Uniqueness "uniqueness",
    /// Places count 1, 2, 3 without gaps.
    Contiguity "contiguity",
    /// A repeat is answered with what the first was given.
    Idempotency "idempotency",
    /// What is stored stays as it is.
    Immutability "immutability",
    /// Reading a log page by page.
    Paging "paging",
    /// What events amount to.
    Snapshots "snapshots",
    /// Leases, epochs and who may still write.
    Fencing "fencing",
    /// All of a commit or nothing.
    Atomicity "atomicity",
    /// Rows, versions, unique columns and serials.
    Rows "rows",
    /// Rows in the order of an index.
    Scans "scans",
    /// Journals of executions.
    Journals "journals",
    /// Positions of readers, and lists of runs.
    Readers "readers",
    /// Retention.
    Purge "purge",
    /// Whose clock says what.
    Stamps "stamps",
    /// How much is too much.
    Limits "limits",
    /// Events that contradict their idempotency key or themselves.
    Keys "keys",
    /// Whose run it is.
    Tenants "tenants",
    /// What is read is what was written.
    Verbatim "verbatim",
    /// Text that is meant to do harm.
    Hostile "hostile",
}

/// What was wrong, and where the check noticed.
#[derive(Debug, Clone)]
pub struct ConformanceFailure {
    reason: String,
    location: &'static Location<'static>,
}

impl ConformanceFailure {
    /// A failure noticed by the caller.
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

/// `found` is `expected`.
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

/// `found` is anything but `other`.
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

/// `condition` is true.
#[track_caller]
pub(super) fn expect_holds(what: &str, condition: bool) -> CheckResult {
    if condition {
        Ok(())
    } else {
        Err(ConformanceFailure::new(what))
    }
}

/// The call was answered with this error.
#[track_caller]
pub(super) fn expect_refused<T: Debug>(
    answer: Result<T, Error>,
    error: impl Into<Error>,
) -> CheckResult {
    let error = error.into();
    match answer {
        Err(found) if found == error => Ok(()),
        other => Err(ConformanceFailure::new(format!(
            "the answer\n  found    {other:?}\n  expected Err({error:?})"
        ))),
    }
}

/// What is there, or a failure that says what is missing.
#[track_caller]
pub(super) fn expect_some<T>(what: &str, found: Option<T>) -> Result<T, ConformanceFailure> {
    // Not `ok_or_else`: a closure would be noted as the place.
    match found {
        Some(found) => Ok(found),
        None => Err(ConformanceFailure::new(format!("{what} is missing"))),
    }
}
