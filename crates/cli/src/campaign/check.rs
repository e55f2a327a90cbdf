//! `onward campaign check`: whether a campaign can be deployed.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
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
    /// Write every row that cannot be used to a file, one JSON object a line: its line, the reason, and how it begins
    #[arg(long, value_name = "FILE")]
    bad_rows: Option<PathBuf>,
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
    let Looked { mut prerequisites, report, .. } = match &args.bad_rows {
        Some(to) => look(&file, to)?,
        None => file.look()?,
    };
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
        match &args.bad_rows {
            Some(to) => {
                let rows = paint::counted(report.bad, "bad row");
                paint::say(format_args!("{rows} written to {}", to.display()));
            }
            None if unshown(&report) > 0 => paint::say("--bad-rows FILE writes all of them to a file"),
            None => {}
        }
        if !args.work.is_said() && matches!(file.campaign.provider, ProviderRef::Named(_)) {
            paint::say("whether there is such a provider is not known: --server asks one");
        }
    }
    Ok(ExitCode::from(u8::from(!pass)))
}

/// Looks at a campaign, and writes the rows that cannot be used to a file as they are found.
fn look(file: &Campaigned, to: &Path) -> anyhow::Result<Looked> {
    let cannot = || format!("cannot write {}", to.display());
    let mut out = BufWriter::new(File::create(to).with_context(cannot)?);
    let looked = file.look_and_tell(|row| {
        serde_json::to_writer(&mut out, row).with_context(cannot)?;
        out.write_all(b"\n").with_context(cannot)
    })?;
    out.flush().with_context(cannot)?;
    Ok(looked)
}

/// Bad rows that are counted, and not shown.
fn unshown(report: &Report) -> u64 {
    report.bad.saturating_sub(report.samples.len() as u64)
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
    let more = unshown(report);
    if more > 0 {
        writeln!(out, "      and {more} more")?;
    }
    Ok(())
}
