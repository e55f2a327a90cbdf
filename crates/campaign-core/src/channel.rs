//! How recipients are reached.

use crate::{ItemStatus, text_enum};

text_enum! {
    /// How recipients are reached.
    DeliveryChannel {
        /// By mail.
        Email = "email",
        /// By a call.
        Voice = "voice",
        /// By a post.
        Social = "social",
    }
}

impl DeliveryChannel {
    /// What a job of this channel is called.
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
