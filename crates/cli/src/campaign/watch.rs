//! `onward campaign watch`: how far a campaign run has come, until it is over or nothing is left that can be done without people.

use std::collections::VecDeque;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use onward_api::campaign::{CampaignRunView, CampaignStatus};
use tokio::time::Instant;

use super::CampaignRunArg;
use super::progress_bar;
use super::stall_detector::{StallDetector, StallReason};
use crate::connection::{AccessMode, ScopedConnectionArgs, TargetConnection};
use crate::retry::retry_transient_with;
use crate::{console, terminal};

/// Watch a campaign run until it is over: a bar with sent, failed, skipped, in doubt, the rate, and how long it will take
///
/// Sends nothing: a server does. Ctrl-C stops watching, not the campaign. It also ends when nothing is left but what is in doubt and waits for a verdict (onward outbox settle).
///
/// Exit codes: 0 everybody was reached who was to be, 1 not everybody, or some are in doubt and wait for a verdict, 2 it could not be watched, 130 Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct CampaignWatchArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    run: CampaignRunArg,
    /// Print JSON Lines: the run, each time that something has changed
    #[arg(long)]
    json: bool,
}

/// How often to look.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The rate is that of so many looks.
const RATE_SAMPLES: usize = 20;

/// What a shell reports for a program that Ctrl-C ended.
const EXIT_INTERRUPTED: u8 = 128 + 2;

/// Why it is watched no longer.
enum CampaignWatchEnd {
    Over(CampaignStatus),
    /// So many are in doubt, and nothing is done before people say what became of them.
    NeedsResolution(u64),
}

pub(crate) async fn watch_campaign(args: &CampaignWatchArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    watch_run_until_over(&onward, &args.run.run, args.json).await
}

/// Watches a campaign run until it is over, or waits for people.
pub(crate) async fn watch_run_until_over(
    onward: &TargetConnection,
    run: &str,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let mut bar = CampaignProgressBar {
        json,
        has_terminal: !json && io::stdout().is_terminal(),
        ..CampaignProgressBar::default()
    };
    let ended = tokio::select! {
        ended = poll_until_end(onward, run, &mut bar) => Some(ended),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    // Whatever went wrong is not written into the bar.
    bar.end_line()?;
    Ok(match ended.transpose()? {
        Some(CampaignWatchEnd::Over(CampaignStatus::Completed)) => ExitCode::SUCCESS,
        Some(CampaignWatchEnd::Over(_)) => {
            bar.warn_in_doubt();
            ExitCode::from(1)
        }
        Some(CampaignWatchEnd::NeedsResolution(count)) => {
            console::print_message(format_args!(
                "{count} in doubt wait for your verdict: onward outbox in-doubt"
            ));
            ExitCode::from(1)
        }
        None => {
            bar.warn_in_doubt();
            ExitCode::from(EXIT_INTERRUPTED)
        }
    })
}

async fn poll_until_end(
    onward: &TargetConnection,
    run: &str,
    bar: &mut CampaignProgressBar,
) -> anyhow::Result<CampaignWatchEnd> {
    let mut stalled = StallDetector::default();
    loop {
        let shown = retry_transient_with(
            async || onward.get_campaign_run(run).await,
            |words| bar.print_below(words),
        )
        .await?;
        bar.show_run(&shown)?;
        if shown.summary.status.is_terminal() {
            return Ok(CampaignWatchEnd::Over(shown.summary.status));
        }
        match stalled.observe_run(&shown) {
            Some(StallReason::NeedsResolution) => {
                return Ok(CampaignWatchEnd::NeedsResolution(shown.tally.in_doubt));
            }
            Some(StallReason::Waiting(words)) => bar.print_below(&words),
            Some(StallReason::Idle) => {
                let found = retry_transient_with(
                    async || stalled.explain_idle(onward, run).await,
                    |words| bar.print_below(words),
                )
                .await?;
                if let Some(words) = found {
                    bar.print_below(&words);
                }
            }
            None => {}
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// A line that is written over in a terminal, and else written whenever something has changed.
#[derive(Default)]
struct CampaignProgressBar {
    json: bool,
    has_terminal: bool,
    /// Whether a line stands in the terminal that is not ended.
    is_open: bool,
    last_run: Option<CampaignRunView>,
    /// How many were settled when.
    settled_samples: VecDeque<(Instant, u64)>,
}

impl CampaignProgressBar {
    fn show_run(&mut self, run: &CampaignRunView) -> anyhow::Result<()> {
        self.settled_samples
            .push_back((Instant::now(), progress_bar::settled_count(&run.tally)));
        if self.settled_samples.len() > RATE_SAMPLES {
            self.settled_samples.pop_front();
        }
        // That workers are heard of again and again is no news.
        let news = CampaignRunView {
            under_way: None,
            ..run.clone()
        };
        let has_changed = self.last_run.as_ref() != Some(&news);
        self.last_run = Some(news);
        if self.has_terminal {
            return Ok(self.draw_line()?);
        }
        if has_changed {
            let text = if self.json {
                serde_json::to_string(run)?
            } else {
                progress_bar::format_progress(run, self.items_per_second(), usize::MAX)
            };
            writeln!(io::stdout(), "{text}")?;
        }
        Ok(())
    }

    /// Writes the line over the one before. The cursor is left at its beginning: a terminal that becomes narrower wraps the
    /// line, and all of it is below the cursor then.
    fn draw_line(&mut self) -> io::Result<()> {
        let Some(run) = &self.last_run else {
            return Ok(());
        };
        let line = progress_bar::format_progress(
            run,
            self.items_per_second(),
            terminal::terminal_columns(),
        );
        let mut out = io::stdout();
        write!(out, "\r{line}\x1b[J\r")?;
        self.is_open = true;
        out.flush()
    }

    /// Says something below the line, which goes on after it.
    fn print_below(&mut self, words: &str) {
        // If nobody can see it, that is no reason to fail.
        let _ = self.end_line();
        console::print_message(words);
    }

    /// Items a second. There are fewer than before when some are tried again.
    fn items_per_second(&self) -> f64 {
        let (Some((since, first)), Some((until, last))) =
            (self.settled_samples.front(), self.settled_samples.back())
        else {
            return 0.0;
        };
        let seconds = until.duration_since(*since).as_secs_f64();
        if seconds > 0.0 {
            last.saturating_sub(*first) as f64 / seconds
        } else {
            0.0
        }
    }

    /// Ends the line, if there is one. Ctrl-C may have been written into it.
    fn end_line(&mut self) -> io::Result<()> {
        if self.is_open {
            self.draw_line()?;
            writeln!(io::stdout())?;
            self.is_open = false;
        }
        Ok(())
    }

    fn warn_in_doubt(&self) {
        if self
            .last_run
            .as_ref()
            .is_some_and(|run| run.tally.in_doubt > 0)
        {
            console::print_message("nobody knows what became of some: onward outbox in-doubt");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_which_some_are_tried_again_has_no_rate() {
        let now = Instant::now();
        let settled = VecDeque::from([(now, 10), (now + POLL_INTERVAL, 5)]);
        assert_eq!(
            CampaignProgressBar {
                settled_samples: settled,
                ..CampaignProgressBar::default()
            }
            .items_per_second(),
            0.0
        );
    }
}
