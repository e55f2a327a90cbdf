//! The store's tests, one binary: the conformance suite on the memory store, and on stores with a
//! deliberate bug.

#![expect(clippy::unwrap_used, reason = "a failed test reports its location")]

mod flawed;
mod planted;
mod random;
mod suite;
