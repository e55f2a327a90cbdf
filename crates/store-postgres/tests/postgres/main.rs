//! The store on real servers: schema, append-only, groups, races, lost connections and crashes.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test reports its location"
)]

mod append_only;
mod campaign_keys;
mod conformance;
mod contract;
mod faults;
mod groups;
mod inspect;
mod migrations;
mod notices;
mod opening;
mod proxy;
mod races;
mod sample;
mod schema;
mod scope_columns;
mod scratch;
mod server;
#[path = "../../../store-sqlite/tests/sqlite/statements.rs"]
mod statements;
