//! The guest's view of its own operations. It depends only on the guest's requests, so it is the
//! same in the first run and in a replay: an invalid request is refused the same way both times,
//! and is not recorded.

use std::collections::{BTreeMap, BTreeSet};

/// The operations of an execution as its guest has seen them so far.
#[derive(Debug, Clone, Default)]
pub(crate) struct GuestOperations {
    operations: Vec<GuestOperation>,
    join_sets: BTreeMap<u32, GuestJoinSet>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GuestOperation {
    /// Random bytes or the time.
    Value,
    Invoke {
        is_submitted: bool,
    },
    Timer,
    Signal,
    JoinSet,
}

#[derive(Debug, Clone, Default)]
struct GuestJoinSet {
    /// The members whose result was not taken.
    remaining: BTreeSet<u32>,
    is_sealed: bool,
}

impl GuestOperations {
    /// Returns the number that the next operation will get.
    pub(crate) fn next_number(&self) -> u32 {
        u32::try_from(self.operations.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn begin_operation(&mut self, operation: GuestOperation) -> u32 {
        let number = self.next_number();
        if operation == GuestOperation::JoinSet {
            self.join_sets.insert(number, GuestJoinSet::default());
        }
        self.operations.push(operation);
        number
    }

    /// Returns the reason why these promises cannot be awaited; `None` if they can.
    pub(crate) fn await_rejection(&self, promises: &[u32]) -> Option<String> {
        if promises.is_empty() {
            return Some("there is nothing to wait for".to_owned());
        }
        let mut sorted = promises.to_vec();
        sorted.sort_unstable();
        if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Some(format!("promise {} is named twice", pair[0]));
        }
        promises
            .iter()
            .find_map(|number| match self.operations.get(*number as usize) {
                Some(GuestOperation::Invoke { .. } | GuestOperation::Timer) => None,
                Some(_) => Some(format!(
                    "operation {number} is neither an invocation nor a timer"
                )),
                None => Some(format!("promise {number} does not exist")),
            })
    }

    /// Returns the reason why the promise cannot be submitted to the join set; `None` if it can.
    pub(crate) fn submit_rejection(&self, set: u32, promise: u32) -> Option<String> {
        match (
            self.join_sets.get(&set),
            self.operations.get(promise as usize),
        ) {
            (None, _) => Some(format!("join set {set} does not exist")),
            (Some(set), _) if set.is_sealed => {
                Some("results were taken from the join set already".to_owned())
            }
            (
                _,
                Some(GuestOperation::Invoke {
                    is_submitted: false,
                }),
            ) => None,
            (_, Some(GuestOperation::Invoke { is_submitted: true })) => {
                Some(format!("promise {promise} is in a join set already"))
            }
            _ => Some(format!("operation {promise} is not an invocation")),
        }
    }

    pub(crate) fn submit_member(&mut self, set: u32, promise: u32) {
        if let Some(operation) = self.operations.get_mut(promise as usize) {
            *operation = GuestOperation::Invoke { is_submitted: true };
        }
        if let Some(set) = self.join_sets.get_mut(&set) {
            set.remaining.insert(promise);
        }
    }

    /// Returns the members of a join set whose result was not taken; `None` if there is no such
    /// set.
    pub(crate) fn remaining_members(&self, set: u32) -> Option<&BTreeSet<u32>> {
        self.join_sets.get(&set).map(|set| &set.remaining)
    }

    pub(crate) fn take_member(&mut self, set: u32, promise: u32) {
        if let Some(set) = self.join_sets.get_mut(&set) {
            set.is_sealed = true;
            set.remaining.remove(&promise);
        }
    }
}
