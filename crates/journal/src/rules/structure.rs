//! The rule for the sequence of events itself (S-1). The transition table enforces the rest of the
//! S family.

use crate::{JournalEvent, JournalState};

pub(crate) fn sequence_is_index(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let expected = fold.next_sequence();
    (event.sequence != expected)
        .then(|| format!("sequence {} where {expected} was expected", event.sequence))
}
