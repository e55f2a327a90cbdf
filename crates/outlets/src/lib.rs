//! How the campaigns of a node reach people: what their files say, by the providers that the node has.
//!
//! - [`House`]: the providers, by name; it tells the dispatcher how each campaign run reaches people, and whoever wants to
//!   deploy one whether it could.
//! - [`check_definition`]: whether a provider that a campaign defines can be used, without any server.
//! - `gate`: rate limits and quiet hours together.

mod provider_registry;
mod send_gate;

pub use provider_registry::{ProviderRegistry, check_inline_provider};
