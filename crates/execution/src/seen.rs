//! What the guest knows of its own operations. It is the same in the first run and in a replay, because it follows from what
//! the guest asked for alone: so a request that makes no sense is refused the same way both times, and is not recorded.

use std::collections::{BTreeMap, BTreeSet};

/// The operations of an execution as its guest has seen them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    operations: Vec<Operation>,
    sets: BTreeMap<u32, Set>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Randomness or time.
    Value,
    Invoke {
        is_owned: bool,
    },
    Timer,
    Signal,
    JoinSet,
}

#[derive(Debug, Clone, Default)]
struct Set {
    /// Members whose result was not taken.
    remaining: BTreeSet<u32>,
    is_sealed: bool,
}

impl Seen {
    /// The number of the next operation.
    pub(crate) fn next(&self) -> u32 {
        u32::try_from(self.operations.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn begin(&mut self, operation: Operation) -> u32 {
        let number = self.next();
        if operation == Operation::JoinSet {
            self.sets.insert(number, Set::default());
        }
        self.operations.push(operation);
        number
    }

    /// Why these promises cannot be awaited.
    pub(crate) fn objection_to_await(&self, promises: &[u32]) -> Option<String> {
        if promises.is_empty() {
            return Some("there is nothing to wait for".to_owned());
        }
        let mut sorted = promises.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Some(format!("promise {} is named twice", pair[0]));
        }
        promises.iter().find_map(|number| match self.operations.get(*number as usize) {
            Some(Operation::Invoke { .. } | Operation::Timer) => None,
            Some(_) => Some(format!("operation {number} is neither an invocation nor a timer")),
            None => Some(format!("there is no promise {number}")),
        })
    }

    /// Why the promise cannot be put into the set.
    pub(crate) fn objection_to_submit(&self, set: u32, promise: u32) -> Option<String> {
        match (self.sets.get(&set), self.operations.get(promise as usize)) {
            (None, _) => Some(format!("there is no join set {set}")),
            (Some(set), _) if set.is_sealed => Some("results were taken from the join set already".to_owned()),
            (_, Some(Operation::Invoke { is_owned: false })) => None,
            (_, Some(Operation::Invoke { is_owned: true })) => {
                Some(format!("promise {promise} is in a join set already"))
            }
            _ => Some(format!("operation {promise} is not an invocation")),
        }
    }

    pub(crate) fn submit(&mut self, set: u32, promise: u32) {
        if let Some(operation) = self.operations.get_mut(promise as usize) {
            *operation = Operation::Invoke { is_owned: true };
        }
        if let Some(set) = self.sets.get_mut(&set) {
            set.remaining.insert(promise);
        }
    }

    /// The members of a set whose result was not taken; `None` if there is no such set.
    pub(crate) fn remaining(&self, set: u32) -> Option<&BTreeSet<u32>> {
        self.sets.get(&set).map(|set| &set.remaining)
    }

    pub(crate) fn take(&mut self, set: u32, promise: u32) {
        if let Some(set) = self.sets.get_mut(&set) {
            set.is_sealed = true;
            set.remaining.remove(&promise);
        }
    }
}
