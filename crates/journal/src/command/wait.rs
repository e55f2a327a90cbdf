//! Blocking on promises: a journal records waits, not looks.

use crate::{AwaitKind, Fold, Promise, PromiseId};

/// Whether an await would be satisfied at once, so that there is nothing to record.
///
/// Awaiting what cannot be awaited is never over: the event is built, and the rules refuse it.
pub(super) fn is_over(fold: &Fold, waiting_on: &[PromiseId], kind: &AwaitKind) -> bool {
    let mut complete = waiting_on.iter().map(|id| fold.promise(id).is_some_and(is_over_now));
    match kind {
        AwaitKind::Any => complete.any(|done| done),
        AwaitKind::Single | AwaitKind::All => !waiting_on.is_empty() && complete.all(|done| done),
        AwaitKind::Signal(_) => false,
    }
}

fn is_over_now(promise: &Promise) -> bool {
    !matches!(promise, Promise::Value) && promise.is_complete()
}
