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

mod campaign_run;
mod channel;
mod item;
mod item_counts;
mod item_key;
mod job;
mod job_attempt;
mod message;

pub use campaign_run::{CampaignRunControl, CampaignRunStatus, CampaignRunTransition};
pub use channel::{DeliveryChannel, JobType};
pub use item::{ItemReason, ItemState, ItemStatus, ItemTransition, QueuedItemState};
pub use item_counts::{ItemCounts, RunCoverage};
pub use item_key::{ItemKey, hash_parts};
pub use job::{JobStatus, JobTransition};
pub use job_attempt::{
    AttemptDirective, AttemptOutcome, AttemptStep, DispatchPolicy, ItemChange, ItemProgress,
    JobAttempt, LookupOutcome, SendOutcome,
};
pub use message::{AudienceRecipient, ComposeError, ComposeMessage, RenderedMessage};
