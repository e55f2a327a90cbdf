//! Mutation testing of the journal: a change that no test notices is a test that is missing.
//!
//! Too slow for every check, so it is a command of its own and no step.

use anyhow::Result;

use crate::command::Call;
use crate::run::Run;
use crate::tools::{CARGO_MUTANTS, Tool};

pub(crate) static TOOLS: &[&Tool] = &[&CARGO_MUTANTS];

pub(crate) fn mutate(run: &Run, extra: &[String]) -> Result<()> {
    const ARGS: [&str; 3] = ["mutants", "--package", "onward-journal"];
    let args = ARGS.into_iter().chain(extra.iter().map(String::as_str));
    Call::new(run, "cargo", args).shown()
}
