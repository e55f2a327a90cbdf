//! Campaigns of real processes, against a provider outside of them that counts: whatever happens to
//! the processes, nobody is called twice, and nobody is forgotten.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]

mod answers;
mod clocks;
mod controls;
mod kills;
mod node;
mod points;
mod provider;
mod repeats;
mod valve;
mod world;
mod zombies;

fn text(bytes: &[u8]) -> &str {
    str::from_utf8(bytes).unwrap()
}
