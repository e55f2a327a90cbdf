//! Mutation testing of the journal: a change that no test notices is a test that is missing.
//!
//! Too slow for every check, so it is a command of its own and no step.

use anyhow::Result;

use crate::command::ToolCommand;
use crate::run::XtaskRun;
use crate::tools::{CARGO_MUTANTS, Tool};

pub(crate) static TOOLS: &[&Tool] = &[&CARGO_MUTANTS];

pub(crate) fn mutate(run: &XtaskRun, extra: &[String]) -> Result<()> {
    const ARGS: [&str; 3] = ["mutants", "--package", "onward-journal"];
    let args = ARGS.into_iter().chain(extra.iter().map(String::as_str));
    ToolCommand::new(run, "cargo", args).shown()
}
