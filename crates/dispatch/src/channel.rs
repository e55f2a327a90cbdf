//! How recipients are reached.

use crate::{ItemStatus, words};

words! {
    /// How recipients are reached.
    Channel {
        /// By mail.
        Email = "email",
        /// By a call.
        Voice = "voice",
        /// By a post.
        Social = "social",
    }
}

impl Channel {
    /// What a job of this channel is called.
    pub const fn job_type(self) -> &'static str {
        match self {
            Self::Email => "email_send_batch",
            Self::Voice => "voice_call_batch",
            Self::Social => "social_post_batch",
        }
    }

    /// The status of an item that the provider has accepted.
    pub const fn served(self) -> ItemStatus {
        match self {
            Self::Email => ItemStatus::Sent,
            Self::Voice => ItemStatus::Called,
            Self::Social => ItemStatus::Posted,
        }
    }
}
