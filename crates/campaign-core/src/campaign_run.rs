//! A campaign run: one execution of a campaign.

use crate::text_enum;

text_enum! {
    /// What the table says of a campaign run.
    CampaignRunStatus {
        /// Nobody has begun.
        Queued = "queued",
        /// Its jobs are being worked on.
        Running = "running",
        /// Everybody was reached who was to be.
        Completed = "completed",
        /// Some were reached.
        Partial = "partial",
        /// Nobody was reached.
        Failed = "failed",
    }
}

text_enum! {
    /// What people want of a campaign run.
    CampaignRunControl {
        /// That it goes on.
        Active = "active",
        /// That nothing more is begun for now.
        Paused = "paused",
        /// That nothing more is begun.
        Cancelled = "cancelled",
    }
}

/// What happens to a campaign run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CampaignRunTransition {
    /// The first of its jobs is taken.
    Start,
    /// All of its jobs are over, and this is what they came to.
    Finish(CampaignRunStatus),
    /// Some of its jobs are tried again.
    Reopen,
}

impl CampaignRunStatus {
    /// Where `act` leads; `None` if it is illegal.
    pub fn next_status(self, act: CampaignRunTransition) -> Option<Self> {
        match (self, act) {
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

    /// Whether nothing follows, unless somebody wants it to.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Partial | Self::Failed)
    }
}

impl CampaignRunControl {
    /// What becomes of it when somebody wants `next`; `None` if that cannot be.
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
    fn the_tables_are_these() {
        let ends = CampaignRunStatus::ALL
            .into_iter()
            .map(CampaignRunTransition::Finish);
        let acts: Vec<CampaignRunTransition> =
            [CampaignRunTransition::Start, CampaignRunTransition::Reopen]
                .into_iter()
                .chain(ends)
                .collect();
        let mut table = String::new();
        for status in CampaignRunStatus::ALL {
            for act in &acts {
                if let Some(next) = status.next_status(*act) {
                    table.push_str(&format!("{status} {act:?} {next}\n"));
                }
            }
        }
        for control in CampaignRunControl::ALL {
            for wanted in CampaignRunControl::ALL {
                if let Some(next) = control.transition_to(wanted) {
                    table.push_str(&format!("{control} {wanted:?} {next}\n"));
                }
            }
        }
        expect![[r#"
            queued Begin running
            queued End(Completed) completed
            queued End(Partial) partial
            queued End(Failed) failed
            running End(Completed) completed
            running End(Partial) partial
            running End(Failed) failed
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
