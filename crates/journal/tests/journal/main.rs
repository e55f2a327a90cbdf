//! The journal's tests, one binary: worked examples, a breaker for every rule, a second judge, properties, encodings.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on says where"
)]
#![expect(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "tests read fixtures and the pages of the specification"
)]

mod breakers;
mod codec;
mod commands;
mod exhaustive;
mod invariants_page;
mod jsonl;
mod model;
mod oracle;
mod properties;
mod replay;
mod script;
mod worked_examples;
