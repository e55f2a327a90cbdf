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
            under_way,
            waits,
            tally,
            ..
        } = run;
        let is_still = under_way.is_none() && waits.is_none();
        let count = |before: u32, is_so: bool| if is_so { before.saturating_add(1) } else { 0 };
        self.in_doubt_polls = count(
            self.in_doubt_polls,
            is_still && tally.waiting == 0 && tally.in_doubt > 0,
        );
        self.waiting_polls = count(self.waiting_polls, waits.is_some());
        let is_wanted = run.summary.control == CampaignControl::Active;
        self.idle_polls = count(self.idle_polls, is_still && is_wanted && tally.waiting > 0);
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
        if self.reported_wait.as_ref() == Some(&waits.why) {
            return None;
        }
        self.reported_wait = Some(waits.why.clone());
        let why = waits
            .why
            .as_ref()
            .map(|why| format!(": {}", console::escape_control_chars(why)))
            .unwrap_or_default();
        Some(StallReason::Waiting(format!(
            "it waits until {}{why}",
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
            found =
                Some("nobody works on it: a server sends it (onward serve, onward dev)".to_owned());
        }
        Ok(found)
    }
}

fn format_unreachable(detail: &RawJson) -> String {
    match serde_json::from_str::<UnreachableDetail>(detail.as_str()) {
        Ok(UnreachableDetail { worker, error }) => {
            format!(
                "{} cannot send it: {}",
                console::escape_control_chars(&worker),
                console::escape_control_chars(&error)
            )
        }
        Err(_) => format!(
            "it cannot be sent: {}",
            console::escape_control_chars(detail.as_str())
        ),
    }
}

#[cfg(test)]
mod tests {
    use onward_api::campaign::{ActiveJobs, CampaignRunWait, CampaignTally};

    use super::*;
    use crate::campaign::progress_bar::tests::run;

    /// The stalls that the given number of polls of an unchanged run report.
    fn told(run: &CampaignRunView, looks: u32) -> Vec<StallReason> {
        let mut stalled = StallDetector::default();
        (0..looks)
            .filter_map(|_| stalled.observe_run(run))
            .collect()
    }

    fn with(in_doubt: u64, waiting: u64) -> CampaignRunView {
        run(
            10,
            CampaignTally {
                served: 10 - in_doubt - waiting,
                in_doubt,
                waiting,
                ..CampaignTally::default()
            },
        )
    }

    #[test]
    fn only_what_is_in_doubt_waits_for_people() {
        assert_eq!(
            told(&with(3, 0), STALL_POLLS),
            [StallReason::NeedsResolution]
        );
        assert_eq!(
            told(&with(3, 0), STALL_POLLS - 1),
            [],
            "a job may be on its way to the next worker"
        );
        let under_way = Some(ActiveJobs {
            jobs: 1,
            until: "2026-12-01T09:00:00Z".to_owned(),
        });
        assert_eq!(
            told(
                &CampaignRunView {
                    under_way,
                    ..with(3, 0)
                },
                IDLE_POLLS
            ),
            []
        );
        let waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00Z".to_owned(),
            why: None,
        });
        assert!(
            !told(
                &CampaignRunView {
                    waits,
                    ..with(3, 0)
                },
                IDLE_POLLS
            )
            .contains(&StallReason::NeedsResolution)
        );
        let mut paused = with(3, 0);
        paused.summary.control = CampaignControl::Paused;
        assert_eq!(told(&paused, STALL_POLLS), [StallReason::NeedsResolution]);
    }

    #[test]
    fn a_run_that_is_due_and_that_nobody_works_on_is_looked_into() {
        assert_eq!(told(&with(0, 5), STALL_POLLS), [StallReason::Idle]);
        assert_eq!(
            told(&with(1, 5), IDLE_POLLS),
            [StallReason::Idle, StallReason::Idle],
            "and again, but not each time"
        );
        let mut paused = with(0, 5);
        paused.summary.control = CampaignControl::Paused;
        assert_eq!(told(&paused, IDLE_POLLS), []);
    }

    #[test]
    fn why_a_run_waits_is_told_once() {
        let mut run = with(0, 5);
        run.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:00:00Z".to_owned(),
            why: Some("busy\u{7}".to_owned()),
        });
        let words = "it waits until 2026-12-01T09:00:00Z: busy\\u{7}".to_owned();
        let mut stalled = StallDetector::default();
        let told: Vec<StallReason> = (0..IDLE_POLLS)
            .filter_map(|_| stalled.observe_run(&run))
            .collect();
        assert_eq!(told, [StallReason::Waiting(words)]);
        run.waits = Some(CampaignRunWait {
            until: "2026-12-01T09:05:00Z".to_owned(),
            why: None,
        });
        assert_eq!(
            stalled.observe_run(&run),
            Some(StallReason::Waiting(
                "it waits until 2026-12-01T09:05:00Z".to_owned()
            ))
        );
    }
}
