//! Applying an event to the journal state. The event was checked before, so nothing here can fail.

use super::inbox::{BufferedSignal, SignalInbox};
use super::{
    AwaitState, InvokePhase, InvokeState, JoinSetState, JournalState, PayloadFingerprint,
    PromiseSlot, PromiseState,
};
use crate::{
    AwaitKind, Event, ExecutionPhase, JoinSetId, JournalEvent, PromiseId, phase_transition,
};
use onward_base::BoundedName;

impl JournalState {
    /// Applies an event that [`JournalState::check_event`] accepted.
    pub(super) fn apply_event(&mut self, event: &JournalEvent) {
        let act = self.classify_event(&event.event);
        if let Ok(next) = phase_transition(self.phase, act) {
            self.enter_phase(next);
        }
        self.apply_effects(event.sequence, &event.event);
        self.next_sequence += 1;
    }

    /// Enters the next phase. Leaving a blocked phase closes the await, whether it was satisfied or
    /// interrupted.
    fn enter_phase(&mut self, next: ExecutionPhase) {
        if !matches!(
            next,
            ExecutionPhase::Blocked | ExecutionPhase::CleanupBlocked
        ) {
            self.open_await = None;
        }
        self.phase = next;
    }

    #[expect(clippy::too_many_lines, reason = "one table: a row for each case")]
    fn apply_effects(&mut self, sequence: u64, event: &Event) {
        match event {
            Event::InvokeScheduled {
                retry_policy,
                delivery,
                ..
            } => {
                self.allocate_promise(PromiseState::Invoke(InvokeState::new(
                    retry_policy.clone(),
                    *delivery,
                )));
            }
            Event::InvokeStarted {
                promise_id,
                attempt,
                ..
            } => self.update_invoke(promise_id, |invoke| {
                invoke.phase = InvokePhase::Started;
                invoke.attempt = *attempt;
            }),
            Event::InvokeRetrying {
                promise_id,
                retry_at,
                ..
            } => {
                self.update_invoke(promise_id, |invoke| {
                    invoke.phase = InvokePhase::Retrying {
                        retry_at: *retry_at,
                    }
                });
            }
            Event::InvokeCompleted {
                promise_id, result, ..
            } => {
                let result = PayloadFingerprint::from_result(result);
                self.update_invoke(promise_id, |invoke| {
                    invoke.phase = InvokePhase::Completed { sequence, result };
                    invoke.policy = None;
                });
                self.complete_promise(promise_id);
            }
            Event::RandomGenerated { .. } | Event::TimeRecorded { .. } => {
                self.allocate_promise(PromiseState::Value)
            }
            Event::TimerScheduled { fire_at, .. } => self.allocate_promise(PromiseState::Timer {
                fire_at: *fire_at,
                fired: false,
            }),
            Event::TimerFired { promise_id } => {
                if let Some(PromiseState::Timer { fired, .. }) = self.promise_mut(promise_id) {
                    *fired = true;
                    self.complete_promise(promise_id);
                }
            }
            Event::SignalDelivered {
                signal_name,
                payload,
                ..
            } => {
                let inbox = self
                    .inboxes
                    .entry(signal_name.clone())
                    .or_insert(SignalInbox::EMPTY);
                inbox.push_delivery(BufferedSignal {
                    sequence,
                    payload: PayloadFingerprint::from_payload(payload),
                });
            }
            Event::SignalReceived {
                promise_id,
                signal_name,
                ..
            } => self.receive_signal(promise_id, signal_name),
            Event::ExecutionAwaiting { waiting_on, kind } => self.begin_await(waiting_on, kind),
            Event::JoinSetCreated { .. } => {
                self.allocate_promise(PromiseState::JoinSet(self.join_sets.len() as u32));
                self.join_sets.push(JoinSetState::default());
            }
            Event::JoinSetSubmitted {
                join_set_id,
                promise_id,
            } => self.submit_member(join_set_id, promise_id),
            Event::JoinSetAwaited {
                join_set_id,
                promise_id,
                ..
            } => self.take_result(join_set_id, promise_id),
            Event::ExecutionStarted { .. }
            | Event::ExecutionCompleted { .. }
            | Event::ExecutionFailed { .. }
            | Event::CancelRequested { .. }
            | Event::ExecutionCancelled { .. }
            | Event::ExecutionResumed => {}
        }
    }

    fn allocate_promise(&mut self, promise: PromiseState) {
        self.slots.push(PromiseSlot {
            promise,
            awaited_by: 0,
        });
    }

    fn update_invoke(&mut self, id: &PromiseId, change: impl FnOnce(&mut InvokeState)) {
        if let Some(PromiseState::Invoke(invoke)) = self.promise_mut(id) {
            change(invoke);
        }
    }

