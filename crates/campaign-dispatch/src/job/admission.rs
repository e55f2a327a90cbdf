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
        order: &impl Fn() -> AttemptDirective,
    ) -> Result<SendAdmission, Error> {
        let waited = Instant::now();
        loop {
            let (wait, is_over) = match self.try_admit(positions, at_most).await {
                SendAdmission::Admitted(admitted) => return Ok(SendAdmission::Admitted(admitted)),
                SendAdmission::Delayed(wait) => {
                    (wait, waited.elapsed() + wait > ADMISSION_WAIT_MAX)
                }
            };
            self.send_permits = None;
            if is_over || order() != AttemptDirective::Continue {
                return Ok(SendAdmission::Delayed(wait));
            }
            sleep(wait.min(self.context.lease / LEASE_RENEW_DIVISOR)).await;
            self.renew_lease_if_due().await?;
        }
    }

    /// Acquires permits at the provider, and then asks the gate which items may use them.
    async fn try_admit(&mut self, positions: &[usize], at_most: usize) -> SendAdmission {
        // Permits of an earlier try may be unused: release them first.
        self.send_permits = None;
        let at_most = match self.delivery.provider.send_permits() {
            None => at_most,
            Some(room) => match acquire_permits(
                room,
                at_most,
                ADMISSION_WAIT_MAX.min(self.context.lease / LEASE_RENEW_DIVISOR),
            )
            .await
            {
                Some(taken) => self.send_permits.insert(taken).num_permits(),
                None => return SendAdmission::Delayed(PERMIT_RETRY_DELAY),
            },
        };
        let recipients: Vec<&AudienceRecipient> = positions
            .iter()
            .map(|&position| &self.recipients[position])
            .collect();
        match self
            .delivery
            .gate
            .admit_recipients(&recipients, at_most, self.context.clock.now())
        {
            SendAdmission::Admitted(places) => {
                if let Some(taken) = &mut self.send_permits {
                    // Return the unused permits.
                    drop(taken.split(taken.num_permits().saturating_sub(places.len())));
                }
                SendAdmission::Admitted(
                    places
                        .into_iter()
                        .filter_map(|place| positions.get(place).copied())
                        .collect(),
                )
            }
            nobody @ SendAdmission::Delayed(_) => nobody,
        }
    }
}

/// Acquires at least one permit, waiting for up to `patience`, and up to `at_most` if they are
/// available at once. Returns `None` on timeout.
async fn acquire_permits(
    room: Arc<Semaphore>,
    at_most: usize,
    patience: Duration,
) -> Option<OwnedSemaphorePermit> {
    let mut taken = timeout(patience, Arc::clone(&room).acquire_owned())
        .await
        .ok()?
        .ok()?;
    while taken.num_permits() < at_most
        && let Ok(more) = Arc::clone(&room).try_acquire_owned()
    {
        taken.merge(more);
    }
    Some(taken)
}
