//! Who may be reached now: by the limits of the provider and quiet hours, and as far as there is room for calls. Nothing is
//! reserved before, so that a crash leaves nothing in doubt that only waits for its turn.

use std::sync::Arc;
use std::time::Duration;

use onward_dispatch::Order;
use onward_store::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep, timeout};

use super::{RENEWED, Work};
use crate::audience::Recipient;
use crate::outlet::Admission;

/// Nobody waits longer than this for somebody to reach.
const PUT_OFF: Duration = Duration::from_secs(2);

/// When to look for room again that was not there.
const ROOM_AGAIN: Duration = Duration::from_millis(250);

impl Work<'_> {
    /// Who of these may be reached now. A short wait is waited out; a long one frees the worker for others.
    pub(super) async fn admit(
        &mut self,
        positions: &[usize],
        at_most: usize,
        order: &impl Fn() -> Order,
    ) -> Result<Admission, Error> {
        let waited = Instant::now();
        loop {
            let (wait, is_over) = match self.ask(positions, at_most).await {
                Admission::Some(admitted) => return Ok(Admission::Some(admitted)),
                Admission::Nobody(wait) => (wait, waited.elapsed() + wait > PUT_OFF),
            };
            self.room = None;
            if is_over || order() != Order::Go {
                return Ok(Admission::Nobody(wait));
            }
            sleep(wait.min(self.desk.lease / RENEWED)).await;
            self.keep().await?;
        }
    }

    /// Asks for room, and then who may be reached in it.
    async fn ask(&mut self, positions: &[usize], at_most: usize) -> Admission {
        // Nobody may have been called in what there was.
        self.room = None;
        let at_most = match self.outlet.provider.room() {
            None => at_most,
            Some(room) => match take(room, at_most, PUT_OFF.min(self.desk.lease / RENEWED)).await {
                Some(taken) => self.room.insert(taken).num_permits(),
                None => return Admission::Nobody(ROOM_AGAIN),
            },
        };
        let recipients: Vec<&Recipient> = positions.iter().map(|&position| &self.recipients[position]).collect();
        match self.outlet.gate.admit(&recipients, at_most, self.desk.clock.now()) {
            Admission::Some(places) => {
                if let Some(taken) = &mut self.room {
                    // What is not used is for others.
                    drop(taken.split(taken.num_permits().saturating_sub(places.len())));
                }
                Admission::Some(places.into_iter().filter_map(|place| positions.get(place).copied()).collect())
            }
            nobody @ Admission::Nobody(_) => nobody,
        }
    }
}

/// Takes room for somebody, waiting for so long, and for up to so many if there is.
async fn take(room: Arc<Semaphore>, at_most: usize, patience: Duration) -> Option<OwnedSemaphorePermit> {
    let mut taken = timeout(patience, Arc::clone(&room).acquire_owned()).await.ok()?.ok()?;
    while taken.num_permits() < at_most
        && let Ok(more) = Arc::clone(&room).try_acquire_owned()
    {
        taken.merge(more);
    }
    Some(taken)
}
