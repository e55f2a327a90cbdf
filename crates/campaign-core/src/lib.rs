//! The pure core of campaigns: no provider call without a reservation, at most one call per
//! idempotency key, and every unknown outcome recorded as in doubt.
//!
//! This crate performs no I/O and reads no clock: it is given what happened and returns what to do.
//!
//! - [`ItemState`]: the states of an outbox item as a transition table; [`JobStatus`] and
//!   [`CampaignRunStatus`]: the same for jobs and campaign runs.
//! - [`ItemCounts`]: items of a job or run by state, and the status that follows.
//! - [`ItemKey`]: the idempotency key of an item.
//! - [`JobAttempt`]: one attempt of one worker at one job: what to commit and which items to send.
//! - [`AudienceRecipient`], [`RenderedMessage`], [`ComposeMessage`]: recipients and their messages.

mod backoff;
mod campaign_run;
mod channel;
mod item;
mod item_counts;
mod item_key;
mod job;
mod job_attempt;
mod message;

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
pub use message::{AudienceRecipient, ComposeMessage, RenderedMessage};

/// Declares an enum whose variants have a fixed text form, used in columns and on the wire.
macro_rules! text_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($text),+].len()] = [$(Self::$variant),+];

            /// The text form that columns and the wire use.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }

            /// Returns the variant with this text form, or `None` if no variant has it.
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
