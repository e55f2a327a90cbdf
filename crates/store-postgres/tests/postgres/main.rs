//! The store on real servers: schema, append-only, groups, races, lost connections and crashes.

mod append_only;
mod conformance;
mod faults;
mod groups;
mod migrations;
mod opening;
mod proxy;
mod races;
mod sample;
mod schema;
mod server;
