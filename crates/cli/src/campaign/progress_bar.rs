//! Progress line of a campaign run for a terminal of any width: the least important parts are left
//! out first.

use onward_api::campaign::{CampaignControl, CampaignItemCounts, CampaignRunView};

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
    has_full_labels: bool,
}

/// All layouts, widest first.
const BAR_LAYOUTS: [BarLayout; 8] = [
    BarLayout {
        min_cells: 10,
        shows_wait_end: true,
        shows_status: true,
        shows_total: true,
        shows_zero_counts: true,
        has_full_labels: true,
    },
    BarLayout {
        min_cells: 10,
        shows_wait_end: false,
        shows_status: true,
        shows_total: true,
        shows_zero_counts: true,
        has_full_labels: true,
    },
    BarLayout {
        min_cells: 7,
        shows_wait_end: false,
        shows_status: false,
        shows_total: true,
        shows_zero_counts: true,
        has_full_labels: true,
    },
    BarLayout {
        min_cells: 5,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: true,
        has_full_labels: true,
    },
    BarLayout {
        min_cells: 5,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: true,
        has_full_labels: false,
    },
    BarLayout {
        min_cells: 3,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: false,
        has_full_labels: true,
    },
    BarLayout {
        min_cells: 3,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: false,
        has_full_labels: false,
    },
    BarLayout {
        min_cells: 0,
        shows_wait_end: false,
        shows_status: false,
        shows_total: false,
        shows_zero_counts: false,
        has_full_labels: false,
    },
];

