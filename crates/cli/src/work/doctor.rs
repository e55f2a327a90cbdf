//! `onward doctor`: is any work stuck.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_engine::doctor::{self, Class, Finding, Tally};
use serde::Serialize;

use crate::paint::{self, counted};
use crate::progress::Progress;
use crate::store::StoreArgs;

/// Check that no work is stuck: what every execution of the store waits for exists, and something wakes it
///
/// Reads every execution of every tenant, and changes nothing. Processes may work on the store meanwhile.
///
/// Findings are wrong (an invariant does not hold) or need attention (somebody was alerted, and nothing has happened since).
/// Warnings (work that is late because nobody works on it) do not count.
///
/// Exit codes: 0 no work is stuck, 1 there are findings, and they were printed, 2 the command could not be carried out.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    store: StoreArgs,
    /// Print one JSON object a finding and one at the end
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Verdict {
    ok: bool,
    executions: u64,
    events: u64,
    messages: u64,
    findings: u64,
    warnings: u64,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let store = args.store.open_existing().await?;
    let (mut findings, mut warnings) = (0_u64, 0_u64);
    let mut progress = Progress::new(!args.json);
    let mut report = |found: &Finding| -> io::Result<()> {
        *(if found.class == Class::Warning { &mut warnings } else { &mut findings }) += 1;
        if args.json {
            writeln!(io::stdout(), "{}", serde_json::to_string(found)?)
        } else {
            let mark = if found.class == Class::Warning { "warning: " } else { "" };
            writeln!(io::stdout(), "{mark}{found}")
        }
    };
    let tally = doctor::all(&*store, &mut report, |tally| progress.at(tally.executions, || line(tally))).await?;
    drop(progress);
    let Tally { executions, events, messages } = tally;
    let ok = findings == 0;
    if args.json {
        let verdict = Verdict { ok, executions, events, messages, findings, warnings };
        writeln!(io::stdout(), "{}", serde_json::to_string(&verdict)?)?;
    } else {
        let word = if ok { paint::good("no work is stuck").to_string() } else { paint::error("wrong").to_string() };
        let seen = format!("{} with {}", counted(executions, "execution"), counted(events, "event"));
        let (findings, warnings) = (counted(findings, "finding"), counted(warnings, "warning"));
        paint::say(format_args!("{word}: {seen}, {}, {findings}, {warnings}", counted(messages, "message")));
    }
    Ok(ExitCode::from(u8::from(!ok)))
}

/// How far it is.
fn line(tally: Tally) -> String {
    format!("{} executions, {} events", tally.executions, tally.events)
}
