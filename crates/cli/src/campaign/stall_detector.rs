//! Explains, once per cause, why a watched campaign run makes no progress: it waits for a time, for
//! an operator to settle items in doubt, or for a server that can send it.

use onward_api::RawJson;
use onward_api::campaign::{CampaignControl, CampaignRunView, ListAuditEntriesQuery};
use onward_api::problem::Problem;
use serde::Deserialize;

use crate::connection::TargetConnection;
use crate::console;

/// Consecutive polls after which a state counts as a stall and not as a short gap between two jobs.
const STALL_POLLS: u32 = 3;

/// Consecutive polls after which a dispatcher should have started on a run that is due.
const IDLE_POLLS: u32 = 10;

/// Number of audit trail entries per request.
const AUDIT_PAGE_SIZE: u32 = 1_000;

/// Name of the audit event that records why a dispatcher cannot send a run.
const UNREACHABLE_EVENT: &str = "run.unreachable";

/// Why a run makes no progress.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StallReason {
    /// Only items in doubt are left; an operator has to settle them.
    NeedsResolution,
    /// The run waits for a time; holds the message to print.
    Waiting(String),
    /// The run is due, and no dispatcher works on it.
    Idle,
}

/// What the polls of a run have shown so far.
#[derive(Default)]
pub(super) struct StallDetector {
    /// Consecutive polls that found only items in doubt; the other counters work the same way.
    in_doubt_polls: u32,
    waiting_polls: u32,
    idle_polls: u32,
    /// The reason for waiting that was reported last. `None` if none was reported yet.
    reported_wait: Option<Option<String>>,
    has_reported_idle: bool,
    /// Id of the last audit entry that was read.
    last_audit_entry: Option<i64>,
}

/// Detail of a [`UNREACHABLE_EVENT`] entry.
#[derive(Deserialize)]
struct UnreachableDetail {
    worker: String,
    error: String,
}

impl StallDetector {
    /// Takes the result of another poll. Returns a stall that is to be reported now.
    pub(super) fn observe_run(&mut self, run: &CampaignRunView) -> Option<StallReason> {
        let CampaignRunView {
            active_jobs,
            waits,
            counts,
            ..
        } = run;
        let is_idle = active_jobs.is_none() && waits.is_none();
        let count = |polls: u32, holds: bool| if holds { polls.saturating_add(1) } else { 0 };
        self.in_doubt_polls = count(
            self.in_doubt_polls,
            is_idle && counts.waiting == 0 && counts.in_doubt > 0,
        );
        self.waiting_polls = count(self.waiting_polls, waits.is_some());
        let is_active = run.summary.control == CampaignControl::Active;
        self.idle_polls = count(self.idle_polls, is_idle && is_active && counts.waiting > 0);
        if self.in_doubt_polls >= STALL_POLLS {
            return Some(StallReason::NeedsResolution);
        }
        if self.idle_polls == STALL_POLLS
            || (self.idle_polls > 0 && self.idle_polls.is_multiple_of(IDLE_POLLS))
        {
            return Some(StallReason::Idle);
        }
        let waits = waits
            .as_ref()
            .filter(|_| self.waiting_polls >= STALL_POLLS)?;
        // A run at its rate limit waits again and again for the same reason.
        if self.reported_wait.as_ref() == Some(&waits.error) {
            return None;
        }
        self.reported_wait = Some(waits.error.clone());
        let why = waits
            .error
            .as_ref()
            .map(|why| format!(": {}", console::escape_control_chars(why)))
            .unwrap_or_default();
        Some(StallReason::Waiting(format!(
            "waiting until {}{why}",
            waits.until
        )))
    }

    /// Returns why no dispatcher works on a run that is due. `None` if that was reported before.
    pub(super) async fn explain_idle(
        &mut self,
        onward: &TargetConnection,
        run: &str,
    ) -> Result<Option<String>, Problem> {
        let mut found = None;
        loop {
            let page = onward
                .list_audit_entries(
                    run,
                    ListAuditEntriesQuery {
                        after: self.last_audit_entry,
                        limit: Some(AUDIT_PAGE_SIZE),
                    },
                )
                .await?;
            self.last_audit_entry = page
                .entries
                .last()
                .map(|last| last.entry)
                .or(self.last_audit_entry);
            found = page
                .entries
                .iter()
                .rfind(|it| it.event == UNREACHABLE_EVENT)
                .map(|it| format_unreachable(&it.detail))
                .or(found);
            if page.next.is_none() {
                break;
            }
        }
        if found.is_some() {
            self.has_reported_idle = true;
        } else if self.idle_polls >= IDLE_POLLS
            && !std::mem::replace(&mut self.has_reported_idle, true)
        {
            found = Some(
                "no dispatcher works on the run: start a server (onward serve, onward dev)"
                    .to_owned(),
            );
        }
        Ok(found)
    }
}

