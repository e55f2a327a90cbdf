//! A job: a batch of items of a campaign run, for one worker at a time.

use crate::text_enum;

text_enum! {
    /// What the table says of a job.
    JobStatus {
        /// It waits for a worker, or for a verdict.
        Queued = "queued",
        /// A worker has it.
        Locked = "locked",
        /// All of its items are settled.
        Completed = "completed",
        /// Some of its items could not be settled; it is tried again.
        Failed = "failed",
        /// Some of its items could not be settled, and it is not tried again.
        Dead = "dead",
    }
}

/// What happens to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum JobTransition {
    /// A worker takes it.
    Lock,
    /// The worker gives it back, unfinished and unharmed; or it is not heard of any more.
    Release,
    /// All of its items are settled.
    Complete,
    /// It has to be tried again.
    Fail,
    /// It has failed too often.
    DeadLetter,
    /// Somebody wants it tried again all the same.
    Redrive,
}

impl JobStatus {
    /// Where `act` leads; `None` if it is illegal.
    pub const fn next_status(self, act: JobTransition) -> Option<Self> {
        match (self, act) {
            // One that has failed is queued again when its time has come, which is when it is taken.
            (Self::Queued | Self::Failed, JobTransition::Lock) => Some(Self::Locked),
            (Self::Locked, JobTransition::Release) => Some(Self::Queued),
            (Self::Locked, JobTransition::Fail) => Some(Self::Failed),
            // A verdict may settle the last item of a job that nobody has.
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

    /// Whether a campaign run need not wait for it.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Dead)
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn the_table_is_this() {
        let acts = [
            JobTransition::Lock,
            JobTransition::Release,
            JobTransition::Complete,
            JobTransition::Fail,
            JobTransition::DeadLetter,
            JobTransition::Redrive,
        ];
        let mut table = String::new();
        for status in JobStatus::ALL {
            for act in acts {
                if let Some(next) = status.next_status(act) {
                    table.push_str(&format!("{status} {act:?} {next}\n"));
                }
            }
        }
        expect![[r#"
            queued Lock locked
            queued Complete completed
            queued Bury dead
            locked Release queued
            locked Complete completed
            locked Fail failed
            locked Bury dead
            failed Lock locked
            failed Complete completed
            failed Bury dead
            dead Redrive queued
        "#]]
        .assert_eq(&table);
    }
}
