//! The engine in one process, on real stores with real components: crashes, HTTP requests, and
//! native tasks.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step of a test panics where it fails"
)]

mod account;
mod faults;
mod http;
mod library;
mod matrix;
mod scenario;
mod world;
