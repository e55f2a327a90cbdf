//! `onward doctor`: is any work stuck.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::finding::{Class, Finding, Heard, Verdict};

use crate::access::{PlaceArgs, Want};
use crate::paint::{self, counted};
use crate::progress::Progress;

/// Check that no work is stuck: what every execution and campaign run of the store waits for exists, and something wakes it
///
/// Reads every execution and every campaign run of every tenant, and changes nothing. Processes may work on the store meanwhile.
///
/// Findings are wrong (an invariant does not hold) or need attention (somebody was alerted, and nothing has happened since; or only somebody can say what became of items in doubt).
/// Warnings (work that is late because nobody works on it) do not count.
///
/// Exit codes: 0 no work is stuck, 1 there are findings, and they were printed, 2 the command could not be carried out.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// Print one JSON object a finding and one at the end
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.place.open(Want::Read).await?;
    let mut progress = Progress::new(!args.json);
    let mut written = Ok(());
    let mut hear = |heard| match heard {
        Heard::Found(found) if written.is_ok() => written = tell(args, &found),
        Heard::Found(_) => {}
        Heard::Looked { executions, events } => progress.at(executions, || line(executions, events)),
    };
    let verdict = onward.doctor(&mut hear).await?;
    drop(progress);
    written?;
    if args.json {
        writeln!(io::stdout(), "{}", serde_json::to_string(&verdict)?)?;
    } else {
        let Verdict { ok, executions, events, messages, campaign_runs, items, findings, warnings } = verdict;
        let word = if ok { paint::good("no work is stuck").to_string() } else { paint::error("wrong").to_string() };
        let seen = format!("{} with {}", counted(executions, "execution"), counted(events, "event"));
        let campaigns = format!("{} with {}", counted(campaign_runs, "campaign run"), counted(items, "item"));
        let (findings, warnings) = (counted(findings, "finding"), counted(warnings, "warning"));
        let messages = counted(messages, "message");
        paint::say(format_args!("{word}: {seen}, {messages}, {campaigns}, {findings}, {warnings}"));
    }
    Ok(ExitCode::from(u8::from(!verdict.ok)))
}

fn tell(args: &Args, found: &Finding) -> io::Result<()> {
    if args.json {
        return writeln!(io::stdout(), "{}", serde_json::to_string(found)?);
    }
    let mark = if found.class == Class::Warning { "warning: " } else { "" };
    writeln!(io::stdout(), "{mark}{found}")
}

/// How far it is.
fn line(executions: u64, events: u64) -> String {
    format!("{executions} executions, {events} events")
}
