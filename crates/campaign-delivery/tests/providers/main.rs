//! Tests of the providers through the dispatcher, from a campaign to the messages that a real
//! server receives.
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has failed")]

mod documents;
mod fixture;
mod folder;
mod http;
mod mail;
