//! Delivery channels, and the job type and item status that belong to each.

use crate::{ItemStatus, text_enum};

text_enum! {
    /// The channel through which a campaign reaches its recipients.
    DeliveryChannel {
        /// Messages sent by email.
        Email = "email",
        /// Phone calls.
        Voice = "voice",
        /// Posts on social media.
        Social = "social",
    }
}

impl DeliveryChannel {
    /// The job type of a job of this channel.
    pub const fn job_type(self) -> &'static str {
        match self {
            Self::Email => "email_send_batch",
            Self::Voice => "voice_call_batch",
            Self::Social => "social_post_batch",
        }
    }

    /// The status of an item that the provider has accepted.
    pub const fn accepted_status(self) -> ItemStatus {
        match self {
            Self::Email => ItemStatus::Sent,
            Self::Voice => ItemStatus::Called,
            Self::Social => ItemStatus::Posted,
        }
    }
}
