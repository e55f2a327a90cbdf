//! Taking an event in. It was checked before, so nothing here refuses anything.

use super::inbox::{Delivery, Inbox};
use super::{Fingerprint, Flight, Fold, Invoke, JoinSet, Promise, Slot, Wait};
use crate::{AwaitKind, Event, JoinSetId, JournalEvent, Name, Phase, PromiseId, transition};

impl Fold {
    /// Takes in an event that [`Fold::check`] let through.
    pub(super) fn apply(&mut self, event: &JournalEvent) {
        let act = self.act(&event.event);
        if let Ok(next) = transition(self.phase, act) {
            self.enter(next);
        }
        self.absorb(event.sequence, &event.event);
        self.version += 1;
    }

    /// Leaving a blocked phase closes the await, whether it was satisfied or interrupted.
    fn enter(&mut self, next: Phase) {
        if !matches!(next, Phase::Blocked | Phase::CleanupBlocked) {
            self.wait = None;
        }
        self.phase = next;
    }

    fn absorb(&mut self, sequence: u64, event: &Event) {
        match event {
            Event::InvokeScheduled { retry_policy, delivery, .. } => {
                self.allocate(Promise::Invoke(Invoke::new(retry_policy.clone(), *delivery)));
            }
            Event::InvokeStarted { promise_id, attempt, .. } => self.fly(promise_id, |invoke| {
                invoke.flight = Flight::Started;
                invoke.attempt = *attempt;
            }),
            Event::InvokeRetrying { promise_id, retry_at, .. } => {
                self.fly(promise_id, |invoke| invoke.flight = Flight::Retrying { at: *retry_at });
            }
            Event::InvokeCompleted { promise_id, result, .. } => {
                let result = Fingerprint::of_result(result);
                self.fly(promise_id, |invoke| {
                    invoke.flight = Flight::Completed { sequence, result };
                    invoke.policy = None;
                });
                self.complete(promise_id);
            }
            Event::RandomGenerated { .. } | Event::TimeRecorded { .. } => self.allocate(Promise::Value),
            Event::TimerScheduled { fire_at, .. } => self.allocate(Promise::Timer { fire_at: *fire_at, fired: false }),
            Event::TimerFired { promise_id } => {
                if let Some(Promise::Timer { fired, .. }) = self.promise_mut(promise_id) {
                    *fired = true;
                    self.complete(promise_id);
                }
            }
            Event::SignalDelivered { signal_name, payload, .. } => {
                let inbox = self.inboxes.entry(signal_name.clone()).or_insert(Inbox::EMPTY);
                inbox.deliver(Delivery { sequence, payload: Fingerprint::of_payload(payload) });
            }
            Event::SignalReceived { promise_id, signal_name, .. } => self.receive(promise_id, signal_name),
            Event::ExecutionAwaiting { waiting_on, kind } => self.open_wait(waiting_on, kind),
            Event::JoinSetCreated { .. } => {
                self.allocate(Promise::JoinSet(self.sets.len() as u32));
                self.sets.push(JoinSet::default());
            }
            Event::JoinSetSubmitted { join_set_id, promise_id } => self.submit(join_set_id, promise_id),
            Event::JoinSetAwaited { join_set_id, promise_id, .. } => self.take(join_set_id, promise_id),
            Event::ExecutionStarted { .. }
            | Event::ExecutionCompleted { .. }
            | Event::ExecutionFailed { .. }
            | Event::CancelRequested { .. }
            | Event::ExecutionCancelled { .. }
            | Event::ExecutionResumed => {}
        }
    }

    fn allocate(&mut self, promise: Promise) {
        self.slots.push(Slot { promise, awaited_by: 0 });
    }

    fn fly(&mut self, id: &PromiseId, change: impl FnOnce(&mut Invoke)) {
        if let Some(Promise::Invoke(invoke)) = self.promise_mut(id) {
            change(invoke);
        }
    }

