//! Sends reserved items to the provider and looks up items in doubt, while the lease of the job is
//! renewed.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use onward_base::SharedText;
use onward_campaign_core::{
    AudienceRecipient, ComposeError, LookupOutcome, RenderedMessage, SendOutcome,
};
use onward_store::tables::JobRow;
use onward_store::{ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, StoreErrorKind};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{JobRunner, LEASE_RENEW_DIVISOR, STORE_RETRY_DELAY};
use crate::delivery::Provider;
use crate::reservation::Reservation;
use crate::row_mapping;

/// No call starts when less than 1/`LEASE_MARGIN_DIVISOR` of the lease is left: it would not finish
/// in time.
const LEASE_MARGIN_DIVISOR: u32 = 10;

impl JobRunner<'_> {
    /// Calls the provider and renews the lease meanwhile. Returns `None` without calling if the
    /// lease may expire too soon.
    pub(super) async fn send_items(
        &mut self,
        positions: &[usize],
    ) -> Result<Option<Vec<(usize, SendOutcome)>>, Error> {
        let Some(durable) = self.durable_commit.take() else {
            return Ok(None);
        };
        let (mut outcomes, mut reservations) = (Vec::new(), Vec::new());
        let compose =
            |&position: &usize| (position, self.compose_message(&self.recipients[position]));
        for (position, composed) in
            run_blocking(|| positions.iter().map(compose).collect::<Vec<_>>())
        {
            let Some((row, _)) = &self.rows[position] else {
                continue;
            };
            match composed {
                Ok(message) => reservations.extend(durable.reserve_item(row, message)),
                Err(error) => {
                    let outcome = SendOutcome::InvalidMessage(error.to_string().into());
                    outcomes.push((position, outcome));
                }
            }
        }
        // A worker that was suspended must not send items that another worker has marked in doubt
        // meanwhile. If the lease can still be renewed, no other worker has claimed the job.
        let is_late = |runner: &Self| {
            Instant::now() + runner.context.lease / LEASE_MARGIN_DIVISOR >= runner.lease_until
        };
        if is_late(self) && (!self.renew_lease().await? || is_late(self)) {
            return Ok(None);
        }
        let batch = self.delivery.provider.capabilities().max_batch.max(1);
        let mut calls = Vec::new();
        while !reservations.is_empty() {
            let rest = reservations.split_off(batch.min(reservations.len()));
            let reserved = std::mem::replace(&mut reservations, rest);
            let provider = Arc::clone(&self.delivery.provider);
            calls.push(deliver_reserved(provider, reserved, self.delivery.timeout));
        }
        let mut sending = std::pin::pin!(join_all(calls));
        let replies = loop {
            let renew_at =
                self.lease_until - (self.context.lease - self.context.lease / LEASE_RENEW_DIVISOR);
            tokio::select! {
                biased;
                replies = &mut sending => break replies,
                () = sleep_until(renew_at) => {
                    if !self.renew_lease().await? {
                        // Wait for the calls in flight: their outcomes can no longer be committed
                        // by this attempt, but they settle items that are in doubt since.
                        break sending.await;
                    }
                }
            }
        };
        // Outcomes of items that are not of this job are ignored.
        let is_of_job =
            |item: &SharedText| row_mapping::job_id_of_item(item).as_ref() == Some(&self.job.id);
        let with_position = |(item, outcome): (SharedText, SendOutcome)| {
            let position = row_mapping::item_position(&item).filter(|_| is_of_job(&item))?;
            Some((position, outcome))
        };
        outcomes.extend(replies.into_iter().flatten().filter_map(with_position));
        self.pause_if_throttled(&outcomes);
        Ok(Some(outcomes))
    }

    /// Pauses the sends of the campaign for the longest delay that a throttled call returned.
    fn pause_if_throttled(&self, outcomes: &[(usize, SendOutcome)]) {
        let delays_ms = outcomes.iter().filter_map(|(_, outcome)| match outcome {
            SendOutcome::Throttled(_, delay_ms) => *delay_ms,
            _ => None,
        });
        if let Some(delay_ms) = delays_ms.max() {
            self.delivery
                .gate
                .pause_sends(Duration::from_millis(delay_ms), self.context.clock.now());
        }
    }

    fn compose_message(
        &self,
        recipient: &AudienceRecipient,
    ) -> Result<RenderedMessage, ComposeError> {
        let composed = std::panic::catch_unwind(AssertUnwindSafe(|| {
            self.delivery.composer.compose_message(recipient)
        }));
        composed.unwrap_or_else(|_| Err(ComposeError::new("rendering the message panicked")))
    }

    /// Renews the lease. Returns whether this worker still holds the job.
    async fn renew_lease(&mut self) -> Result<bool, Error> {
        self.commit_count += 1;
        let requested_at = Instant::now();
        let mut job = self.job.clone();
        self.apply_outcome(&mut job, None, self.context.clock.now())?;
        match self
            .context
            .store
            .commit(Commit::new().update_columns(&self.job, &job, self.version))
            .await
        {
            Ok(_) => {
                (self.job, self.version, self.lease_until) =
                    (job, self.version + 1, requested_at + self.context.lease);
                Ok(true)
            }
            Err(error) => match error.kind() {
                StoreErrorKind::Conflict => Ok(false),
                // If the renewal was stored and the row cannot be read either, the next step
                // conflicts and the job is left to another worker.
                StoreErrorKind::Retry | StoreErrorKind::Unknown => {
                    self.reload_job().await;
                    sleep(STORE_RETRY_DELAY).await;
                    Ok(Instant::now() < self.lease_until)
                }
                StoreErrorKind::Invalid | StoreErrorKind::Corrupt | StoreErrorKind::Fatal => {
                    Err(error)
                }
            },
        }
    }

    /// Takes over the row version of a renewal whose outcome was unknown, if it was stored.
    async fn reload_job(&mut self) {
        let stored: Result<Option<(JobRow, u64)>, Error> = self
            .context
            .store
            .read_record(RowKey(vec![self.job.id.to_value()]))
            .await;
        if let Ok(Some((job, version))) = stored
            && job
                .lock_token
                .as_ref()
                .is_some_and(|mark| mark.starts_with(&*self.lock_token))
        {
            (self.job, self.version) = (job, version);
        }
    }

    /// Looks up the status of these items at the provider, and renews the lease afterwards if it is
    /// due.
    pub(super) async fn look_up_items(
        &mut self,
        positions: &[usize],
    ) -> Result<Vec<(usize, LookupOutcome)>, Error> {
        let (provider, max_wait) = (Arc::clone(&self.delivery.provider), self.delivery.timeout);
        let lookups = positions.iter().filter_map(|&position| {
            let key = self.rows[position].as_ref()?.0.idempotency_key.clone();
            let provider = Arc::clone(&provider);
            Some(async move {
                let result = AssertUnwindSafe(timeout(max_wait, provider.lookup_status(&key)))
                    .catch_unwind()
                    .await;
                (
                    position,
                    result
                        .ok()
                        .and_then(Result::ok)
                        .unwrap_or(LookupOutcome::Unknown),
                )
            })
        });
        let outcomes = join_all(lookups).await;
        self.renew_lease_if_due().await?;
        Ok(outcomes)
    }

    /// Renews the lease if this worker holds it and the renewal is due. A worker that lost the
    /// lease finds out with the next step.
    pub(super) async fn renew_lease_if_due(&mut self) -> Result<(), Error> {
        if self.is_held
            && Instant::now() + (self.context.lease - self.context.lease / LEASE_RENEW_DIVISOR)
                >= self.lease_until
        {
            self.renew_lease().await?;
        }
        Ok(())
    }
}

/// Delivers one batch. If the provider does not answer within `max_wait`, or its adapter panics,
/// the outcome of every item is unknown.
async fn deliver_reserved(
    provider: Arc<dyn Provider>,
    reserved: Vec<Reservation>,
    max_wait: Duration,
) -> Vec<(SharedText, SendOutcome)> {
    let items: Vec<SharedText> = reserved.iter().map(|it| it.item_id().clone()).collect();
    let result = AssertUnwindSafe(timeout(max_wait, provider.deliver_batch(reserved)))
        .catch_unwind()
        .await;
    let all_unknown = |error: &str| {
        items
            .iter()
            .map(|item| (item.clone(), SendOutcome::Unknown(error.into())))
            .collect()
    };
    match result {
        Ok(Ok(outcomes)) => outcomes,
        Ok(Err(_)) => all_unknown("the provider did not answer before the timeout"),
        Err(_) => all_unknown("the provider adapter panicked"),
    }
}

/// Runs a computation that may take long. On a multi-threaded runtime the other tasks of this
/// thread move to other threads.
fn run_blocking<T>(compute: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(compute),
        _ => compute(),
    }
}
