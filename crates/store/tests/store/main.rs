//! The store's tests, one binary: the conformance suite on the store in memory, and on stores that
//! are wrong on purpose.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod flawed;
mod planted;
mod random;
mod suite;
