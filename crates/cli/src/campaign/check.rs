//! `onward campaign check`: whether a campaign can be deployed.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use onward_api::campaign::Prerequisite;
use onward_campaign::ProviderRef;
use onward_campaign::audience::Report;
use serde::Serialize;

use super::file::{Campaigned, Looked};
use crate::access::{Want, WorkArgs};
use crate::paint;

/// Check a campaign: its file, its templates, and every row of its audience
///
/// With --server, also whether that server has the provider and its secrets. Nothing is stored or sent.
///
/// Exit codes: 0 it can be deployed, 1 it cannot, 2 it could not be checked, because the file is not one of a campaign or the audience cannot be read.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    /// The campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Told {
    pass: bool,
    prerequisites: Vec<Prerequisite>,
    audience: Report,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = Campaigned::load(&args.file)?;
    let Looked { mut prerequisites, report, .. } = file.look()?;
    if args.work.is_said() {
        let there = args.work.open(Want::Read).await?.check_campaign(file.document()?).await?;
        add(&mut prerequisites, there.prerequisites);
    }
    let pass = prerequisites.iter().all(|it| it.pass);
    if args.json {
        let told = Told { pass, prerequisites, audience: report };
        writeln!(io::stdout(), "{}", serde_json::to_string(&told)?)?;
    } else {
        print(&prerequisites, &report)?;
        if !args.work.is_said() && matches!(file.campaign.provider, ProviderRef::Named(_)) {
            paint::say("whether there is such a provider is not known: --server asks one");
        }
    }
    Ok(ExitCode::from(u8::from(!pass)))
}

/// Adds what somebody else has looked at and we have not.
pub(super) fn add(prerequisites: &mut Vec<Prerequisite>, others: Vec<Prerequisite>) {
    for other in others {
        if !prerequisites.iter().any(|it| it.id == other.id) {
            prerequisites.push(other);
        }
    }
}

/// What was looked at, one a line, and the first rows that cannot be used.
pub(super) fn print(prerequisites: &[Prerequisite], report: &Report) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for Prerequisite { id, pass, message } in prerequisites {
        let mark = if *pass { paint::good("ok  ").to_string() } else { paint::error("FAIL").to_string() };
        writeln!(out, "{mark}  {id:<19}  {}", paint::plain(message))?;
    }
    for row in &report.samples {
        writeln!(out, "      line {}: {}: {}", row.line, paint::plain(&row.reason), paint::plain(&row.sample))?;
    }
    let more = report.bad.saturating_sub(report.samples.len() as u64);
    if more > 0 {
        writeln!(out, "      and {more} more")?;
    }
    Ok(())
}
