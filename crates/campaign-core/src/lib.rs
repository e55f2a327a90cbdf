//! Campaigns: no provider is called without a reservation, none is called twice for one item, and what nobody knows is said.
//!
//! This crate is pure. It knows no clock, no disk, no network and no provider: it is told what happened, and says what to do.
//!
//! - [`Standing`]: the life of an item as a table. [`JobStatus`], [`RunStatus`]: the same for jobs and campaign runs.
//! - [`Tally`]: how the items of a job, or of a run, stand together, and what follows from that.
//! - [`ItemKey`]: what makes calling a provider again a repetition.
//! - [`Attempt`]: one try of one worker at one job, step by step: what to make durable, whom to call.

mod backoff;
mod campaign_run;
mod channel;
mod item;
mod item_counts;
mod item_key;
mod job;
mod job_attempt;

pub use backoff::ExponentialBackoff;
pub use campaign_run::{CampaignRunControl, CampaignRunStatus, CampaignRunTransition};
pub use channel::DeliveryChannel;
pub use item::{ItemReason, ItemState, ItemStatus, ItemTransition};
pub use item_counts::ItemCounts;
pub use item_key::{ItemKey, hash_parts};
pub use job::{JobStatus, JobTransition};
pub use job_attempt::{
    AttemptDirective, AttemptOutcome, AttemptStep, DispatchPolicy, ItemChange, ItemProgress,
    JobAttempt, LookupOutcome, SendOutcome,
};

/// Declares an enum that is written as text, in a column or on the wire.
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// As it is written.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// What is written so, if anything is.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.as_str() == text)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
use text_enum;
