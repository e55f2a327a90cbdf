//! `onward journal replay`: does code repeat what a journal records.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use onward_api::component::FunctionKind;
use onward_api::execution::Execution as Shown;
use onward_api::waits::{Waiting, Waits};
use onward_embed::Wasm;
use onward_engine::node::Code as _;
use onward_engine::replay::{End, Verdict, replay};
use onward_engine::shard::Entry;
use onward_journal::{ComponentDigest, ExecutionId, Journal};
use onward_store::Shard;
use onward_store::tables::Execution;
use serde::Serialize;
use tokio::time::Instant;

use crate::access::{Want, WorkArgs};
use crate::work::ExecutionArg;
use crate::{events, paint};

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
    execution: String,
    component: String,
    events: usize,
    elapsed_ms: u128,
    #[serde(flatten)]
    verdict: Verdict,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    let shown = onward.execution(&args.execution.id).await?;
    let id: ExecutionId = shown.execution.parse()?;
    let journal = Journal::recover(id, events::of(&*onward, id, 0, 0).await?).context("its journal is not valid")?;
    let code = match &args.component {
        Some(file) => std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?,
        None => onward.component(&shown.execution).await?,
    };
    let row = row(&shown, &code)?;
    let wasm = ready(&code, &row).await?;
    let entry = Entry::of(&row, &journal).context("its journal does not begin with its start")?;
    let mut guest = wasm.guest(&entry)?;
    let begun = Instant::now();
    let verdict = replay(&journal, &mut *guest)?;
    let report = Report {
        execution: shown.execution,
        component: row.component_digest.to_string(),
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

/// As much of its row as whoever runs it looks at.
fn row(shown: &Shown, code: &[u8]) -> anyhow::Result<Execution> {
    let created_at = shown.created_at.parse()?;
    Ok(Execution {
        execution_id: shown.execution.parse()?,
        tenant_id: "default".parse()?,
        project_id: "default".parse()?,
        environment_id: "default".parse()?,
        shard: Shard(0),
        function: shown.function.as_str().into(),
        component_digest: ComponentDigest::of(code),
        start_key: None,
        state: shown.state.as_str().into(),
        wake_at: created_at,
        created_at,
        body: [].into(),
    })
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
fn in_words(waits: &Waits, journal: &Journal) -> String {
    let names: Vec<String> = waits.waits_for.iter().take(4).map(Waiting::name).collect();
    let state = journal.state().map(|state| paint::styled(paint::of_state(state), state).to_string());
    format!("{}, waits for {}", state.unwrap_or_default(), names.join(" and "))
}
