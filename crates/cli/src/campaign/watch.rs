//! `onward campaign watch`: how far a campaign run has come, until it is over.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use onward_api::campaign::{CampaignRun, CampaignTally, Control, RunStatus};
use tokio::time::Instant;

use super::{RunArg, ls};
use crate::access::{Access, Want, WorkArgs};
use crate::paint;
use crate::waiting::persist;

/// Watch a campaign run until it is over: a bar with sent, failed, skipped, in doubt, the rate, and how long it will take
///
/// Sends nothing: a server does. Ctrl-C stops watching, not the campaign.
///
/// Exit codes: 0 everybody was reached who was to be, 1 not everybody, 2 it could not be watched, 130 Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    work: WorkArgs,
    #[command(flatten)]
    run: RunArg,
    /// Print JSON Lines: the run, each time that something has changed
    #[arg(long)]
    json: bool,
}

/// How often to look.
const LOOK: Duration = Duration::from_millis(500);

/// The rate is that of so many looks.
const RATED: usize = 20;

/// Characters of the bar.
const WIDTH: u64 = 30;

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_INTERRUPTED: u8 = 128 + 2;

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    until_over(&onward, &args.run.run, args.json).await
}

/// Watches a campaign run until it is over.
pub(crate) async fn until_over(onward: &Access, run: &str, json: bool) -> anyhow::Result<ExitCode> {
    let mut bar = Bar { json, has_terminal: !json && io::stdout().is_terminal(), ..Bar::default() };
    let watching = async {
        loop {
            let shown = persist(async || onward.campaign_run(run).await).await?;
            bar.show(&shown)?;
            if shown.summary.status.is_over() {
                return anyhow::Ok(shown.summary.status);
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let ended = tokio::select! {
        ended = watching => Some(ended?),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    bar.end()?;
    Ok(match ended {
        Some(RunStatus::Completed) => ExitCode::SUCCESS,
        Some(_) => ExitCode::from(1),
        None => ExitCode::from(EXIT_INTERRUPTED),
    })
}

/// A line that is written over in a terminal, and else written whenever something has changed.
#[derive(Default)]
struct Bar {
    json: bool,
    has_terminal: bool,
    last: Option<CampaignRun>,
    /// How many were settled when.
    settled: VecDeque<(Instant, u64)>,
}

impl Bar {
    fn show(&mut self, run: &CampaignRun) -> anyhow::Result<()> {
        let done = settled(&run.tally);
        self.settled.push_back((Instant::now(), done));
        if self.settled.len() > RATED {
            self.settled.pop_front();
        }
        // That workers are heard of again and again is no news.
        let news = CampaignRun { under_way: None, ..run.clone() };
        let has_changed = self.last.as_ref() != Some(&news);
        self.last = Some(news);
        let mut out = anstream::stdout();
        if self.has_terminal {
            // A line that is too long for the terminal is cut, not wrapped: it could not be written over.
            write!(out, "\r\x1b[K\x1b[?7l{}\x1b[?7h", line(run, self.rate()))?;
        } else if has_changed {
            let text = if self.json { serde_json::to_string(run)? } else { line(run, self.rate()) };
            writeln!(out, "{text}")?;
        }
        Ok(out.flush()?)
    }

    /// Items a second.
    fn rate(&self) -> f64 {
        let (Some((since, first)), Some((until, last))) = (self.settled.front(), self.settled.back()) else {
            return 0.0;
        };
        let seconds = until.duration_since(*since).as_secs_f64();
        if seconds > 0.0 { (last - first) as f64 / seconds } else { 0.0 }
    }

    fn end(&self) -> io::Result<()> {
        if self.has_terminal {
            writeln!(io::stdout())?;
        }
        if self.last.as_ref().is_some_and(|run| run.tally.in_doubt > 0) {
            paint::say("nobody knows what became of some: onward outbox in-doubt");
        }
        Ok(())
    }
}

const fn settled(tally: &CampaignTally) -> u64 {
    tally.served + tally.failed + tally.skipped
}

fn line(run: &CampaignRun, rate: f64) -> String {
    let CampaignTally { served, failed, skipped, in_doubt, .. } = run.tally;
    let (done, all) = (settled(&run.tally), u64::from(run.summary.items));
    let filled = (done * WIDTH).checked_div(all).unwrap_or(0);
    let bar: String = (0..WIDTH).map(|place| if place < filled { '█' } else { '░' }).collect();
    let percent = (done * 100).checked_div(all).unwrap_or(0);
    let counts = format!("{served} sent, {failed} failed, {skipped} skipped, {in_doubt} in doubt");
    let status = ls::status(&run.summary);
    if run.summary.status.is_over() {
        return format!("{bar} {percent:>3}% of {all}  {counts}  {status}");
    }
    let waits = run.waits.as_ref().map(|waits| format!(", waits until {}", waits.until)).unwrap_or_default();
    format!("{bar} {percent:>3}% of {all}  {counts}  {rate:.0}/s{}  {status}{waits}", eta(run, rate))
}

/// How long it will take at this rate.
fn eta(run: &CampaignRun, rate: f64) -> String {
    let waiting = run.tally.waiting;
    if run.summary.control != Control::Active || rate <= 0.0 || waiting == 0 {
        return String::new();
    }
    let seconds = (waiting as f64 / rate).ceil();
    match seconds {
        ..120.0 => format!("  {seconds:.0} s left"),
        120.0..7_200.0 => format!("  {:.0} min left", seconds / 60.0),
        _ => format!("  {:.0} h left", seconds / 3_600.0),
    }
}
