//! Campaigns sent by real server processes to a provider that records its calls: whatever happens
//! to the processes, each recipient is reached exactly once.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that fails reports where"
)]

mod clock_skew;
mod database_proxy;
mod harness;
mod kill_points;
mod process_kills;
mod provider_responses;
mod recording_provider;
mod repeated_deployments;
mod run_controls;
mod server_process;
mod stalled_processes;

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}
