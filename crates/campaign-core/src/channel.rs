//! Delivery channels, and the job type and item status that belong to each.

use onward_base::text_enum;

use crate::ItemStatus;

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

text_enum! {
    /// The type of a job as stored in its row: what it does with its batch of items.
    JobType {
        /// Sends a batch of emails.
        EmailSendBatch = "email_send_batch",
        /// Makes a batch of phone calls.
        VoiceCallBatch = "voice_call_batch",
        /// Publishes a batch of posts.
        SocialPostBatch = "social_post_batch",
    }
}

impl DeliveryChannel {
    /// The job type of a job of this channel.
    pub const fn job_type(self) -> JobType {
        match self {
            Self::Email => JobType::EmailSendBatch,
            Self::Voice => JobType::VoiceCallBatch,
            Self::Social => JobType::SocialPostBatch,
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
