//! Campaigns: no provider is called without a reservation, none is called twice for one item, and what nobody knows is said.
//!
//! This crate is pure. It knows no clock, no disk, no network and no provider: it is told what happened, and says what to do.
//!
//! - [`Standing`]: the life of an item as a table. [`JobStatus`], [`RunStatus`]: the same for jobs and campaign runs.
//! - [`Tally`]: how the items of a job, or of a run, stand together, and what follows from that.
//! - [`ItemKey`]: what makes calling a provider again a repetition.
//! - [`Attempt`]: one try of one worker at one job, step by step: what to make durable, whom to call.

mod job_attempt;
mod backoff;
mod channel;
mod item;
mod job;
mod item_key;
mod campaign_run;
mod item_counts;

pub use job_attempt::{SendOutcome, JobAttempt, ItemChange, AttemptOutcome, LookupOutcome, AttemptDirective, ItemProgress, AttemptStep, DispatchPolicy};
pub use backoff::ExponentialBackoff;
pub use channel::DeliveryChannel;
pub use item::{ItemTransition, ItemStatus, ItemReason, ItemState};
pub use job::{JobTransition, JobStatus};
pub use item_key::{ItemKey, hash_parts};
pub use campaign_run::{CampaignRunControl, CampaignRunTransition, CampaignRunStatus};
pub use item_counts::ItemCounts;

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
