//! The engine, driven in virtual time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says where")]

mod foreign;
mod loops;
mod node;
mod projector;
mod script;
mod verify;
