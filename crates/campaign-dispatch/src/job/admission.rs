//! Who may be reached now: by the limits of the provider and quiet hours, and as far as there is room for calls. Nothing is
//! reserved before, so that a crash leaves nothing in doubt that only waits for its turn.

use std::sync::Arc;
use std::time::Duration;

use onward_campaign_core::{AttemptDirective, AudienceRecipient};
use onward_store::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::{JobRunner, LEASE_RENEW_DIVISOR};
use crate::delivery::SendAdmission;

/// Nobody waits longer than this for somebody to reach.
const ADMISSION_WAIT_MAX: Duration = Duration::from_secs(2);

/// When to look for room again that was not there.
const PERMIT_RETRY_DELAY: Duration = Duration::from_millis(250);

impl JobRunner<'_> {
    /// Who of these may be reached now. A short wait is waited out; a long one frees the worker for others.
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

    /// Asks for room, and then who may be reached in it.
    async fn try_admit(&mut self, positions: &[usize], at_most: usize) -> SendAdmission {
        // Nobody may have been called in what there was.
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
                    // What is not used is for others.
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

/// Takes room for somebody, waiting for so long, and for up to so many if there is.
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
