//! A campaign run: one dispatch of a campaign to an audience, with its status and the operator's
//! control.

use onward_base::text_enum;

text_enum! {
    /// The status of a campaign run as stored in its row.
    CampaignRunStatus {
        /// No job of the run has started.
        Queued = "queued",
        /// Workers are processing its jobs.
        Running = "running",
        /// The run ended with no failed item and was not cut short.
        Completed = "completed",
        /// The run ended with at least one accepted item, but with failed items or cut short.
        Partial = "partial",
        /// The run ended with failed items or cut short, and no item was accepted.
        Failed = "failed",
    }
}

text_enum! {
    /// The control that an operator has set on a campaign run.
    CampaignRunControl {
        /// The run continues.
        Active = "active",
        /// No new sends start until the run is resumed.
        Paused = "paused",
        /// No new sends start, for good.
        Cancelled = "cancelled",
    }
}

/// An event that changes the status of a campaign run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CampaignRunTransition {
    /// A worker claims the first of its jobs.
    Start,
    /// All of its jobs have ended; carries the final status.
    Finish(CampaignRunStatus),
    /// Some of its jobs are redriven.
    Reopen,
}

impl CampaignRunStatus {
    /// Returns the status after this transition, or `None` if it is illegal.
    pub fn next_status(self, transition: CampaignRunTransition) -> Option<Self> {
        match (self, transition) {
            (Self::Queued, CampaignRunTransition::Start) => Some(Self::Running),
            (Self::Queued | Self::Running, CampaignRunTransition::Finish(outcome))
                if outcome.is_terminal() =>
            {
                Some(outcome)
            }
            (Self::Partial | Self::Failed, CampaignRunTransition::Reopen) => Some(Self::Running),
            _ => None,
        }
    }

    /// Whether the run has ended. A `Partial` or `Failed` run can still be reopened.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed)
    }
}

impl CampaignRunControl {
    /// Returns the control after a request for `next`, or `None` if the change is illegal: a
    /// cancelled run stays cancelled.
    pub const fn transition_to(self, next: Self) -> Option<Self> {
        match (self, next) {
            (Self::Active | Self::Paused, Self::Active | Self::Paused | Self::Cancelled) => {
                Some(next)
            }
            (Self::Cancelled, Self::Cancelled) => Some(next),
            (Self::Cancelled, Self::Active | Self::Paused) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_transition_tables_of_runs_and_controls_are_complete() {
        let finishes = CampaignRunStatus::ALL
            .into_iter()
            .map(CampaignRunTransition::Finish);
        let transitions: Vec<CampaignRunTransition> =
            [CampaignRunTransition::Start, CampaignRunTransition::Reopen]
                .into_iter()
                .chain(finishes)
                .collect();
        let mut table = String::new();
        for status in CampaignRunStatus::ALL {
            for transition in &transitions {
                if let Some(next) = status.next_status(*transition) {
                    table.push_str(&format!("{status} {transition:?} {next}\n"));
                }
            }
        }
        for control in CampaignRunControl::ALL {
            for requested in CampaignRunControl::ALL {
                if let Some(next) = control.transition_to(requested) {
                    table.push_str(&format!("{control} {requested:?} {next}\n"));
                }
            }
        }
        expect![[r#"
            queued Start running
            queued Finish(Completed) completed
            queued Finish(Partial) partial
            queued Finish(Failed) failed
            running Finish(Completed) completed
            running Finish(Partial) partial
            running Finish(Failed) failed
            partial Reopen running
            failed Reopen running
            active Active active
            active Paused paused
            active Cancelled cancelled
            paused Active active
            paused Paused paused
            paused Cancelled cancelled
            cancelled Cancelled cancelled
        "#]]
        .assert_eq(&table);
    }
}
