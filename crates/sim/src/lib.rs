//! Deterministic simulation of the shard core and of campaigns: virtual time, an in-memory store,
//! and every kind of failure, by seed.
//!
//! A seed decides everything: which pending operation completes next, what fails, and when a node
//! crashes or is paused and then continues as if nothing had happened. The same seed produces the
//! same history, so a failing seed is a test.

pub mod campaigns;
mod client;
mod client_actions;
mod drain;
mod driver;
mod failure;
mod invariants;
mod node_operations;
mod ready_future;
mod scripts;
mod workers;

pub use driver::{ShardSimulation, SimFaults, SimReport};
pub use failure::SimFailure;
