//! `onward journal replay`: checks that code repeats what a journal records.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use onward_api::execution::ExecutionView as Shown;
use onward_api::waits::{ExecutionWait, ExecutionWaits};
use onward_diagnostics::replay::{ReplayEnd, ReplayOutcome, replay_journal};
use onward_embed::WasmComponentRuntime;
use onward_engine::node::ComponentRuntime as _;
use onward_engine::shard::GuestEntry;
use onward_journal::{ComponentDigest, ExecutionId, ExecutionState, Journal};
use onward_store::ShardId;
use onward_store::tables::ExecutionRow;
use serde::Serialize;
use tokio::time::Instant;

use crate::connection::{AccessMode, ScopedConnectionArgs};
use crate::execution::ExecutionArg;
use crate::{console, journal_reader};

/// Replay the workflow of an execution against its journal and report the first divergence
///
/// Stores nothing and performs no tasks. Code that continues beyond the end of the journal does not
/// diverge: an execution that has not ended may be about to record the same.
///
/// Exit codes: 0 the code repeats the journal, 1 it diverges, 2 the replay failed.
#[derive(clap::Args)]
pub(crate) struct JournalReplayArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    execution: ExecutionArg,
    /// Replay with this component, a .wasm file [default: the component that the execution is
    /// pinned to]
    #[arg(long, value_name = "FILE")]
    component: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct JournalReplayReport {
    execution: String,
    component: String,
    events: usize,
    elapsed_ms: u128,
    #[serde(flatten)]
    outcome: ReplayOutcome,
}

pub(crate) async fn run_journal_replay(args: &JournalReplayArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let shown = onward.get_execution(&args.execution.id).await?;
    let id: ExecutionId = shown.execution.parse()?;
    let journal = Journal::recover(
        id,
        journal_reader::read_journal_events(&*onward, id, 0, 0).await?,
    )
    .with_context(|| format!("invalid journal of execution {id}"))?;
    let code = match &args.component {
        Some(file) => {
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?
        }
        None => onward.get_execution_component(&shown.execution).await?,
    };
    let row = build_execution_row(&shown, &code)?;
    let wasm = load_workflow(&code, &row).await?;
    let entry = GuestEntry::from_journal(&row, &journal).with_context(|| {
        format!("the journal of execution {id} does not start with ExecutionStarted")
    })?;
    let mut guest = wasm.create_guest(&entry)?;
    let started = Instant::now();
    let outcome = replay_journal(&journal, &mut *guest)?;
    let report = JournalReplayReport {
        execution: shown.execution,
        component: row.component_digest.to_string(),
        events: journal.events().len(),
        elapsed_ms: started.elapsed().as_millis(),
        outcome,
    };
    if args.json {
        writeln!(
            console::json_output(),
            "{}",
            serde_json::to_string(&report)?
        )?;
    } else {
        print_replay_report(&report, &journal);
    }
    Ok(ExitCode::from(u8::from(matches!(
        report.outcome,
        ReplayOutcome::Diverges { .. }
    ))))
}

/// Builds a row of the execution with the fields that the runtime reads.
fn build_execution_row(shown: &Shown, code: &[u8]) -> anyhow::Result<ExecutionRow> {
    let created_at = shown.created_at.parse()?;
    Ok(ExecutionRow {
        execution_id: shown.execution.parse()?,
        tenant_id: "default".parse()?,
        project_id: "default".parse()?,
        environment_id: "default".parse()?,
        shard: ShardId(0),
        function: shown.function.as_str().into(),
        component_digest: ComponentDigest::from_component(code),
        start_key: None,
        state: ExecutionState::parse(shown.state.as_str()).context("unknown execution state")?,
        wake_at: created_at,
        created_at,
        body: [].into(),
    })
}

/// Loads the component into a new runtime. Fails if it does not contain the workflow.
async fn load_workflow(code: &[u8], row: &ExecutionRow) -> anyhow::Result<WasmComponentRuntime> {
    let wasm = WasmComponentRuntime::with_defaults()?;
    let functions = wasm
        .load_component(code)
        .await
        .map_err(|reason| anyhow::anyhow!("cannot load the component: {reason}"))?;
    let is_workflow = |name: &str, kind| {
        name == &*row.function && kind == onward_embed::GuestFunctionKind::Workflow
    };
    if !functions
        .iter()
        .any(|function| is_workflow(&function.name, function.kind))
    {
        bail!("workflow {} not found in the component", row.function);
    }
    Ok(wasm)
}

fn print_replay_report(report: &JournalReplayReport, journal: &Journal) {
    let events = console::format_count(report.events as u64, "event");
    match &report.outcome {
        ReplayOutcome::Repeats { end } => {
            let end = match end {
                ReplayEnd::Over => "ended".to_owned(),
                ReplayEnd::NotBegun => "ended: cancelled before its code ran".to_owned(),
                ReplayEnd::Waits(waits) => format_waits(waits, journal),
                ReplayEnd::Beyond { requested } => {
                    format!("continues beyond the journal with {requested}")
                }
            };
            let result = console::style_success("repeats");
            console::print_message(format_args!(
                "{result}: {events} in {} ms, {end}",
                report.elapsed_ms
            ));
        }
        ReplayOutcome::Diverges {
            sequence,
            recorded,
            requested,
        } => {
            console::print_message(format_args!(
                "{}: at event {sequence} of {events}",
                console::style_error("diverges")
            ));
            let escape = |text: &String| console::escape_control_chars(text);
            console::print_message(format_args!("  recorded:  {}", escape(recorded)));
            console::print_message(format_args!("  requested: {}", escape(requested)));
        }
    }
}

/// Formats the state after the last event and what the execution waits for.
fn format_waits(waits: &ExecutionWaits, journal: &Journal) -> String {
    let names: Vec<String> = waits
        .waits_for
        .iter()
        .take(4)
        .map(ExecutionWait::target_name)
        .collect();
    let state = journal
        .execution_state()
        .map(|state| console::apply_style(console::state_style(state), state).to_string());
    format!(
        "{}, waits for {}",
        state.unwrap_or_default(),
        names.join(" and ")
    )
}
