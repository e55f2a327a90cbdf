//! Routes messages and ends of attempts to the executions they concern: to one in memory, to one
//! that is being loaded or parked, or to the successor of one that has ended.

use std::collections::{BTreeSet, VecDeque};

use onward_base::Timestamp;
use onward_execution::ExecutionOutcome;
use onward_journal::ExecutionId;
use onward_store::Commit;
use onward_store::tables::InboxMessageRow;

use super::active_execution::PendingInput;
use super::shard_core::{CommitSubject, ShardCore};
use super::{AttemptEnd, AttemptReporter, ShardAction, message};

/// Maximum number of remembered message ids. If an id is dropped too early, the store rejects the
/// commit that consumes the message a second time.
const SEEN_MESSAGES_MAX: usize = 1 << 16;

impl ShardCore {
    pub(super) fn on_messages(
        &mut self,
        messages: Vec<(InboxMessageRow, u64)>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        // While draining, messages stay in the inbox for the next owner.
        if self.is_draining {
            return;
        }
        let mut touched = BTreeSet::new();
        while self.seen_messages.len() > SEEN_MESSAGES_MAX {
            self.seen_messages.pop_first();
        }
        for (message, version) in messages {
            let is_new = message
                .message_id
                .0
                .is_some_and(|id| self.seen_messages.insert(id));
            if is_new {
                touched.insert(message.execution_id);
                self.enqueue_input(
                    message.execution_id,
                    PendingInput::Message(Box::new(message), version),
                    actions,
                );
            }
        }
        for execution in touched {
            self.advance_if_active(execution, now, actions);
        }
    }

    /// Enqueues all ends first, so that those of one execution go into one commit.
    pub(super) fn on_attempts_ended(
        &mut self,
        ends: Vec<AttemptEnd>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let mut touched = BTreeSet::new();
        for AttemptEnd {
            attempt,
            reported_by: by,
            result,
        } in ends
        {
            let is_wanted = match by {
                AttemptReporter::Owner(performance) => {
                    let is_its = self.performing.get(&attempt) == Some(&performance);
                    is_its && self.performing.remove(&attempt).is_some()
                }
                AttemptReporter::Worker => true,
            };
            if is_wanted {
                touched.insert(attempt.execution);
                self.enqueue_input(
                    attempt.execution,
                    PendingInput::AttemptEnded(attempt, result),
                    actions,
                );
            }
        }
        for execution in touched {
            self.advance_if_active(execution, now, actions);
        }
    }

    /// Enqueues an input for an execution, which is loaded first if it is not in memory.
    fn enqueue_input(
        &mut self,
        execution: ExecutionId,
        input: PendingInput,
        actions: &mut Vec<ShardAction>,
    ) {
        if let Some(active) = self.actives.get_mut(&execution) {
            active.inputs.push_back(input);
            return;
        }
        if let Some(parked) = self.parked.get_mut(&execution) {
            match input {
                // Cancelling a stuck execution must be possible at once.
                PendingInput::Message(..) if input.is_cancel() && !parked.has_tried_cancel => {
                    let ended = std::mem::take(&mut parked.ended_attempts);
                    self.parked.remove(&execution);
                    self.loading.insert(execution, ended);
                    actions.push(ShardAction::Load(execution));
                }
                PendingInput::Message(..) => return self.forget_messages(&[input].into()),
                _ => return parked.ended_attempts.push_back(input),
            }
        }
        let loading = self.loading.entry(execution).or_insert_with(|| {
            actions.push(ShardAction::Load(execution));
            VecDeque::new()
        });
        loading.push_back(input);
    }

    /// Forwards the pending messages of an execution that has ended to the execution it continued
    /// as, or deletes them.
    pub(super) fn forward_or_discard(
        &mut self,
        pending_inputs: VecDeque<PendingInput>,
        ending: &ExecutionOutcome,
        actions: &mut Vec<ShardAction>,
    ) {
        let mut commit = Commit::new().fence_shard(self.shard, self.epoch);
        let mut ids = Vec::new();
        for item in pending_inputs {
            if let PendingInput::AttemptEnded(attempt, _) = item {
                actions.push(ShardAction::WorkerResultSettled {
                    attempt,
                    is_recorded: false,
                });
            } else if let PendingInput::Message(sent, version) = item {
                let next = match ending {
                    ExecutionOutcome::Continued(next) => {
                        message::forward_message(&sent, *next).ok().flatten()
                    }
                    ExecutionOutcome::Result(_) => None,
                };
                commit = match next {
                    Some(next) => {
                        message::consume_message(commit, &sent, version).insert_or_keep(&next)
                    }
                    None => commit.delete(&*sent, version),
                };
                ids.extend(sent.message_id.0);
            }
        }
        if !ids.is_empty() {
            self.begin_commit(CommitSubject::Messages(ids), commit, actions);
        }
    }

    pub(super) fn forget_messages(&mut self, pending_inputs: &VecDeque<PendingInput>) {
        for item in pending_inputs {
            if let PendingInput::Message(message, _) = item
                && let Some(id) = message.message_id.0
            {
                self.seen_messages.remove(&id);
            }
        }
    }
}
