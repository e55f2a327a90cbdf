//! The tests of runs, one binary: the contract in JSON, golden keys, worked dialogues, properties,
//! permutations.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step of a test panics where it fails"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "tests read fixtures and the pages of the specification"
)]

mod contract;
mod dialogues;
mod hostile;
mod keys;
mod page;
mod permutations;
mod properties;
mod reducer;
mod script;