    /// Tells the open await and the owning join set that `id` is over.
    fn complete(&mut self, id: &PromiseId) {
        if self.is_awaited(id)
            && let Some(wait) = &mut self.wait
        {
            wait.incomplete -= 1;
        }
        if let (Some(number), Some(set)) = (id.number_in(self.execution), self.owner_mut(id)) {
            set.ready.push_back(number);
        }
    }

    fn receive(&mut self, id: &PromiseId, name: &Name) {
        if let Some(inbox) = self.inboxes.get_mut(name) {
            inbox.consume();
        }
        if self.awaits_signal_as(id) {
            if let Some(Promise::Signal { received, .. }) = self.promise_mut(id) {
                *received = true;
            }
            self.complete(id);
        } else {
            self.allocate(Promise::Signal { name: name.clone(), received: true });
        }
    }

    fn open_wait(&mut self, waiting_on: &[PromiseId], kind: &AwaitKind) {
        if let AwaitKind::Signal(name) = kind {
            self.allocate(Promise::Signal { name: name.clone(), received: false });
        }
        self.awaits += 1;
        let mut numbers = Vec::with_capacity(waiting_on.len());
        let mut incomplete = 0;
        for number in waiting_on.iter().filter_map(|id| id.number_in(self.execution)) {
            let Some(slot) = self.slots.get_mut(number as usize) else {
                continue;
            };
            slot.awaited_by = self.awaits;
            incomplete += usize::from(!slot.promise.is_complete());
            numbers.push(number);
        }
        self.wait = Some(Wait { kind: kind.clone(), waiting_on: numbers, incomplete });
    }

    fn submit(&mut self, set: &JoinSetId, id: &PromiseId) {
        let (Some(index), Some(number)) = (self.set_index(set), id.number_in(self.execution)) else {
            return;
        };
        let mut complete = false;
        self.fly(id, |invoke| {
            invoke.owner = Some(index);
            complete = matches!(invoke.flight, Flight::Completed { .. });
        });
        if let Some(set) = self.sets.get_mut(index as usize) {
            set.submitted += 1;
            set.members.push(number);
            if complete {
                set.ready.push_back(number);
            }
        }
    }

    /// Takes a result out of a set. Members stay listed and are skipped later rather than searched for now.
    fn take(&mut self, set: &JoinSetId, id: &PromiseId) {
        self.fly(id, |invoke| invoke.consumed = true);
        let Some(index) = self.set_index(set) else { return };
        let Some(set) = self.sets.get_mut(index as usize) else { return };
        set.awaited += 1;
        while set.ready.front().is_some_and(|number| is_taken(&self.slots, *number)) {
            set.ready.pop_front();
        }
    }

    fn owner_mut(&mut self, id: &PromiseId) -> Option<&mut JoinSet> {
        let index = self.invoke(id)?.owner?;
        self.sets.get_mut(index as usize)
    }

    fn promise_mut(&mut self, id: &PromiseId) -> Option<&mut Promise> {
        let number = id.number_in(self.execution)?;
        Some(&mut self.slots.get_mut(number as usize)?.promise)
    }

    /// The member of a set that completed first among those whose result was not taken.
    pub fn next_ready(&self, set: &JoinSetId) -> Option<PromiseId> {
        let ready = &self.join_set(set)?.ready;
        let number = ready.iter().find(|number| !is_taken(&self.slots, **number))?;
        Some(self.execution.child(*number))
    }

    /// The members of a set whose result was not taken.
    pub(crate) fn remaining(&self, set: &JoinSetId) -> Vec<PromiseId> {
        let members = self.join_set(set).map_or(&[][..], |set| &set.members);
        let left = members.iter().filter(|number| !is_taken(&self.slots, **number));
        left.map(|number| self.execution.child(*number)).collect()
    }
}

fn is_taken(slots: &[Slot], number: u32) -> bool {
    matches!(slots.get(number as usize), Some(Slot { promise: Promise::Invoke(invoke), .. }) if invoke.consumed)
}
