//! The journal's tests, one binary: worked examples, a breaker for every rule, an oracle,
//! properties, encodings.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failing step of a test panics where it fails"
)]
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests read fixtures and the pages of the specification"
)]

mod breakers;
mod codec;
mod command_awaits;
mod command_cancellation;
mod command_fixture;
mod command_join_sets;
mod commands;
mod exhaustive;
mod guest_script;
mod invariants_page;
mod jsonl;
mod live_host;
mod model;
mod model_record;
mod oracle;
mod properties;
mod replay;
mod replay_host;
mod replay_index;
mod rule_boundaries;
mod script;
mod violation_messages;
mod worked_examples;
