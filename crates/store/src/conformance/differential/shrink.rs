//! Making a sequence that shows a difference as short as it gets, so that people can see what it is about.

use super::{Found, Operation, compare};
use crate::Commit;
use crate::conformance::Subject;

/// How often a sequence is tried again with less in it.
const TRIES_MAX: usize = 1_000;

/// Leaves out operations, and parts of commits, as long as the answers still differ.
pub(super) async fn shrink(
    subjects: &[&dyn Subject],
    mut operations: Vec<Operation>,
    found: Found,
) -> (Vec<Operation>, Found) {
    operations.truncate(found.operations);
    let mut search = Search { subjects, operations, found, left: TRIES_MAX };
    let mut size = search.operations.len() / 2;
    while size > 0 {
        search.leave_out_operations(size).await;
        size /= 2;
    }
    search.leave_out_parts().await;
    search.leave_out_operations(1).await;
    (search.operations, search.found)
}

struct Search<'a> {
    subjects: &'a [&'a dyn Subject],
    operations: Vec<Operation>,
    found: Found,
    left: usize,
}

impl Search<'_> {
    /// Takes `fewer` for the sequence if the answers to it still differ.
    async fn accepts(&mut self, fewer: Vec<Operation>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        let Err(found) = compare(self.subjects, &fewer).await else { return false };
        self.operations = fewer;
        self.operations.truncate(found.operations);
        self.found = found;
        true
    }

    /// Leaves out `size` operations at a time.
    async fn leave_out_operations(&mut self, size: usize) {
        let mut start = 0;
        while start < self.operations.len() {
            let end = self.operations.len().min(start + size);
            let fewer = [&self.operations[..start], &self.operations[end..]].concat();
            if !self.accepts(fewer).await {
                start = end;
            }
        }
    }

    /// Leaves out one part of a commit at a time.
    async fn leave_out_parts(&mut self) {
        let mut place = 0;
        while place < self.operations.len() {
            let mut is_smaller = false;
            for commit in smaller(&self.operations[place]) {
                let mut fewer = self.operations.clone();
                fewer[place] = Operation::Commit(commit);
                is_smaller = self.accepts(fewer).await;
                if is_smaller {
                    break;
                }
            }
            place += usize::from(!is_smaller);
        }
    }
}

/// The commits that have one part less than this one.
fn smaller(operation: &Operation) -> Vec<Commit> {
    let Operation::Commit(whole) = operation else { return Vec::new() };
    let mut all = Vec::new();
    let (fences, journals) = (without_one(&whole.fences), without_one(&whole.journals));
    let (changes, moves, events) = (without_one(&whole.changes), without_one(&whole.moves), without_one(&whole.events));
    all.extend(fences.map(|fences| Commit { fences, ..whole.clone() }));
    all.extend(journals.map(|journals| Commit { journals, ..whole.clone() }));
    all.extend(changes.map(|changes| Commit { changes, ..whole.clone() }));
    all.extend(moves.map(|moves| Commit { moves, ..whole.clone() }));
    all.extend(events.map(|events| Commit { events, ..whole.clone() }));
    all
}

/// The lists that have one element less than this one.
fn without_one<T: Clone>(list: &[T]) -> impl Iterator<Item = Vec<T>> {
    (0..list.len()).map(|place| [&list[..place], &list[place + 1..]].concat())
}
