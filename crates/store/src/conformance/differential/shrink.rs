//! Shrinks a sequence of operations that shows a difference, so that people can see its cause.

use super::{FirstDivergence, StoreOperation, compare_stores};
use crate::Commit;
use crate::conformance::StoreFactory;

/// Maximum number of shorter sequences that are tried.
const SHRINK_TRIES_MAX: usize = 1_000;

/// Removes operations, and parts of commits, as long as the answers still differ.
pub(super) async fn shrink_operations(
    subjects: &[&dyn StoreFactory],
    mut operations: Vec<StoreOperation>,
    found: FirstDivergence,
) -> (Vec<StoreOperation>, FirstDivergence) {
    operations.truncate(found.operations);
    let mut search = ShrinkSearch {
        subjects,
        operations,
        found,
        tries_left: SHRINK_TRIES_MAX,
    };
    let mut size = search.operations.len() / 2;
    while size > 0 {
        search.remove_operations(size).await;
        size /= 2;
    }
    search.remove_commit_parts().await;
    search.remove_operations(1).await;
    (search.operations, search.found)
}

struct ShrinkSearch<'a> {
    subjects: &'a [&'a dyn StoreFactory],
    operations: Vec<StoreOperation>,
    found: FirstDivergence,
    tries_left: usize,
}

impl ShrinkSearch<'_> {
    /// Replaces the sequence with `fewer` if the answers to it still differ.
    async fn try_candidate(&mut self, fewer: Vec<StoreOperation>) -> bool {
        if self.tries_left == 0 {
            return false;
        }
        self.tries_left -= 1;
        let Err(found) = compare_stores(self.subjects, &fewer).await else {
            return false;
        };
        self.operations = fewer;
        self.operations.truncate(found.operations);
        self.found = found;
        true
    }

    /// Tries to remove `size` operations at a time.
    async fn remove_operations(&mut self, size: usize) {
        let mut start = 0;
        while start < self.operations.len() {
            let end = self.operations.len().min(start + size);
            let fewer = [&self.operations[..start], &self.operations[end..]].concat();
            if !self.try_candidate(fewer).await {
                start = end;
            }
        }
    }

    /// Tries to remove one part of a commit at a time.
    async fn remove_commit_parts(&mut self) {
        let mut place = 0;
        while place < self.operations.len() {
            let mut is_smaller = false;
            for commit in smaller_commits(&self.operations[place]) {
                let mut fewer = self.operations.clone();
                fewer[place] = StoreOperation::Commit(commit);
                is_smaller = self.try_candidate(fewer).await;
                if is_smaller {
                    break;
                }
            }
            place += usize::from(!is_smaller);
        }
    }
}

/// Returns the commits that have one part less than this one.
fn smaller_commits(operation: &StoreOperation) -> Vec<Commit> {
    let StoreOperation::Commit(whole) = operation else {
        return Vec::new();
    };
    let mut all = Vec::new();
    let (fences, journals) = (
        lists_without_one(&whole.fences),
        lists_without_one(&whole.journals),
    );
    let (changes, moves, events) = (
        lists_without_one(&whole.changes),
        lists_without_one(&whole.reader_advances),
        lists_without_one(&whole.events),
    );
    all.extend(fences.map(|fences| Commit {
        fences,
        ..whole.clone()
    }));
    all.extend(journals.map(|journals| Commit {
        journals,
        ..whole.clone()
    }));
    all.extend(changes.map(|changes| Commit {
        changes,
        ..whole.clone()
    }));
    all.extend(moves.map(|moves| Commit {
        reader_advances: moves,
        ..whole.clone()
    }));
    all.extend(events.map(|events| Commit {
        events,
        ..whole.clone()
    }));
    all
}

/// Returns the lists that have one element less than this one.
fn lists_without_one<T: Clone>(list: &[T]) -> impl Iterator<Item = Vec<T>> {
    (0..list.len()).map(|place| [&list[..place], &list[place + 1..]].concat())
}
