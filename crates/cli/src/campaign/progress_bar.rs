//! Progress line of a campaign run for a terminal of any width: the least important parts are left
//! out first.

use onward_api::campaign::{CampaignControl, CampaignRunView, CampaignTally};

use super::ls;

/// Maximum width of the bar in cells.
const CELLS_MAX: usize = 30;

/// The parts of the line that are shown at a given width.
#[derive(Clone, Copy)]
struct BarLayout {
    /// Minimum width of the bar in cells.
    min_cells: usize,
    /// Show the time until which the run waits.
    shows_wait_end: bool,
    /// Show the status of a run that is queued or running.
    shows_status: bool,
    /// Show the total number of items.
    shows_total: bool,
    /// Show the failed and skipped counts even when they are zero.
    shows_zero_counts: bool,
    /// Write labels in full instead of abbreviated.
    has_full_words: bool,
}

/// All layouts, widest first.
const BAR_LAYOUTS: [BarLayout; 8] = [
    BarLayout {
        min_cells: 10,
        shows_wait_end: true,
        shows_status: true,
        shows_total: true,
        shows_zero_counts: true,
        has_full_words: true,
    },
    BarLayout {
        min_cells: 10,
        shows_wait_end: false,
        shows_status: true,
        shows_total: true,
        shows_zero_counts: true,
        has_full_words: true,
    },
    BarLayout {
        min_cells: 7,
        shows_wait_end: false,
        shows_status: false,
        shows_total: true,
        shows_zero_counts: true,
        has_full_words: true,
    },
    BarLayout {
        min_cells: 5,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: true,
        has_full_words: true,
    },
    BarLayout {
        min_cells: 5,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: true,
        has_full_words: false,
    },
    BarLayout {
        min_cells: 3,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: false,
        has_full_words: true,
    },
    BarLayout {
        min_cells: 3,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: false,
        has_full_words: false,
    },
    BarLayout {
        min_cells: 0,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: false,
        has_full_words: false,
    },
];

/// Formats the progress of a run for a terminal with `columns` columns. The last column stays free:
/// some terminals start a new line when it is written.
pub(super) fn format_progress(run: &CampaignRunView, rate: f64, columns: usize) -> String {
    let room = columns.saturating_sub(1);
    let mut text = String::new();
    for style in BAR_LAYOUTS {
        text = format_details(run, rate, style);
        let taken = text.chars().count() + 1;
        if taken + style.min_cells <= room {
            let cells = (room - taken).min(CELLS_MAX);
            return format!("{} {text}", render_cells(run, cells));
        }
    }
    let text = text.trim_start();
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars()
        .take(room.saturating_sub(1))
        .chain("…".chars())
        .take(room)
        .collect()
}

/// Number of settled items: served, failed or skipped.
pub(super) const fn settled_count(tally: &CampaignTally) -> u64 {
    tally.served + tally.failed + tally.skipped
}

fn render_cells(run: &CampaignRunView, cells: usize) -> String {
    let filled = (settled_count(&run.tally) * cells as u64)
        .checked_div(run.summary.items.into())
        .unwrap_or(0);
    (0..cells as u64)
        .map(|place| if place < filled { '█' } else { '░' })
        .collect()
}

fn format_details(run: &CampaignRunView, rate: f64, style: BarLayout) -> String {
    let all = u64::from(run.summary.items);
    let percent = (settled_count(&run.tally) * 100)
        .checked_div(all)
        .unwrap_or(0);
    let of_all = if style.shows_total {
        format!(" of {all}")
    } else {
        String::new()
    };
    let mut parts = vec![
        format!("{percent:>3}%{of_all}"),
        format_counts(&run.tally, style),
    ];
    let status = ls::status_label(&run.summary);
    if run.summary.status.is_terminal() {
        parts.push(status);
        return parts.join("  ");
    }
    let waits = run.waits.as_ref();
    if waits.is_none() || style.shows_status {
        parts.push(format!("{rate:.0}/s"));
    }
    parts.extend(format_remaining_time(run, rate, style));
    match waits {
        Some(waits) if style.shows_wait_end => {
            parts.push(format!("{status}, waits until {}", waits.until))
        }
        Some(_) if style.shows_status => parts.push(format!("{status}, waits")),
        Some(_) => parts.push("waits".to_owned()),
        // A moving bar already shows that the run is running.
        None if style.shows_status || run.summary.control != CampaignControl::Active => {
            parts.push(status)
        }
        None => {}
    }
    parts.join("  ")
}

/// Formats the counts per state. The number of items in doubt is always shown, even when it is
/// zero.
fn format_counts(tally: &CampaignTally, style: BarLayout) -> String {
    let CampaignTally {
        served,
        failed,
        skipped,
        in_doubt,
        ..
    } = *tally;
    let mut counts = vec![format!("{served} sent")];
    let (failed_word, skipped_word) = if style.has_full_words {
        ("failed", "skipped")
    } else {
        ("fail", "skip")
    };
    for (count, word) in [(failed, failed_word), (skipped, skipped_word)] {
        if style.shows_zero_counts || count > 0 {
            counts.push(format!("{count} {word}"));
        }
    }
    // The narrowest layout may be truncated, so the items in doubt come early in it.
    let place = if style.min_cells == 0 {
        1
    } else {
        counts.len()
    };
    counts.insert(place, format!("{in_doubt} in doubt"));
    counts.join(if style.has_full_words { ", " } else { " " })
}

