//! Calling the provider for what is reserved, and asking it about what is in doubt, while the lease of the job is kept.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use onward_dispatch::{Answer, Found};
use onward_journal::Text;
use onward_store::tables::Job;
use onward_store::{Commit, Error, Field as _, Key, Kind, Records as _};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::{AGAIN, RENEWED, Work};
use crate::audience::Recipient;
use crate::outlet::Message;
use crate::rows;

/// Nobody is called when less than this part of the lease is left: the call would not be over in time.
const MARGIN: u32 = 10;

impl Work<'_> {
    /// Calls the provider, and keeps the lease meanwhile. Nothing if the lease may not last.
    pub(super) async fn call(&mut self, positions: &[usize]) -> Result<Option<Vec<(usize, Answer)>>, Error> {
        let Some(durable) = self.durable.take() else { return Ok(None) };
        let (mut answers, mut reservations) = (Vec::new(), Vec::new());
        let compose = |&position: &usize| (position, self.compose(&self.recipients[position]));
        for (position, composed) in apart(|| positions.iter().map(compose).collect::<Vec<_>>()) {
            let Some((row, _)) = &self.rows[position] else { continue };
            match composed {
                Ok(message) => reservations.extend(durable.reservation(row, message)),
                Err(words) => answers.push((position, Answer::Unfit(words.into()))),
            }
        }
        // A worker that stood still does not call for what others have in doubt by now. If nobody has taken the job meanwhile,
        // it is still its own.
        let is_late = |work: &Self| Instant::now() + work.desk.lease / MARGIN >= work.until;
        if is_late(self) && (!self.renew().await? || is_late(self)) {
            return Ok(None);
        }
        let batch = self.outlet.provider.nature().batch_max.max(1);
        let mut calls = Vec::new();
        while !reservations.is_empty() {
            let rest = reservations.split_off(batch.min(reservations.len()));
            let reserved = std::mem::replace(&mut reservations, rest);
            let (provider, patience) = (Arc::clone(&self.outlet.provider), self.outlet.patience);
            calls.push(async move {
                let items: Vec<Text> = reserved.iter().map(|it| it.item().clone()).collect();
                let called = AssertUnwindSafe(timeout(patience, provider.deliver(reserved))).catch_unwind().await;
                let lost = |why: &str| items.iter().map(|item| (item.clone(), Answer::Unknown(why.into()))).collect();
                match called {
                    Ok(Ok(answers)) => answers,
                    Ok(Err(_)) => lost("the provider did not answer in time"),
                    Err(_) => lost("the provider's adapter panicked"),
                }
            });
        }
        let mut calling = std::pin::pin!(join_all(calls));
        let answered = loop {
            let renew = self.until - (self.desk.lease - self.desk.lease / RENEWED);
            tokio::select! {
                biased;
                answered = &mut calling => break answered,
                () = sleep_until(renew) => {
                    if !self.renew().await? {
                        // What was called for is heard out, though it will be refused.
                        break calling.await;
                    }
                }
            }
        };
        let is_its = |item: &Text| rows::job_of(item).as_ref() == Some(&self.job.id);
        let place = |(item, answer): (Text, Answer)| Some((rows::position(&item).filter(|_| is_its(&item))?, answer));
        answers.extend(answered.into_iter().flatten().filter_map(place));
        self.room = None;
        let busy = answers.iter().filter_map(|(_, answer)| if let Answer::Busy(_, ms) = answer { *ms } else { None });
        if let Some(ms) = busy.max() {
            self.outlet.gate.hold(Duration::from_millis(ms), self.desk.clock.now());
        }
        Ok(Some(answers))
    }

    fn compose(&self, recipient: &Recipient) -> Result<Message, String> {
        let composed = std::panic::catch_unwind(AssertUnwindSafe(|| self.outlet.compose.compose(recipient)));
        composed.unwrap_or_else(|_| Err("the template panicked".to_owned()))
    }

    /// Keeps the job for another lease. Tells whether it is this worker's.
    async fn renew(&mut self) -> Result<bool, Error> {
        self.commits += 1;
        let asked = Instant::now();
        let mut job = self.job.clone();
        self.conclude(&mut job, None, self.desk.clock.now());
        match self.desk.store.commit(Commit::new().amend(&self.job, &job, self.version)).await {
            Ok(_) => {
                (self.job, self.version, self.until) = (job, self.version + 1, asked + self.desk.lease);
                Ok(true)
            }
            Err(error) => match error.kind() {
                Kind::Conflict => Ok(false),
                // If it was stored and that cannot be read either, the next step is refused, and the job is left to others.
                Kind::Retry | Kind::Unknown => {
                    self.reread().await;
                    sleep(AGAIN).await;
                    Ok(Instant::now() < self.until)
                }
                Kind::Invalid | Kind::Corrupt | Kind::Fatal => Err(error),
            },
        }
    }

    /// Takes the version of a renewal that was not heard of.
    async fn reread(&mut self) {
        let stored: Result<Option<(Job, u64)>, Error> = self.desk.store.get(Key(vec![self.job.id.to_value()])).await;
        if let Ok(Some((job, version))) = stored
            && job.lock_token.as_ref().is_some_and(|mark| mark.starts_with(&*self.token))
        {
            (self.job, self.version) = (job, version);
        }
    }

    /// Asks the provider about these, and keeps the lease meanwhile.
    pub(super) async fn look(&mut self, positions: &[usize]) -> Result<Vec<(usize, Found)>, Error> {
        let (provider, patience) = (Arc::clone(&self.outlet.provider), self.outlet.patience);
        let looks = positions.iter().filter_map(|&position| {
            let key = self.rows[position].as_ref()?.0.idempotency_key.clone();
            let provider = Arc::clone(&provider);
            Some(async move {
                let found = AssertUnwindSafe(timeout(patience, provider.look(&key))).catch_unwind().await;
                (position, found.ok().and_then(Result::ok).unwrap_or(Found::Unsure))
            })
        });
        let found = join_all(looks).await;
        self.keep().await?;
        Ok(found)
    }

    /// Keeps the job if it is this worker's and a part of the lease has gone by. Whoever lost it finds that out with the next
    /// step.
    pub(super) async fn keep(&mut self) -> Result<(), Error> {
        if self.is_held && Instant::now() + (self.desk.lease - self.desk.lease / RENEWED) >= self.until {
            self.renew().await?;
        }
        Ok(())
    }
}

/// Computes something that may take long. Where there are other threads, they go on with what waits for this one.
fn apart<T>(compute: impl FnOnce() -> T) -> T {
    match Handle::current().runtime_flavor() {
        RuntimeFlavor::MultiThread => tokio::task::block_in_place(compute),
        _ => compute(),
    }
}
