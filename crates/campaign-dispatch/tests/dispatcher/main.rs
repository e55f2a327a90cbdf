//! Tests of the dispatcher on an in-memory store, in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot continue panics")]

mod backoff;
mod cancelled_runs;
mod corrupt_rows;
mod crashes;
mod deploys;
mod doctor;
mod doubt_resolution;
mod fairness;
mod faulty_store;
mod gates;
mod in_doubt;
mod late_answers;
mod repeated_deployments;
mod retries;
mod sends;
mod stored_answers;
mod types;
mod unknown_commits;
mod unreachable_provider;
mod world;
