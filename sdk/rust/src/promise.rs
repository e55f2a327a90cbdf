//! Operations in flight, and waits for them.

use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::clock::timer;
use crate::host::{self, Outcome};
use crate::payload::decode;
use crate::{Error, Json, Result};

/// An operation in flight with a result of type `T`. It continues whether or not the workflow waits
/// for it.
pub struct Promise<T> {
    id: u32,
    output: PhantomData<fn() -> T>,
}

/// A promise without a result type, to wait for promises of several types.
pub type AnyPromise = Promise<Json>;

impl<T> Clone for Promise<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Promise<T> {}

impl<T: DeserializeOwned> Promise<T> {
    pub(crate) fn new(id: u32) -> Self {
        Self {
            id,
            output: PhantomData,
        }
    }

    pub(crate) fn id(self) -> u32 {
        self.id
    }

    /// Waits for the result.
    pub fn wait(self) -> Result<T> {
        decode_outcome(host::await_one(self.id))
    }

    /// Waits for the result with a timeout; returns `None` if the timeout expires first. The
    /// operation continues.
    pub fn wait_timeout(self, limit: Duration) -> Result<Option<T>> {
        match race(self, timer(limit)?)? {
            RaceResult::Left(done) => done.map(Some),
            RaceResult::Right(over) => over.map(|()| None),
        }
    }

    /// Returns the promise without its type.
    pub fn untyped(self) -> AnyPromise {
        Promise::new(self.id)
    }
}

/// The first of two promises to complete, with its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RaceResult<A, B> {
    /// The first argument.
    Left(Result<A, Error>),
    /// The second argument.
    Right(Result<B, Error>),
}

/// Waits for the first of two promises to complete.
pub fn race<A: DeserializeOwned, B: DeserializeOwned>(
    left: Promise<A>,
    right: Promise<B>,
) -> Result<RaceResult<A, B>> {
    let (index, outcome) = host::await_any(&[left.id, right.id])?;
    Ok(if index == 0 {
        RaceResult::Left(decode_outcome(outcome))
    } else {
        RaceResult::Right(decode_outcome(outcome))
    })
}

/// Waits for the first of several promises to complete. Returns its index and its result.
pub fn any<T: DeserializeOwned>(promises: &[Promise<T>]) -> Result<(usize, Result<T>)> {
    let (index, outcome) = host::await_any(&promise_ids(promises))?;
    Ok((index as usize, decode_outcome(outcome)))
}

/// Waits for all promises. Fails with the first failure in the order of the list.
pub fn all<T: DeserializeOwned>(promises: &[Promise<T>]) -> Result<Vec<T>> {
    all_settled(promises)?.into_iter().collect()
}

/// Waits for all promises and returns the result of each.
pub fn all_settled<T: DeserializeOwned>(promises: &[Promise<T>]) -> Result<Vec<Result<T>>> {
    if promises.is_empty() {
        return Ok(Vec::new());
    }
    Ok(host::await_all(&promise_ids(promises))?
        .into_iter()
        .map(decode_outcome)
        .collect())
}

fn promise_ids<T>(promises: &[Promise<T>]) -> Vec<u32> {
    promises.iter().map(|promise| promise.id).collect()
}

pub(crate) fn decode_outcome<T: DeserializeOwned>(outcome: Outcome) -> Result<T> {
    decode(&outcome?)
}
