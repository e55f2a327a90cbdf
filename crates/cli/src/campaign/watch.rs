//! `onward campaign watch`: how far a campaign run has come, until it is over or nothing is left that can be done without people.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use onward_api::campaign::{CampaignRun, RunStatus};
use tokio::time::Instant;

use super::RunArg;
use super::bar;
use super::stalled::{Stall, Stalled};
use crate::access::{Access, Want, WorkArgs};
use crate::waiting::persist_aloud;
use crate::{paint, terminal};

/// Watch a campaign run until it is over: a bar with sent, failed, skipped, in doubt, the rate, and how long it will take
///
/// Sends nothing: a server does. Ctrl-C stops watching, not the campaign. It also ends when nothing is left but what is in doubt and waits for a verdict (onward outbox settle).
///
/// Exit codes: 0 everybody was reached who was to be, 1 not everybody, or some are in doubt and wait for a verdict, 2 it could not be watched, 130 Ctrl-C.
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

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_INTERRUPTED: u8 = 128 + 2;

/// Why it is watched no longer.
enum Ended {
    Over(RunStatus),
    /// So many are in doubt, and nothing is done before people say what became of them.
    ForVerdict(u64),
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let onward = args.work.open(Want::Read).await?;
    until_over(&onward, &args.run.run, args.json).await
}

/// Watches a campaign run until it is over, or waits for people.
pub(crate) async fn until_over(onward: &Access, run: &str, json: bool) -> anyhow::Result<ExitCode> {
    let mut bar = Bar { json, has_terminal: !json && io::stdout().is_terminal(), ..Bar::default() };
    let ended = tokio::select! {
        ended = watch(onward, run, &mut bar) => Some(ended),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    // Whatever went wrong is not written into the bar.
    bar.end()?;
    Ok(match ended.transpose()? {
        Some(Ended::Over(RunStatus::Completed)) => ExitCode::SUCCESS,
        Some(Ended::Over(_)) => {
            bar.tell_doubt();
            ExitCode::from(1)
        }
        Some(Ended::ForVerdict(count)) => {
            paint::say(format_args!("{count} in doubt wait for your verdict: onward outbox in-doubt"));
            ExitCode::from(1)
        }
        None => {
            bar.tell_doubt();
            ExitCode::from(EXIT_INTERRUPTED)
        }
    })
}

async fn watch(onward: &Access, run: &str, bar: &mut Bar) -> anyhow::Result<Ended> {
    let mut stalled = Stalled::default();
    loop {
        let shown = persist_aloud(async || onward.campaign_run(run).await, |words| bar.say(words)).await?;
        bar.show(&shown)?;
        if shown.summary.status.is_over() {
            return Ok(Ended::Over(shown.summary.status));
        }
        match stalled.look(&shown) {
            Some(Stall::ForVerdict) => return Ok(Ended::ForVerdict(shown.tally.in_doubt)),
            Some(Stall::Waits(words)) => bar.say(&words),
            Some(Stall::Idle) => {
                let found = persist_aloud(async || stalled.why(onward, run).await, |words| bar.say(words)).await?;
                if let Some(words) = found {
                    bar.say(&words);
                }
            }
            None => {}
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// A line that is written over in a terminal, and else written whenever something has changed.
#[derive(Default)]
struct Bar {
    json: bool,
    has_terminal: bool,
    /// Whether a line stands in the terminal that is not ended.
    is_open: bool,
    last: Option<CampaignRun>,
    /// How many were settled when.
    settled: VecDeque<(Instant, u64)>,
}

impl Bar {
    fn show(&mut self, run: &CampaignRun) -> anyhow::Result<()> {
        self.settled.push_back((Instant::now(), bar::settled(&run.tally)));
        if self.settled.len() > RATED {
            self.settled.pop_front();
        }
        // That workers are heard of again and again is no news.
        let news = CampaignRun { under_way: None, ..run.clone() };
        let has_changed = self.last.as_ref() != Some(&news);
        self.last = Some(news);
        if self.has_terminal {
            return Ok(self.draw()?);
        }
        if has_changed {
            let text = if self.json { serde_json::to_string(run)? } else { bar::line(run, self.rate(), usize::MAX) };
            writeln!(io::stdout(), "{text}")?;
        }
        Ok(())
    }

    /// Writes the line over the one before. The cursor is left at its beginning: a terminal that becomes narrower wraps the
    /// line, and all of it is below the cursor then.
    fn draw(&mut self) -> io::Result<()> {
        let Some(run) = &self.last else { return Ok(()) };
        let line = bar::line(run, self.rate(), terminal::columns());
        let mut out = io::stdout();
        write!(out, "\r{line}\x1b[J\r")?;
        self.is_open = true;
        out.flush()
    }

    /// Says something below the line, which goes on after it.
    fn say(&mut self, words: &str) {
        // If nobody can see it, that is no reason to fail.
        let _ = self.end();
        paint::say(words);
    }

    /// Items a second. There are fewer than before when some are tried again.
    fn rate(&self) -> f64 {
        let (Some((since, first)), Some((until, last))) = (self.settled.front(), self.settled.back()) else {
            return 0.0;
        };
        let seconds = until.duration_since(*since).as_secs_f64();
        if seconds > 0.0 { last.saturating_sub(*first) as f64 / seconds } else { 0.0 }
    }

    /// Ends the line, if there is one. Ctrl-C may have been written into it.
    fn end(&mut self) -> io::Result<()> {
        if self.is_open {
            self.draw()?;
            writeln!(io::stdout())?;
            self.is_open = false;
        }
        Ok(())
    }

    fn tell_doubt(&self) {
        if self.last.as_ref().is_some_and(|run| run.tally.in_doubt > 0) {
            paint::say("nobody knows what became of some: onward outbox in-doubt");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_which_some_are_tried_again_has_no_rate() {
        let now = Instant::now();
        let settled = VecDeque::from([(now, 10), (now + LOOK, 5)]);
        assert_eq!(Bar { settled, ..Bar::default() }.rate(), 0.0);
    }
}