    /// Updates the open await and the owning join set after `id` completed.
    fn complete_promise(&mut self, id: &PromiseId) {
        if self.is_awaited(id)
            && let Some(wait) = &mut self.open_await
        {
            wait.incomplete -= 1;
        }
        if let (Some(number), Some(set)) =
            (id.child_number_in(self.execution), self.owning_set_mut(id))
        {
            set.ready.push_back(number);
        }
    }

    fn receive_signal(&mut self, id: &PromiseId, name: &BoundedName) {
        if let Some(inbox) = self.inboxes.get_mut(name) {
            inbox.consume_oldest();
        }
        if self.awaits_signal_as(id) {
            if let Some(PromiseState::Signal { received, .. }) = self.promise_mut(id) {
                *received = true;
            }
            self.complete_promise(id);
        } else {
            self.allocate_promise(PromiseState::Signal {
                name: name.clone(),
                received: true,
            });
        }
    }

    fn begin_await(&mut self, waiting_on: &[PromiseId], kind: &AwaitKind) {
        if let AwaitKind::Signal(name) = kind {
            self.allocate_promise(PromiseState::Signal {
                name: name.clone(),
                received: false,
            });
        }
        self.await_count += 1;
        let mut numbers = Vec::with_capacity(waiting_on.len());
        let mut incomplete = 0;
        for number in waiting_on
            .iter()
            .filter_map(|id| id.child_number_in(self.execution))
        {
            let Some(slot) = self.slots.get_mut(number as usize) else {
                continue;
            };
            slot.awaited_by = self.await_count;
            incomplete += usize::from(!slot.promise.is_complete());
            numbers.push(number);
        }
        self.open_await = Some(AwaitState {
            kind: kind.clone(),
            waiting_on: numbers,
            incomplete,
        });
    }

    fn submit_member(&mut self, set: &JoinSetId, id: &PromiseId) {
        let (Some(index), Some(number)) =
            (self.join_set_index(set), id.child_number_in(self.execution))
        else {
            return;
        };
        let mut complete = false;
        self.update_invoke(id, |invoke| {
            invoke.join_set_index = Some(index);
            complete = matches!(invoke.phase, InvokePhase::Completed { .. });
        });
        if let Some(set) = self.join_sets.get_mut(index as usize) {
            set.submitted += 1;
            set.members.push(number);
            if complete {
                set.ready.push_back(number);
            }
        }
    }

    /// Takes a result out of a join set. The member stays in the list and is skipped later, which
    /// avoids a search now.
    fn take_result(&mut self, set: &JoinSetId, id: &PromiseId) {
        self.update_invoke(id, |invoke| invoke.is_result_taken = true);
        let Some(index) = self.join_set_index(set) else {
            return;
        };
        let Some(set) = self.join_sets.get_mut(index as usize) else {
            return;
        };
        set.awaited += 1;
        while set
            .ready
            .front()
            .is_some_and(|number| is_result_taken(&self.slots, *number))
        {
            set.ready.pop_front();
        }
    }

    fn owning_set_mut(&mut self, id: &PromiseId) -> Option<&mut JoinSetState> {
        let index = self.invoke_state(id)?.join_set_index?;
        self.join_sets.get_mut(index as usize)
    }

    fn promise_mut(&mut self, id: &PromiseId) -> Option<&mut PromiseState> {
        let number = id.child_number_in(self.execution)?;
        Some(&mut self.slots.get_mut(number as usize)?.promise)
    }

    /// Returns the member of a join set that completed first among those whose result was not
    /// taken; `None` if there is none.
    pub fn next_ready_member(&self, set: &JoinSetId) -> Option<PromiseId> {
        let ready = &self.join_set_state(set)?.ready;
        let number = ready
            .iter()
            .find(|number| !is_result_taken(&self.slots, **number))?;
        Some(self.execution.child_promise(*number))
    }

    /// Returns the members of a join set whose result was not taken, in the order of submission.
    pub(crate) fn remaining_members(&self, set: &JoinSetId) -> Vec<PromiseId> {
        let members = self.join_set_state(set).map_or(&[][..], |set| &set.members);
        let left = members
            .iter()
            .filter(|number| !is_result_taken(&self.slots, **number));
        left.map(|number| self.execution.child_promise(*number))
            .collect()
    }
}

fn is_result_taken(slots: &[PromiseSlot], number: u32) -> bool {
    matches!(slots.get(number as usize), Some(PromiseSlot { promise: PromiseState::Invoke(invoke), .. }) if invoke.is_result_taken)
}