fn format_unreachable(detail: &RawJson) -> String {
    match serde_json::from_str::<UnreachableDetail>(detail.as_str()) {
        Ok(UnreachableDetail { worker, error }) => {
            format!(
                "{} cannot send the run: {}",
                console::escape_control_chars(&worker),
                console::escape_control_chars(&error)
            )
        }
        Err(_) => format!(
            "the run cannot be sent: {}",
            console::escape_control_chars(detail.as_str())
        ),
    }
}

#[cfg(test)]
mod tests {
    use onward_api::campaign::{ActiveJobs, CampaignItemCounts, CampaignRunWait};

    use super::*;
    use crate::campaign::progress_bar::tests::run;

    /// The stalls that the given number of polls of an unchanged run report.
    fn stalls(run: &CampaignRunView, polls: u32) -> Vec<StallReason> {
        let mut detector = StallDetector::default();
        (0..polls)
            .filter_map(|_| detector.observe_run(run))
            .collect()
    }

    fn run_with(in_doubt: u64, waiting: u64) -> CampaignRunView {
        run(
            10,
            CampaignItemCounts {
                sent: 10 - in_doubt - waiting,
                in_doubt,
                waiting,
                ..CampaignItemCounts::default()
            },
        )
    }

    #[test]
    fn a_run_with_only_items_in_doubt_needs_an_operator() {
        assert_eq!(
            stalls(&run_with(3, 0), STALL_POLLS),
            [StallReason::NeedsResolution]
        );
        assert_eq!(
            stalls(&run_with(3, 0), STALL_POLLS - 1),
            [],
            "another dispatcher may be about to claim the job"
        );
        let active_jobs = Some(ActiveJobs {
            jobs: 1,
            leased_until: "2026-12-01T09:00:00Z".to_owned(),
        });
        assert_eq!(
            stalls(
                &CampaignRunView {
                    active_jobs,
                    ..run_with(3, 0)
                },
                IDLE_POLLS
            ),
            []
        );
        let waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00Z".to_owned(),
            error: None,
        });
        assert!(
            !stalls(
                &CampaignRunView {
                    waits,
                    ..run_with(3, 0)
                },
                IDLE_POLLS
            )
            .contains(&StallReason::NeedsResolution)
        );
        let mut paused = run_with(3, 0);
        paused.summary.control = CampaignControl::Paused;
        assert_eq!(stalls(&paused, STALL_POLLS), [StallReason::NeedsResolution]);
    }

    #[test]
    fn a_due_run_without_a_dispatcher_is_reported() {
        assert_eq!(stalls(&run_with(0, 5), STALL_POLLS), [StallReason::Idle]);
        assert_eq!(
            stalls(&run_with(1, 5), IDLE_POLLS),
            [StallReason::Idle, StallReason::Idle],
            "reported again, but not at every poll"
        );
        let mut paused = run_with(0, 5);
        paused.summary.control = CampaignControl::Paused;
        assert_eq!(stalls(&paused, IDLE_POLLS), []);
    }

    #[test]
    fn the_reason_for_a_wait_is_reported_once() {
        let mut run = run_with(0, 5);
        run.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00Z".to_owned(),
            error: Some("busy\u{7}".to_owned()),
        });
        let message = "waiting until 2026-12-01T09:00:00Z: busy\\u{7}".to_owned();
        let mut detector = StallDetector::default();
        let reported: Vec<StallReason> = (0..IDLE_POLLS)
            .filter_map(|_| detector.observe_run(&run))
            .collect();
        assert_eq!(reported, [StallReason::Waiting(message)]);
        run.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:05:00Z".to_owned(),
            error: None,
        });
        assert_eq!(
            detector.observe_run(&run),
            Some(StallReason::Waiting(
                "waiting until 2026-12-01T09:05:00Z".to_owned()
            ))
        );
    }
}
