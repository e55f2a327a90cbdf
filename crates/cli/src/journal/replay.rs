//! `onward journal replay`: does code repeat what a journal records.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use onward_embed::Wasm;
use onward_engine::client::{Client, FunctionKind};
use onward_engine::node::Code as _;
use onward_engine::replay::{End, Verdict, replay};
use onward_engine::shard::Entry;
use onward_engine::{Shown, waits};
use onward_journal::{ComponentDigest, ExecutionId, Journal};
use onward_store::tables::{Component, Execution};
use onward_store::{Field as _, Key, Records as _};
use serde::Serialize;
use tokio::time::Instant;

use crate::paint;
use crate::work::{ExecutionArg, WorkArgs};

/// Run the workflow of an execution against its journal, and report the first thing it does otherwise
///
/// Nothing is stored and nothing is performed. Code that goes on where the journal ends does not diverge: the journal of an
/// execution that is not over may be about to go on there.
///
/// Exit codes: 0 the code repeats what is recorded, 1 it does something else, 2 it could not be tried.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Try this component, a .wasm file, instead of the one that the execution is pinned to
    #[arg(long, value_name = "FILE")]
    component: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report {
    execution: Shown<ExecutionId>,
    component: Shown<ComponentDigest>,
    events: usize,
    elapsed_ms: u128,
    #[serde(flatten)]
    verdict: Verdict,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let client = args.work.existing().await?;
    let row = args.execution.find(&client).await?;
    let id = row.execution_id;
    let journal = Journal::recover(id, client.journal(id).await?).context("its journal is not valid")?;
    let code = code(args, &client, &row).await?;
    let row = Execution { component_digest: ComponentDigest::of(&code), ..row };
    let wasm = ready(&code, &row).await?;
    let entry = Entry::of(&row, &journal).context("its journal does not begin with its start")?;
    let mut guest = wasm.guest(&entry)?;
    let begun = Instant::now();
    let verdict = replay(&journal, &mut *guest)?;
    let report = Report {
        execution: Shown(id),
        component: Shown(row.component_digest),
        events: journal.events().len(),
        elapsed_ms: begun.elapsed().as_millis(),
        verdict,
    };
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&report)?)?;
    } else {
        tell(&report, &journal);
    }
    Ok(ExitCode::from(u8::from(matches!(report.verdict, Verdict::Diverges { .. }))))
}

/// The code to try.
async fn code(args: &Args, client: &Client, row: &Execution) -> anyhow::Result<Vec<u8>> {
    if let Some(file) = &args.component {
        return std::fs::read(file).with_context(|| format!("cannot read {}", file.display()));
    }
    let digest = row.component_digest;
    let stored: Option<(Component, u64)> = client.store().get(Key(vec![digest.to_value()])).await?;
    let (component, _) = stored.with_context(|| format!("component {digest} is not in the store"))?;
    Ok(component.code.to_vec())
}

/// A runtime that has the component, if that has the workflow.
async fn ready(code: &[u8], row: &Execution) -> anyhow::Result<Wasm> {
    let wasm = Wasm::usual()?;
    let functions = wasm.load(code).await.map_err(|reason| anyhow::anyhow!("the component cannot be run: {reason}"))?;
    let is_it = |name: &str, kind| name == &*row.function && kind == FunctionKind::Workflow;
    if !functions.iter().any(|function| is_it(&function.name, function.kind)) {
        bail!("the component has no workflow {}", row.function);
    }
    Ok(wasm)
}

fn tell(report: &Report, journal: &Journal) {
    let events = paint::counted(report.events as u64, "event");
    match &report.verdict {
        Verdict::Repeats { end } => {
            let end = match end {
                End::Over => "over".to_owned(),
                End::NotBegun => "over: it was cancelled before its code ran".to_owned(),
                End::Waits(waits) => in_words(waits, journal),
                End::Beyond { asked } => format!("goes on beyond the journal with {asked}"),
            };
            let word = paint::good("repeats");
            paint::say(format_args!("{word}: {events} in {} ms, {end}", report.elapsed_ms));
        }
        Verdict::Diverges { sequence, recorded, asked } => {
            paint::say(format_args!("{}: at event {sequence} of {events}", paint::error("diverges")));
            paint::say(format_args!("  recorded: {recorded}"));
            paint::say(format_args!("  asked:    {asked}"));
        }
    }
}

/// At what it stands, as of its last event.
fn in_words(waits: &waits::Waits, journal: &Journal) -> String {
    let names: Vec<String> = waits.waits_for.iter().take(4).map(waits::Waiting::name).collect();
    let state = journal.state().map(|state| paint::styled(paint::of_state(state), state).to_string());
    format!("{}, waits for {}", state.unwrap_or_default(), names.join(" and "))
}