/// Formats the progress of a run for a terminal with `columns` columns. The last column stays free:
/// some terminals start a new line when it is written.
pub(super) fn format_progress(run: &CampaignRunView, rate: f64, columns: usize) -> String {
    let room = columns.saturating_sub(1);
    let mut text = String::new();
    for layout in BAR_LAYOUTS {
        text = format_details(run, rate, layout);
        let taken = text.chars().count() + 1;
        if taken + layout.min_cells <= room {
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

/// Number of settled items: sent, failed or skipped.
pub(super) const fn settled_count(counts: &CampaignItemCounts) -> u64 {
    counts.sent + counts.failed + counts.skipped
}

fn render_cells(run: &CampaignRunView, cells: usize) -> String {
    let filled = (settled_count(&run.counts) * cells as u64)
        .checked_div(run.summary.items.into())
        .unwrap_or(0);
    (0..cells as u64)
        .map(|place| if place < filled { '█' } else { '░' })
        .collect()
}

fn format_details(run: &CampaignRunView, rate: f64, layout: BarLayout) -> String {
    let all = u64::from(run.summary.items);
    let percent = (settled_count(&run.counts) * 100)
        .checked_div(all)
        .unwrap_or(0);
    let of_all = if layout.shows_total {
        format!(" of {all}")
    } else {
        String::new()
    };
    let mut parts = vec![
        format!("{percent:>3}%{of_all}"),
        format_counts(&run.counts, layout),
    ];
    let status = ls::status_label(&run.summary);
    if run.summary.status.is_terminal() {
        parts.push(status);
        return parts.join("  ");
    }
    let waits = run.waits.as_ref();
    if waits.is_none() || layout.shows_status {
        parts.push(format!("{rate:.0}/s"));
    }
    parts.extend(format_remaining_time(run, rate, layout));
    match waits {
        Some(waits) if layout.shows_wait_end => {
            parts.push(format!("{status}, waits until {}", waits.until))
        }
        Some(_) if layout.shows_status => parts.push(format!("{status}, waits")),
        Some(_) => parts.push("waits".to_owned()),
        // A moving bar already shows that the run is running.
        None if layout.shows_status || run.summary.control != CampaignControl::Active => {
            parts.push(status)
        }
        None => {}
    }
    parts.join("  ")
}

/// Formats the counts per state. The number of items in doubt is always shown, even when it is
/// zero.
fn format_counts(counts: &CampaignItemCounts, layout: BarLayout) -> String {
    let CampaignItemCounts {
        sent,
        failed,
        skipped,
        in_doubt,
        ..
    } = *counts;
    let mut counts = vec![format!("{sent} sent")];
    let (failed_label, skipped_label) = if layout.has_full_labels {
        ("failed", "skipped")
    } else {
        ("fail", "skip")
    };
    for (count, label) in [(failed, failed_label), (skipped, skipped_label)] {
        if layout.shows_zero_counts || count > 0 {
            counts.push(format!("{count} {label}"));
        }
    }
    // The narrowest layout may be truncated, so the items in doubt come early in it.
    let place = if layout.min_cells == 0 {
        1
    } else {
        counts.len()
    };
    counts.insert(place, format!("{in_doubt} in doubt"));
    counts.join(if layout.has_full_labels { ", " } else { " " })
}

/// Formats the estimated remaining time at this rate. `None` unless the run is active and
/// progressing.
fn format_remaining_time(run: &CampaignRunView, rate: f64, layout: BarLayout) -> Option<String> {
    let waiting = run.counts.waiting;
    if run.summary.control != CampaignControl::Active || rate <= 0.0 || waiting == 0 {
        return None;
    }
    let seconds = (waiting as f64 / rate).ceil();
    let time = match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        120.0..7_200.0 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3_600.0),
    };
    Some(if layout.has_full_labels {
        format!("{time} left")
    } else {
        time
    })
}

#[cfg(test)]
pub(super) mod tests {
    use onward_api::campaign::{CampaignRunSummary, CampaignRunWait, CampaignStatus, ChannelName};

    use super::*;

    pub(in crate::campaign) fn run(items: u32, counts: CampaignItemCounts) -> CampaignRunView {
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
            counts,
            provider: "mailer".to_owned(),
            retried_by: None,
            active_jobs: None,
            waits: None,
        }
    }

    /// An ordinary run: 37 of 320 items sent, none failed, skipped or in doubt.
    fn ordinary_run() -> CampaignRunView {
        run(
            320,
            CampaignItemCounts {
                sent: 37,
                waiting: 283,
                ..CampaignItemCounts::default()
            },
        )
    }

    /// A run with large numbers in every count.
    fn large_run() -> CampaignRunView {
        let (sent, failed, skipped, in_doubt) = (4_321_000, 12_345, 67_890, 1_234);
        run(
            9_876_543,
            CampaignItemCounts {
                sent,
                failed,
                skipped,
                in_doubt,
                waiting: 5_474_074,
            },
        )
    }

    #[test]
    fn a_wider_terminal_shows_more_details() {
        let lines = |run: &CampaignRunView, rate| {
            [40, 60, 80, 100, 200].map(|columns| format_progress(run, rate, columns))
        };
        assert_eq!(
            lines(&ordinary_run(), 12.0),
            [
                "░░  11%  37 sent 0 in doubt  12/s  24 s",
                "░░░░░░░░  11%  37 sent 0 fail 0 skip 0 in doubt  12/s  24 s",
                "░░░░░░░░  11% of 320  37 sent, 0 failed, 0 skipped, 0 in doubt  12/s  24 s left",
                "██░░░░░░░░░░░░░░░░░  11% of 320  37 sent, 0 failed, 0 skipped, 0 in doubt  12/s  24 s left  running",
                "███░░░░░░░░░░░░░░░░░░░░░░░░░░░  11% of 320  37 sent, 0 failed, 0 skipped, 0 in doubt  12/s  24 s left  running",
            ]
        );
        assert_eq!(
            lines(&large_run(), 1_234.0),
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
    fn no_line_reaches_the_last_column_and_all_show_items_in_doubt() {
        let mut waits = large_run();
        waits.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00.000Z".to_owned(),
            error: None,
        });
        let mut paused = ordinary_run();
        paused.summary.control = CampaignControl::Paused;
        let mut ended = large_run();
        (ended.summary.status, ended.summary.control) =
            (CampaignStatus::Partial, CampaignControl::Cancelled);
        for run in [
            ordinary_run(),
            large_run(),
            waits,
            paused,
            ended,
            run(0, CampaignItemCounts::default()),
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
    fn a_narrow_terminal_shows_the_control_state_and_waits() {
        let mut run = ordinary_run();
        run.summary.control = CampaignControl::Paused;
        assert!(format_progress(&run, 0.0, 60).ends_with("  paused"));
        run.summary.control = CampaignControl::Active;
        run.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00.000Z".to_owned(),
            error: None,
        });
        assert!(format_progress(&run, 0.0, 60).ends_with("  waits"));
        assert!(
            format_progress(&run, 0.0, 200)
                .ends_with("  running, waits until 2026-12-01T09:00:00.000Z")
        );
    }
}
