//! Wall-clock guard of guests. Fuel bounds the instructions of a guest, but not the time that host
//! calls and bulk instructions take. A ticker thread advances the epoch of the engine; a guest that
//! has kept its thread for two ticks yields at its next epoch check. The guest cannot
//! observe it.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use wasmtime::{EngineWeak, Store, UpdateDeadline};

use crate::host::{GuestState, InstanceRole};

/// Ticks for which a guest may keep its thread. One tick alone may pass during the shortest poll.
pub(crate) const SLICE_TICKS: u64 = 2;

/// Number of ticks since the runtime was created.
#[derive(Debug)]
pub(crate) struct TickCounter {
    ticks: AtomicU64,
    interval: Duration,
}

impl TickCounter {
    fn now(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// Number of ticks in a time, at least 1.
    pub(crate) fn ticks_in(&self, time: Duration) -> u64 {
        let ticks = time.as_nanos() / self.interval.as_nanos().max(1);
        u64::try_from(ticks).unwrap_or(u64::MAX).max(1)
    }
}

/// Starts the thread that counts ticks and advances the epoch until the counter is dropped.
pub(crate) fn spawn_ticker(
    engine: EngineWeak,
    interval: Duration,
) -> std::io::Result<Arc<TickCounter>> {
    let counter = Arc::new(TickCounter {
        ticks: AtomicU64::new(0),
        interval,
    });
    let ticking = Arc::downgrade(&counter);
    thread::Builder::new()
        .name("onward-epoch".to_owned())
        .spawn(move || run_ticker(&engine, &ticking, interval))?;
    Ok(counter)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the ticker is a clock, on a thread of its own"
)]
fn run_ticker(engine: &EngineWeak, counter: &Weak<TickCounter>, interval: Duration) {
    loop {
        thread::sleep(interval);
        let (Some(counter), Some(engine)) = (counter.upgrade(), engine.upgrade()) else {
            return;
        };
        counter.ticks.fetch_add(1, Ordering::Relaxed);
        engine.increment_epoch();
    }
}

/// When a guest was polled last. Shared by the call into the guest and by its store.
#[derive(Debug, Clone)]
pub(crate) struct SliceClock(Arc<GuestSlice>);

#[derive(Debug)]
struct GuestSlice {
    ticks: Arc<TickCounter>,
    polled_at: AtomicU64,
    has_yielded: AtomicBool,
}

impl SliceClock {
    pub(crate) fn new(ticks: &Arc<TickCounter>) -> Self {
        Self(Arc::new(GuestSlice {
            ticks: Arc::clone(ticks),
            polled_at: AtomicU64::new(ticks.now()),
            has_yielded: AtomicBool::new(false),
        }))
    }

    pub(crate) fn begin_poll(&self) {
        self.0
            .polled_at
            .store(self.0.ticks.now(), Ordering::Relaxed);
    }

    pub(crate) fn ticks_in(&self, time: Duration) -> u64 {
        self.0.ticks.ticks_in(time)
    }

    /// Ticks since the guest was polled last.
    pub(crate) fn elapsed_ticks(&self) -> u64 {
        let polled_at = self.0.polled_at.load(Ordering::Relaxed);
        self.0.ticks.now().saturating_sub(polled_at)
    }

    /// Returns whether the guest has yielded because of the clock since the last call.
    pub(crate) fn take_yielded(&self) -> bool {
        self.0.has_yielded.swap(false, Ordering::Relaxed)
    }

    /// Polls a call into the guest to its end, and notes when each poll begins.
    pub(crate) async fn poll_guest<T>(&self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        std::future::poll_fn(|context| self.poll_call(call.as_mut(), context)).await
    }

    pub(crate) fn poll_call<T>(
        &self,
        call: Pin<&mut (impl Future<Output = T> + ?Sized)>,
        context: &mut Context<'_>,
    ) -> Poll<T> {
        self.begin_poll();
        call.poll(context)
    }
}

/// Makes the guest in `store` yield once it has kept its thread for two ticks, and interrupts
/// `describe`, which cannot yield, at its deadline.
pub(crate) fn guard_store(store: &mut Store<GuestState>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|store| {
        let state = store.data();
        let elapsed = state.slice.elapsed_ticks();
        if let InstanceRole::Describe { ticks_max } = state.role {
            return Ok(match elapsed < ticks_max {
                true => UpdateDeadline::Continue(1),
                false => UpdateDeadline::Interrupt,
            });
        }
        // A guest that was suspended for a while has missed epochs without using its thread.
        if elapsed < SLICE_TICKS {
            return Ok(UpdateDeadline::Continue(1));
        }
        state.slice.0.has_yielded.store(true, Ordering::Relaxed);
        Ok(UpdateDeadline::Yield(1))
    });
}
