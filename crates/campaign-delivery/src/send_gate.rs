//! Admission of sends: outside quiet hours, and within the rate limits.

use std::sync::Arc;
use std::time::Duration;

use crate::RateLimiter;
use onward_base::Timestamp;
use onward_campaign_core::AudienceRecipient;
use onward_campaign_dispatch::{AdmissionGate, SendAdmission};
use onward_campaign_file::QuietHours;

/// The quiet hours of a campaign and the rate limiter of its provider, which other campaigns share.
pub(crate) struct SendGate {
    pub(crate) quiet_hours: Option<QuietHours>,
    pub(crate) rate_limiter: Arc<RateLimiter>,
}

impl AdmissionGate for SendGate {
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        at_most: usize,
        now: Timestamp,
    ) -> SendAdmission {
        SendAdmission::admit_each(recipients, at_most, |recipient| {
            // Quiet hours are checked first, so that a recipient in quiet hours does not use up the
            // rate limit.
            let quiet = self
                .quiet_hours
                .as_ref()
                .and_then(|quiet| quiet.wait_for_recipient(recipient, now));
            quiet.map_or_else(
                || self.rate_limiter.try_acquire(&recipient.address, now),
                Err,
            )
        })
    }

    fn pause_sends(&self, wait: Duration, now: Timestamp) {
        self.rate_limiter.pause_for(wait, now);
    }
}
