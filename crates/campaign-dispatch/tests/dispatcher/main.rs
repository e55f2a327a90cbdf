//! Campaigns on a store in memory, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod backoff;
mod between;
mod cancelled_runs;
mod deploys;
mod doctor;
mod doubt_resolution;
mod doubts;
mod faults;
mod gates;
mod reached;
mod retries;
mod sends;
mod turns;
mod types;
mod unheard;
mod world;
