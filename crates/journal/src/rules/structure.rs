//! The shape of the list itself (S-1). The rest of the S family is in the transition table.

use crate::{JournalEvent, JournalState};

pub(crate) fn sequence_is_index(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let expected = fold.next_sequence();
    (event.sequence != expected)
        .then(|| format!("sequence {} where {expected} was expected", event.sequence))
}
