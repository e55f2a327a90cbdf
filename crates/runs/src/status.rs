//! The words for where a run and its steps stand.

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
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The word for it.
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
    /// Where a run is in its life.
    RunStatus {
        /// It was asked for.
        Pending "PENDING",
        /// It may start.
        Approved "APPROVED",
        /// Steps may start.
        Running "RUNNING",
        /// Nothing new starts.
        Paused "PAUSED",
        /// It ended well.
        Completed "COMPLETED",
        /// It ended with an error.
        Failed "FAILED",
        /// Its cancellation is final.
        Cancelled "CANCELLED",
    }

    /// What a run is at, within its status.
    RunSubstatus {
        /// It is paused, and steps that were running still are.
        Draining "DRAINING",
        /// A step runs again after it failed.
        Retrying "RETRYING",
        /// Cancellation was requested and is not final yet.
        Cancelling "CANCELLING",
        /// Somebody has to approve.
        WaitingApproval "WAITING_APPROVAL",
        /// Its history is being rotated.
        ContinueAsNew "CONTINUE_AS_NEW",
    }

    /// Where a step, or one attempt of it, is in its life.
    StepStatus {
        /// Nothing happened to it yet.
        Pending "PENDING",
        /// It was started.
        Running "RUNNING",
        /// It ended well.
        Success "SUCCESS",
        /// It ended with an error, and may be tried again.
        Failed "FAILED",
        /// It will not run.
        Skipped "SKIPPED",
    }
}

impl RunStatus {
    /// Whether nothing can follow.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_same_in_json_and_for_people() {
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
