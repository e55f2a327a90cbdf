//! Why a campaign run that is watched does not go on, told once: it waits for a time, for people, or for a server that can send it.

use onward_api::Json;
use onward_api::campaign::{AuditListing, CampaignRun, Control};
use onward_api::problem::Problem;
use serde::Deserialize;

use crate::access::Access;
use crate::paint;

/// So many looks in a row, and it is no passing moment between two jobs.
const PASSING: u32 = 3;

/// So many looks in a row, and somebody should have begun.
const LATE: u32 = 10;

/// Entries of the audit trail that are asked for at a time.
const PAGE: u32 = 1_000;

/// What an entry of the audit trail is called that says why a run cannot reach anybody.
const UNREACHABLE: &str = "run.unreachable";

/// Why nothing is done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stall {
    /// Nothing is left but what is in doubt.
    ForVerdict,
    /// It waits, in these words.
    Waits(String),
    /// It is due, and nobody works on it.
    Idle,
}

/// What was seen of a run so far.
#[derive(Default)]
pub(super) struct Stalled {
    /// Looks in a row that found it so.
    for_verdict: u32,
    waits: u32,
    idle: u32,
    /// Why it waits, as it was said last.
    said_wait: Option<Option<String>>,
    has_said_nobody: bool,
    /// The last entry of the audit trail that was read.
    read: Option<i64>,
}

/// What such an entry says.
#[derive(Deserialize)]
struct Unreachable {
    worker: String,
    error: String,
}

impl Stalled {
    /// What there is to tell after another look.
    pub(super) fn look(&mut self, run: &CampaignRun) -> Option<Stall> {
        let CampaignRun { under_way, waits, tally, .. } = run;
        let is_still = under_way.is_none() && waits.is_none();
        let count = |before: u32, is_so: bool| if is_so { before.saturating_add(1) } else { 0 };
        self.for_verdict = count(self.for_verdict, is_still && tally.waiting == 0 && tally.in_doubt > 0);
        self.waits = count(self.waits, waits.is_some());
        let is_wanted = run.summary.control == Control::Active;
        self.idle = count(self.idle, is_still && is_wanted && tally.waiting > 0);
        if self.for_verdict >= PASSING {
            return Some(Stall::ForVerdict);
        }
        if self.idle == PASSING || (self.idle > 0 && self.idle.is_multiple_of(LATE)) {
            return Some(Stall::Idle);
        }
        let waits = waits.as_ref().filter(|_| self.waits >= PASSING)?;
        // A limit is waited for again and again.
        if self.said_wait.as_ref() == Some(&waits.why) {
            return None;
        }
        self.said_wait = Some(waits.why.clone());
        let why = waits.why.as_ref().map(|why| format!(": {}", paint::plain(why))).unwrap_or_default();
        Some(Stall::Waits(format!("it waits until {}{why}", waits.until)))
    }

    /// Why nobody works on a run that is due, if that was not told yet.
    pub(super) async fn why(&mut self, onward: &Access, run: &str) -> Result<Option<String>, Problem> {
        let mut found = None;
        loop {
            let page = onward.campaign_audit(run, AuditListing { after: self.read, limit: Some(PAGE) }).await?;
            self.read = page.entries.last().map(|last| last.entry).or(self.read);
            found = page.entries.iter().rfind(|it| it.event == UNREACHABLE).map(|it| words(&it.detail)).or(found);
            if page.next.is_none() {
                break;
            }
        }
        if found.is_some() {
            self.has_said_nobody = true;
        } else if self.idle >= LATE && !std::mem::replace(&mut self.has_said_nobody, true) {
            found = Some("nobody works on it: a server sends it (onward serve, onward dev)".to_owned());
        }
        Ok(found)
    }
}

fn words(detail: &Json) -> String {
    match serde_json::from_str::<Unreachable>(detail.as_str()) {
        Ok(Unreachable { worker, error }) => {
            format!("{} cannot send it: {}", paint::plain(&worker), paint::plain(&error))
        }
        Err(_) => format!("it cannot be sent: {}", paint::plain(detail.as_str())),
    }
}

#[cfg(test)]
mod tests {
    use onward_api::campaign::{CampaignTally, RunWaits, UnderWay};

    use super::*;
    use crate::campaign::bar::tests::run;

    /// What so many looks at a run tell.
    fn told(run: &CampaignRun, looks: u32) -> Vec<Stall> {
        let mut stalled = Stalled::default();
        (0..looks).filter_map(|_| stalled.look(run)).collect()
    }

    fn with(in_doubt: u64, waiting: u64) -> CampaignRun {
        run(10, CampaignTally { served: 10 - in_doubt - waiting, in_doubt, waiting, ..CampaignTally::default() })
    }

    #[test]
    fn only_what_is_in_doubt_waits_for_people() {
        assert_eq!(told(&with(3, 0), PASSING), [Stall::ForVerdict]);
        assert_eq!(told(&with(3, 0), PASSING - 1), [], "a job may be on its way to the next worker");
        let under_way = Some(UnderWay { jobs: 1, until: "2026-12-01T09:00:00Z".to_owned() });
        assert_eq!(told(&CampaignRun { under_way, ..with(3, 0) }, LATE), []);
        let waits = Some(RunWaits { until: "2026-12-01T09:00:00Z".to_owned(), why: None });
        assert!(!told(&CampaignRun { waits, ..with(3, 0) }, LATE).contains(&Stall::ForVerdict));
        let mut paused = with(3, 0);
        paused.summary.control = Control::Paused;
        assert_eq!(told(&paused, PASSING), [Stall::ForVerdict]);
    }

    #[test]
    fn a_run_that_is_due_and_that_nobody_works_on_is_looked_into() {
        assert_eq!(told(&with(0, 5), PASSING), [Stall::Idle]);
        assert_eq!(told(&with(1, 5), LATE), [Stall::Idle, Stall::Idle], "and again, but not each time");
        let mut paused = with(0, 5);
        paused.summary.control = Control::Paused;
        assert_eq!(told(&paused, LATE), []);
    }

    #[test]
    fn why_a_run_waits_is_told_once() {
        let mut run = with(0, 5);
        run.waits = Some(RunWaits { until: "2026-12-01T09:00:00Z".to_owned(), why: Some("busy\u{7}".to_owned()) });
        let words = "it waits until 2026-12-01T09:00:00Z: busy\\u{7}".to_owned();
        let mut stalled = Stalled::default();
        let told: Vec<Stall> = (0..LATE).filter_map(|_| stalled.look(&run)).collect();
        assert_eq!(told, [Stall::Waits(words)]);
        run.waits = Some(RunWaits { until: "2026-12-01T09:05:00Z".to_owned(), why: None });
        assert_eq!(stalled.look(&run), Some(Stall::Waits("it waits until 2026-12-01T09:05:00Z".to_owned())));
    }
}
