//! When people may be reached: not in quiet hours, and so many in which time.

use std::sync::Arc;
use std::time::Duration;

use onward_campaign::Quiet;
use onward_dispatcher::{Admission, Gate, Recipient};
use onward_journal::Timestamp;
use onward_providers::Throttle;

/// The quiet hours of a campaign, and the limits of its provider, which other campaigns share.
pub(crate) struct Hours {
    pub(crate) quiet: Option<Quiet>,
    pub(crate) throttle: Arc<Throttle>,
}

impl Gate for Hours {
    fn admit(&self, recipients: &[&Recipient], at_most: usize, now: Timestamp) -> Admission {
        Admission::of(recipients, at_most, |recipient| {
            // Whoever sleeps takes no place from those who do not.
            let quiet = self.quiet.as_ref().and_then(|quiet| quiet.wait_for(recipient, now));
            quiet.map_or_else(|| self.throttle.take(&recipient.address, now), Err)
        })
    }

    fn hold(&self, wait: Duration, now: Timestamp) {
        self.throttle.hold(wait, now);
    }
}
