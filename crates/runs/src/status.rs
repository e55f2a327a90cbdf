//! Status values of runs and steps, with their names in JSON and in output.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! status_words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident $word:literal,)+ })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        pub enum $name { $(
            $(#[$word_doc])*
            #[serde(rename = $word)]
            $variant,
        )+ }

        impl $name {
            /// All values, in order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the name used in JSON and in output.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    )+};
}

status_words! {
    /// Status of a run.
    RunStatus {
        /// The run was requested and has not started.
        Pending "PENDING",
        /// The run is approved and may start.
        Approved "APPROVED",
        /// The run has started; steps may start.
        Running "RUNNING",
        /// The run is paused; no further steps start.
        Paused "PAUSED",
        /// The run completed successfully.
        Completed "COMPLETED",
        /// The run ended with an error.
        Failed "FAILED",
        /// The cancellation of the run is final.
        Cancelled "CANCELLED",
    }

    /// Detail of a run's status.
    RunSubstatus {
        /// The run is paused, and steps that were running still run.
        Draining "DRAINING",
        /// A step runs again after it failed.
        Retrying "RETRYING",
        /// Cancellation was requested and is not final yet.
        Cancelling "CANCELLING",
        /// The run waits for an approval.
        WaitingApproval "WAITING_APPROVAL",
        /// The history of the run is being rotated.
        ContinueAsNew "CONTINUE_AS_NEW",
    }

    /// Status of a step or of one of its attempts.
    StepStatus {
        /// No event has named the step yet.
        Pending "PENDING",
        /// The step has started.
        Running "RUNNING",
        /// The step completed successfully.
        Success "SUCCESS",
        /// The step ended with an error and may be retried.
        Failed "FAILED",
        /// The step will not run.
        Skipped "SKIPPED",
    }
}

impl RunStatus {
    /// Returns `true` if no further run or step event can follow.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_has_the_same_name_in_json_and_on_display() {
        for status in RunStatus::ALL {
            assert_eq!(
                serde_json::to_string(status).unwrap(),
                format!("\"{status}\"")
            );
        }
        let retrying: RunSubstatus = serde_json::from_str("\"RETRYING\"").unwrap();
        assert_eq!(retrying, RunSubstatus::Retrying);
        assert!(serde_json::from_str::<StepStatus>("\"success\"").is_err());
    }

    #[test]
    fn three_statuses_are_final() {
        let last: Vec<_> = RunStatus::ALL
            .iter()
            .filter(|status| status.is_terminal())
            .map(|it| it.as_str())
            .collect();
        assert_eq!(last, ["COMPLETED", "FAILED", "CANCELLED"]);
    }
}
