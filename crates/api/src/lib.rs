//! The wire types of the Onward HTTP API: one type for each request and response document, and,
//! with the feature `client`, an HTTP client.
//!
//! The command line prints the same documents, whether it sends requests to a server or reads a
//! store directly.

pub mod campaign;
#[cfg(feature = "client")]
pub mod client;
pub mod component;
mod display_text;
pub mod execution;
pub mod explanation;
pub mod finding;
mod json;
mod operations;
pub mod outbox;
pub mod problem;
pub mod run;
pub mod task;
pub mod token;
pub mod waits;

pub use campaign::CampaignApi;
pub use display_text::{DisplayText, format_elapsed, format_relative_time};
pub use json::RawJson;
pub use operations::{OnwardApi, parse_json};
