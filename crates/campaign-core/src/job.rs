//! A job: a batch of items of a campaign run, for one worker at a time.

use onward_base::text_enum;

text_enum! {
    /// The status of a job as stored in its row.
    JobStatus {
        /// The job waits for a worker, or for an operator to resolve items in doubt.
        Queued = "queued",
        /// A worker holds the claim on the job.
        Locked = "locked",
        /// All of its items are settled.
        Completed = "completed",
        /// Some of its items could not be settled; the job will be retried.
        Failed = "failed",
        /// Some of its items could not be settled, and the job will not be retried.
        Dead = "dead",
    }
}

/// An event that changes the status of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobTransition {
    /// A worker claims the job.
    Lock,
    /// The worker releases the job unfinished and not failed, or its lease expired.
    Release,
    /// All of its items are settled.
    Complete,
    /// The attempt failed, and the job has to be retried.
    Fail,
    /// The job has failed too often and becomes a dead letter.
    DeadLetter,
    /// An operator redrives a dead job.
    Redrive,
}

impl JobStatus {
    /// Returns the status after this transition, or `None` if it is illegal.
    pub const fn next_status(self, transition: JobTransition) -> Option<Self> {
        match (self, transition) {
            // A failed job returns to the queue when its backoff has passed, which is when it is
            // claimed.
            (Self::Queued | Self::Failed, JobTransition::Lock) => Some(Self::Locked),
            (Self::Locked, JobTransition::Release) => Some(Self::Queued),
            (Self::Locked, JobTransition::Fail) => Some(Self::Failed),
            // An operator's resolution may settle the last item of a job that no worker has
            // claimed.
            (Self::Locked | Self::Queued | Self::Failed, JobTransition::Complete) => {
                Some(Self::Completed)
            }
            (Self::Locked | Self::Queued | Self::Failed, JobTransition::DeadLetter) => {
                Some(Self::Dead)
            }
            (Self::Dead, JobTransition::Redrive) => Some(Self::Queued),
            (Self::Queued | Self::Locked | Self::Completed | Self::Failed | Self::Dead, _) => None,
        }
    }

    /// Whether the job has ended, so that its campaign run need not wait for it.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Dead)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_transition_table_of_jobs_is_complete() {
        let transitions = [
            JobTransition::Lock,
            JobTransition::Release,
            JobTransition::Complete,
            JobTransition::Fail,
            JobTransition::DeadLetter,
            JobTransition::Redrive,
        ];
        let mut table = String::new();
        for status in JobStatus::ALL {
            for transition in transitions {
                if let Some(next) = status.next_status(transition) {
                    table.push_str(&format!("{status} {transition:?} {next}\n"));
                }
            }
        }
        expect![[r#"
            queued Lock locked
            queued Complete completed
            queued DeadLetter dead
            locked Release queued
            locked Complete completed
            locked Fail failed
            locked DeadLetter dead
            failed Lock locked
            failed Complete completed
            failed DeadLetter dead
            dead Redrive queued
        "#]]
        .assert_eq(&table);
    }
}