/// Formats the estimated remaining time at this rate. `None` unless the run is active and
/// progressing.
fn format_remaining_time(run: &CampaignRunView, rate: f64, style: BarLayout) -> Option<String> {
    let waiting = run.tally.waiting;
    if run.summary.control != CampaignControl::Active || rate <= 0.0 || waiting == 0 {
        return None;
    }
    let seconds = (waiting as f64 / rate).ceil();
    let time = match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        120.0..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    };
    Some(if style.has_full_words {
        format!("{time} left")
    } else {
        time
    })
}

#[cfg(test)]
pub(super) mod tests {
    use onward_api::campaign::{CampaignRunSummary, CampaignRunWait, CampaignStatus, ChannelName};

    use super::*;

    pub(in crate::campaign) fn run(items: u32, tally: CampaignTally) -> CampaignRunView {
        let summary = CampaignRunSummary {
            run: "726ee7fc".to_owned(),
            campaign: "news".to_owned(),
            channel: ChannelName::Email,
            status: CampaignStatus::Running,
            control: CampaignControl::Active,
            items,
            jobs: 4,
            scheduled_for: "2026-01-01T00:00:00Z".to_owned(),
            created_at: "2026-01-01T00:00:00Z".to_owned(),
            ended_at: None,
            retry_of: None,
        };
        CampaignRunView {
            summary,
            tally,
            provider: "mailer".to_owned(),
            retried_by: None,
            under_way: None,
            waits: None,
        }
    }

    /// An ordinary run: 37 of 320 items sent, none failed, skipped or in doubt.
    fn usual() -> CampaignRunView {
        run(
            320,
            CampaignTally {
                served: 37,
                waiting: 283,
                ..CampaignTally::default()
            },
        )
    }

    /// A run with large numbers in every count.
    fn large() -> CampaignRunView {
        let (served, failed, skipped, in_doubt) = (4_321_000, 12_345, 67_890, 1_234);
        run(
            9_876_543,
            CampaignTally {
                served,
                failed,
                skipped,
                in_doubt,
                waiting: 5_474_074,
            },
        )
    }

    #[test]
    fn the_line_is_as_full_as_the_terminal_is_wide() {
        let lines = |run: &CampaignRunView, rate| {
            [40, 60, 80, 100, 200].map(|columns| format_progress(run, rate, columns))
        };
        assert_eq!(
            lines(&usual(), 12.0),
            [
                "░░  11%  37 sent 0 in doubt  12/s  24 s",
                "░░░░░░░░  11%  37 sent 0 fail 0 skip 0 in doubt  12/s  24 s",
                "░░░░░░░░  11% of 320  37 sent, 0 failed, 0 skipped, 0 in doubt  12/s  24 s left",
                "██░░░░░░░░░░░░░░░░░  11% of 320  37 sent, 0 failed, 0 skipped, 0 in doubt  12/s  24 s left  running",
                "███░░░░░░░░░░░░░░░░░░░░░░░░░░░  11% of 320  37 sent, 0 failed, 0 skipped, 0 in doubt  12/s  24 s left  running",
            ]
        );
        assert_eq!(
            lines(&large(), 1_234.0),
            [
                "44%  4321000 sent 1234 in doubt 12345 …",
                "44%  4321000 sent 1234 in doubt 12345 fail 67890 skip  123…",
                "███░░░░░  44%  4321000 sent 12345 fail 67890 skip 1234 in doubt  1234/s  74 min",
                "██████░░░░░░░░░  44%  4321000 sent, 12345 failed, 67890 skipped, 1234 in doubt  1234/s  74 min left",
                "█████████████░░░░░░░░░░░░░░░░░  44% of 9876543  4321000 sent, 12345 failed, 67890 skipped, 1234 in doubt  1234/s  74 min left  running",
            ]
        );
    }

    #[test]
    fn no_line_reaches_the_last_column_and_none_hides_what_is_in_doubt() {
        let mut waits = large();
        waits.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00.000Z".to_owned(),
            why: None,
        });
        let mut paused = usual();
        paused.summary.control = CampaignControl::Paused;
        let mut over = large();
        (over.summary.status, over.summary.control) =
            (CampaignStatus::Partial, CampaignControl::Cancelled);
        for run in [
            usual(),
            large(),
            waits,
            paused,
            over,
            run(0, CampaignTally::default()),
        ] {
            for columns in 0..=300 {
                let line = format_progress(&run, 1_234.0, columns);
                assert!(line.chars().count() < columns.max(1), "{columns}: {line}");
                assert!(
                    columns < 40 || line.contains(" in doubt"),
                    "{columns}: {line}"
                );
            }
        }
    }

    #[test]
    fn what_people_want_of_a_run_is_said_on_a_narrow_terminal_too() {
        let mut run = usual();
        run.summary.control = CampaignControl::Paused;
        assert!(format_progress(&run, 0.0, 60).ends_with("  paused"));
        run.summary.control = CampaignControl::Active;
        run.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00.000Z".to_owned(),
            why: None,
        });
        assert!(format_progress(&run, 0.0, 60).ends_with("  waits"));
        assert!(
            format_progress(&run, 0.0, 200)
                .ends_with("  running, waits until 2026-12-01T09:00:00.000Z")
        );
    }
}
