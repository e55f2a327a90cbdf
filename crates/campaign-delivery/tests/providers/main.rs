//! Those who really send, from a campaign to what arrives: through the dispatcher, to real servers.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod documents;
mod folder;
mod http;
mod mail;
mod world;
