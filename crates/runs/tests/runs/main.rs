//! The tests of runs, one binary: the contract in JSON, golden keys, worked dialogues, properties,
//! permutations.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
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
