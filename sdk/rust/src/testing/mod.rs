//! Tests of workflows without WASM and without a server: see [`TestEnv`].

mod attempt;
mod env;
mod execution;
mod limits;
mod perform;
pub(crate) mod protocol;
pub(crate) mod scope;
mod state;
mod world;

pub use crate::testing::env::TestEnv;
