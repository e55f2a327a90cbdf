//! Join sets: concurrent operations whose results are taken in the order of completion.

use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::Result;
use crate::call::{Call, call};
use crate::callable::{Callable, InputOf};
use crate::function::Function;
use crate::host::{self, milliseconds};
use crate::payload::CallArgument;
use crate::promise::{Promise, decode_outcome};

/// Creates a join set for operations with results of type `T`.
pub fn join_set<T: DeserializeOwned>() -> Result<JoinSet<T>> {
    Ok(JoinSet {
        id: host::new_join_set()?,
        members: Vec::new(),
        taken: 0,
    })
}

/// A set of concurrent operations. Operations still in flight when the set is dropped are
/// cancelled.
///
/// ```
/// # use onward::prelude::*;
/// # #[task] fn step(n: u64) -> Result<u64> { Ok(n) }
/// # #[workflow]
/// # fn example() -> Result<u64> {
/// let mut set = join_set()?;
/// for n in 0..10 {
///     set.submit(step, n)?;
/// }
/// let mut sum = 0;
/// while let Some(done) = set.next()? {
///     sum += done.result?;
/// }
/// # Ok(sum)
/// # }
/// ```
pub struct JoinSet<T: DeserializeOwned> {
    id: u32,
    members: Vec<Promise<T>>,
    taken: usize,
}

/// A result of a join set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinResult<T> {
    /// Index of the operation; 0 was submitted first.
    pub index: usize,
    /// Result of the operation.
    pub result: Result<T>,
}

/// Result of waiting for a join set with a timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NextResult<T> {
    /// The next result.
    Done(JoinResult<T>),
    /// The timeout expired.
    TimedOut,
    /// All results were taken.
    Empty,
}

impl<T: DeserializeOwned> JoinSet<T> {
    /// Calls a function as a member of the set. Fails after the first result was taken.
    pub fn submit<F, A>(
        &mut self,
        function: F,
        input: impl CallArgument<InputOf<F, A>>,
    ) -> Result<Promise<T>>
    where
        F: Callable<A, Function: Function<Output = T>>,
    {
        self.submit_call(call(function, input))
    }

    /// Makes a call with policies as a member of the set.
    pub fn submit_call(&mut self, call: Call<T>) -> Result<Promise<T>> {
        let promise = call.schedule()?;
        self.add(promise)?;
        Ok(promise)
    }

    /// Adds an operation in flight to the set.
    pub fn add(&mut self, promise: Promise<T>) -> Result<()> {
        host::submit(self.id, promise.id())?;
        self.members.push(promise);
        Ok(())
    }

    /// Number of results that were not taken yet.
    pub fn len(&self) -> usize {
        self.members.len() - self.taken
    }

    /// Whether all results were taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits for the next result; returns `None` when all were taken.
    #[expect(
        clippy::should_implement_trait,
        reason = "taking can fail without ending the iteration"
    )]
    pub fn next(&mut self) -> Result<Option<JoinResult<T>>> {
        Ok(match self.take_next(None)? {
            NextResult::Done(done) => Some(done),
            NextResult::TimedOut | NextResult::Empty => None,
        })
    }

    /// Waits for the next result with a timeout.
    pub fn next_timeout(&mut self, limit: Duration) -> Result<NextResult<T>> {
        self.take_next(Some(milliseconds(limit)))
    }

    /// Waits for all results that were not taken, in the order of completion. Fails with the first
    /// failure, and cancels the operations still in flight.
    pub fn join_all(mut self) -> Result<Vec<T>> {
        let mut all = Vec::with_capacity(self.len());
        while let Some(done) = self.next()? {
            all.push(done.result?);
        }
        Ok(all)
    }

    /// Cancels the operations still in flight.
    pub fn close(mut self) -> Result<()> {
        self.taken = self.members.len();
        host::close(self.id)
    }

    fn take_next(&mut self, timeout_ms: Option<u64>) -> Result<NextResult<T>> {
        Ok(match host::next(self.id, timeout_ms)? {
            host::NextOutcome::Done(promise, outcome) => {
                self.taken += 1;
                let index = self
                    .members
                    .iter()
                    .position(|member| member.id() == promise)
                    .unwrap_or_default();
                NextResult::Done(JoinResult {
                    index,
                    result: decode_outcome(outcome),
                })
            }
            host::NextOutcome::TimedOut => NextResult::TimedOut,
            host::NextOutcome::Empty => NextResult::Empty,
        })
    }
}

impl<T: DeserializeOwned> Drop for JoinSet<T> {
    fn drop(&mut self) {
        // If the workflow unwinds, the host cleans up.
        if !self.is_empty() && !std::thread::panicking() {
            // An error changes nothing: the workflow continues without these results.
            let _ = host::close(self.id);
        }
    }
}
