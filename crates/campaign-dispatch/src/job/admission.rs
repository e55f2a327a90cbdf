//! Admission: which items may be sent now, by the provider's rate limits, quiet hours and available
//! permits. Items are reserved only after admission, so that a crash leaves no item in doubt that
//! was only waiting.

use std::sync::Arc;
use std::time::Duration;

use onward_campaign_core::{AttemptDirective, AudienceRecipient};
use onward_store::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::{JobRunner, LEASE_RENEW_DIVISOR};
use crate::delivery::SendAdmission;

/// Maximum time that a worker waits for admission before it postpones the job.
const ADMISSION_WAIT_MAX: Duration = Duration::from_secs(2);

/// Delay before permits are requested again when none was available.
const PERMIT_RETRY_DELAY: Duration = Duration::from_millis(250);

impl JobRunner<'_> {
    /// Returns which of these items may be sent now. The worker waits out a short delay; a long
    /// delay is returned, so that the worker is free for other jobs.
    pub(super) async fn admit_items(
        &mut self,
        positions: &[usize],
        at_most: usize,
        directive: &impl Fn() -> AttemptDirective,
    ) -> Result<SendAdmission, Error> {
        let started_at = Instant::now();
        loop {
            let delay = match self.try_admit(positions, at_most).await {
                SendAdmission::Admitted(admitted) => return Ok(SendAdmission::Admitted(admitted)),
                SendAdmission::Delayed(delay) => delay,
            };
            self.send_permits = None;
            let is_too_long = started_at.elapsed() + delay > ADMISSION_WAIT_MAX;
            if is_too_long || directive() != AttemptDirective::Continue {
                return Ok(SendAdmission::Delayed(delay));
            }
            sleep(delay.min(self.context.lease / LEASE_RENEW_DIVISOR)).await;
            self.renew_lease_if_due().await?;
        }
    }

    /// Returns which of these items may be sent now, or `None` if the worker has to wait. It has to
    /// if the provider limits the sends of this process: the permits of the last sends are released
    /// only when their outcomes are stored, so that a crash leaves no more items in doubt than
    /// there are permits.
    pub(super) fn admit_at_once(&self, positions: &[usize], at_most: usize) -> Option<Vec<usize>> {
        if self.delivery.provider.send_permits().is_some() {
            return None;
        }
        match self.ask_gate(positions, at_most) {
            SendAdmission::Admitted(admitted) => Some(admitted),
            SendAdmission::Delayed(_) => None,
        }
    }

    /// Asks the gate which of the items at these positions may be sent now.
    fn ask_gate(&self, positions: &[usize], at_most: usize) -> SendAdmission {
        let recipients: Vec<&AudienceRecipient> = positions
            .iter()
            .map(|&position| &self.recipients[position])
            .collect();
        match self
            .delivery
            .gate
            .admit_recipients(&recipients, at_most, self.context.clock.now())
        {
            SendAdmission::Admitted(indexes) => SendAdmission::Admitted(
                indexes
                    .into_iter()
                    .filter_map(|index| positions.get(index).copied())
                    .collect(),
            ),
            delayed @ SendAdmission::Delayed(_) => delayed,
        }
    }

    /// Acquires permits at the provider, and then asks the gate which items may use them.
    async fn try_admit(&mut self, positions: &[usize], at_most: usize) -> SendAdmission {
        // Permits of an earlier try may be unused: release them first.
        self.send_permits = None;
        let at_most = match self.delivery.provider.send_permits() {
            None => at_most,
            Some(permits) => match acquire_permits(
                permits,
                at_most,
                ADMISSION_WAIT_MAX.min(self.context.lease / LEASE_RENEW_DIVISOR),
            )
            .await
            {
                Some(acquired) => self.send_permits.insert(acquired).num_permits(),
                None => return SendAdmission::Delayed(PERMIT_RETRY_DELAY),
            },
        };
        let admission = self.ask_gate(positions, at_most);
        if let (SendAdmission::Admitted(admitted), Some(permits)) =
            (&admission, &mut self.send_permits)
        {
            // Return the unused permits.
            drop(permits.split(permits.num_permits().saturating_sub(admitted.len())));
        }
        admission
    }
}

/// Acquires at least one permit, waiting for up to `max_wait`, and up to `at_most` if they are
/// available at once. Returns `None` on timeout.
async fn acquire_permits(
    permits: Arc<Semaphore>,
    at_most: usize,
    max_wait: Duration,
) -> Option<OwnedSemaphorePermit> {
    let mut acquired = timeout(max_wait, Arc::clone(&permits).acquire_owned())
        .await
        .ok()?
        .ok()?;
    while acquired.num_permits() < at_most
        && let Ok(more) = Arc::clone(&permits).try_acquire_owned()
    {
        acquired.merge(more);
    }
    Some(acquired)
}
