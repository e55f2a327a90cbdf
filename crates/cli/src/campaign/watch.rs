//! `onward campaign watch`: shows the progress of a campaign run until it has ended, or until only
//! items in doubt are left, which an operator has to settle.

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
use crate::console::{self, OutputFormat};
use crate::retry::retry_transient_with;
use crate::shutdown::EXIT_INTERRUPTED;
use crate::terminal;

/// Watch a campaign run until it has ended: sent, failed, skipped, in doubt, rate and remaining
/// time
///
/// Sends nothing: a server does. Ctrl-C stops watching, not the campaign. The command also ends
/// when only items in doubt are left that wait to be settled (onward outbox settle).
///
/// Exit codes: 0 all recipients were reached, 1 not all were reached, or items in doubt wait to be
/// settled, 2 the command failed, 130 interrupted with Ctrl-C.
#[derive(clap::Args)]
pub(crate) struct CampaignWatchArgs {
    #[command(flatten)]
    connection: ScopedConnectionArgs,
    #[command(flatten)]
    run: CampaignRunArg,
    /// Print JSON Lines: the run, each time it has changed
    #[arg(long)]
    json: bool,
}

/// How often to poll the run.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The rate is computed over this many polls.
const RATE_SAMPLES: usize = 20;

/// Why watching ended.
enum CampaignWatchEnd {
    Ended(CampaignStatus),
    /// This many items are in doubt, and nothing happens until an operator settles them.
    NeedsResolution(u64),
}

pub(crate) async fn watch_campaign(args: &CampaignWatchArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    watch_run_until_ended(
        &onward,
        &args.run.run,
        OutputFormat::from_json_flag(args.json),
    )
    .await
}

/// Watches a campaign run until it has ended or only items in doubt are left.
pub(crate) async fn watch_run_until_ended(
    onward: &TargetConnection,
    run: &str,
    format: OutputFormat,
) -> anyhow::Result<ExitCode> {
    let mut bar = CampaignProgressBar {
        format,
        has_terminal: format == OutputFormat::Text && io::stdout().is_terminal(),
        ..CampaignProgressBar::default()
    };
    let ended = tokio::select! {
        ended = poll_until_end(onward, run, &mut bar) => Some(ended),
        interrupted = tokio::signal::ctrl_c() => {
            interrupted?;
            None
        }
    };
    // Ends the line first, so that an error message is not written into it.
    bar.end_line()?;
    Ok(match ended.transpose()? {
        Some(CampaignWatchEnd::Ended(CampaignStatus::Completed)) => ExitCode::SUCCESS,
        Some(CampaignWatchEnd::Ended(_)) => {
            bar.warn_in_doubt();
            ExitCode::from(1)
        }
        Some(CampaignWatchEnd::NeedsResolution(count)) => {
            console::print_message(format_args!(
                "{} in doubt: list with onward outbox in-doubt, then record each outcome with \
                 onward outbox settle",
                console::format_count(count, "item")
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
            |message| bar.print_below(message),
        )
        .await?;
        bar.show_run(&shown)?;
        if shown.summary.status.is_terminal() {
            return Ok(CampaignWatchEnd::Ended(shown.summary.status));
        }
        match stalled.observe_run(&shown) {
            Some(StallReason::NeedsResolution) => {
                return Ok(CampaignWatchEnd::NeedsResolution(shown.counts.in_doubt));
            }
            Some(StallReason::Waiting(message)) => bar.print_below(&message),
            Some(StallReason::Idle) => {
                let found = retry_transient_with(
                    async || stalled.explain_idle(onward, run).await,
                    |message| bar.print_below(message),
                )
                .await?;
                if let Some(message) = found {
                    bar.print_below(&message);
                }
            }
            None => {}
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// The progress line: redrawn in place on a terminal, otherwise printed again when the run has
/// changed.
#[derive(Default)]
struct CampaignProgressBar {
    format: OutputFormat,
    has_terminal: bool,
    /// Whether the terminal shows a line that has no line break yet.
    is_open: bool,
    last_run: Option<CampaignRunView>,
    /// Number of settled items at each of the last polls.
    settled_samples: VecDeque<(Instant, u64)>,
}

impl CampaignProgressBar {
    fn show_run(&mut self, run: &CampaignRunView) -> anyhow::Result<()> {
        self.settled_samples
            .push_back((Instant::now(), progress_bar::settled_count(&run.counts)));
        if self.settled_samples.len() > RATE_SAMPLES {
            self.settled_samples.pop_front();
        }
        // Changes of the jobs in progress, such as renewed leases, do not count.
        let comparable = CampaignRunView {
            active_jobs: None,
            ..run.clone()
        };
        let has_changed = self.last_run.as_ref() != Some(&comparable);
        self.last_run = Some(comparable);
        if self.has_terminal {
            return Ok(self.draw_line()?);
        }
        if has_changed {
            let text = match self.format {
                OutputFormat::Json => serde_json::to_string(run)?,
                OutputFormat::Text => {
                    progress_bar::format_progress(run, self.items_per_second(), usize::MAX)
                }
            };
            writeln!(console::output(self.format == OutputFormat::Json), "{text}")?;
        }
        Ok(())
    }

    /// Redraws the line. The cursor stays at its beginning: when the terminal becomes narrower and
    /// wraps the line, all of it is below the cursor.
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
        write!(out, "\r{}\x1b[J\r", console::escape_control_chars(&line))?;
        self.is_open = true;
        out.flush()
    }

    /// Prints a message below the line; the next redraw starts a new line.
    fn print_below(&mut self, message: &str) {
        // A failed write to the terminal is no reason to stop.
        let _ = self.end_line();
        console::print_message(message);
    }

    /// Settled items per second; 0 when the count has decreased, which happens when items are
    /// retried.
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

    /// Ends the line, if one is open. Redraws it first, because Ctrl-C may have been echoed into
    /// it.
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
            .is_some_and(|run| run.counts.in_doubt > 0)
        {
            console::print_message(
                "some items are in doubt: list them with onward outbox in-doubt",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_zero_while_items_are_retried() {
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
