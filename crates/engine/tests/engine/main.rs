//! The engine, driven in virtual time.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod foreign;
mod loops;
mod projector;
mod script;
mod verify;
