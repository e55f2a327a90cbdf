//! Invariants that must hold when everything is done.

use onward_base::Timestamp;
use onward_engine::client::is_execution_over;
use onward_journal::{DeliveryGuarantee, Event, ExecutionId, Journal, JournalEvent};
use onward_store::tables::{ExecutionRow, InboxMessageRow, TaskRow};
use onward_store::{RecordReader as _, TableScan};

use crate::ShardSimulation;
use crate::client::SHARD;
use crate::failure::SimFailure;
use crate::ready_future::poll_ready;
use crate::scripts::{WORKFLOWS, number_payload};

/// Maximum attempt number that the checks examine.
const ATTEMPTS_MAX: u32 = 20;

impl ShardSimulation {
    pub(crate) fn list_executions(&self) -> Vec<ExecutionRow> {
        let mut all = Vec::new();
        let mut scan = TableScan::all_rows::<ExecutionRow>();
        loop {
            let rows: Vec<(ExecutionRow, u64)> =
                poll_ready(self.store.list_records(scan.clone())).unwrap_or_default();
            let Some((last, _)) = rows.last() else {
                return all;
            };
            scan = scan.starting_after(last);
            all.extend(rows.into_iter().map(|(row, _)| row));
        }
    }

    pub(crate) fn all_complete(&self) -> bool {
        self.list_executions().iter().all(is_execution_over) && self.list_inbox().is_empty()
    }

    /// Returns the messages in the inbox of the shard.
    fn list_inbox(&self) -> Vec<(InboxMessageRow, u64)> {
        poll_ready(self.store.list_records(
            TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD).where_equal(&SHARD),
        ))
        .unwrap_or_default()
    }

    pub(crate) fn describe_unfinished(&self) -> String {
        let rows = self.list_executions();
        let open = rows.iter().filter(|row| !is_execution_over(row));
        let lines = open.map(|row| {
            let events = self.read_journal(row.execution_id).unwrap_or_default();
            let last = events
                .last()
                .map(|it| it.event.describe(row.execution_id).to_string())
                .unwrap_or_default();
            format!(
                "{} {} {} wakes at {}: {last}",
                row.execution_id, row.function, row.state, row.wake_at
            )
        });
        let inbox = self
            .list_inbox()
            .into_iter()
            .map(|(message, _)| format!("message {} to {}", message.kind, message.execution_id));
        lines.chain(inbox).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn check_invariants(&self) -> Result<(), SimFailure> {
        if let Some(stuck) = self.stuck.first() {
            return Err(SimFailure::new(format!("an execution is stuck: {stuck}")));
        }
        if let Some(premature) = self.premature.first() {
            return Err(SimFailure::new(format!(
                "an attempt became visible too early: {premature}"
            )));
        }
        let remaining: Vec<(TaskRow, u64)> =
            poll_ready(self.store.list_records(TableScan::all_rows::<TaskRow>()))
                .unwrap_or_default();
        if let Some((task, _)) = remaining.first() {
            return Err(SimFailure::new(format!(
                "{}: a task remains, but no execution waits for it",
                task.execution_id
            )));
        }
        for row in self.list_executions() {
            if row.wake_at != Timestamp::MAX {
                return Err(SimFailure::new(format!(
                    "{} has ended, but has a wake-up time",
                    row.execution_id
                )));
            }
            self.check_journal(row.execution_id)?;
        }
        self.started
            .iter()
            .try_for_each(|(id, workflow, input)| self.check_result(*id, *workflow, *input))
    }

    fn check_journal(&self, id: ExecutionId) -> Result<(), SimFailure> {
        let events = self.read_journal(id)?;
        Journal::recover(id, events.clone())
            .map_err(|violation| SimFailure::new(format!("{id}: {violation}")))?;
        events
            .iter()
            .try_for_each(|recorded| self.check_event(id, &events, recorded))
    }

    /// Checks that recorded results were performed, and that at-most-once operations were performed
    /// at most once.
    fn check_event(
        &self,
        id: ExecutionId,
        events: &[JournalEvent],
        recorded: &JournalEvent,
    ) -> Result<(), SimFailure> {
        let count = |number: u32, attempt: u32, is_once: bool| {
            let key = onward_engine::shard::AttemptId {
                execution: id,
                number,
                attempt,
            };
            self.performed.get(&(key, is_once)).copied().unwrap_or(0)
        };
        match &recorded.event {
            Event::InvokeCompleted {
                promise_id,
                result: Ok(_),
                attempt,
            } => {
                let number = promise_id.child_number_in(id).unwrap_or(u32::MAX);
                let by_child = events.iter().any(|it| {
                    matches!(&it.event, Event::InvokeStarted { promise_id: it, performer: onward_journal::InvokePerformer::Child(_), .. } if it == promise_id)
                });
                if !by_child && count(number, *attempt, false) + count(number, *attempt, true) == 0
                {
                    return Err(SimFailure::new(format!(
                        "{id}: operation {number} has a recorded result but was never performed"
                    )));
                }
            }
            Event::InvokeScheduled {
                promise_id,
                delivery: DeliveryGuarantee::AtMostOnce,
                ..
            } => {
                let number = promise_id.child_number_in(id).unwrap_or(u32::MAX);
                // None of these tasks fails, so at most one attempt may have been performed.
                let performed: u32 = (1..=ATTEMPTS_MAX)
                    .map(|attempt| count(number, attempt, true))
                    .sum();
                if performed > 1 {
                    return Err(SimFailure::new(format!(
                        "{id}: operation {number} was performed {performed} times"
                    )));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Follows an execution through its continue-as-new successors and checks the final result.
    fn check_result(&self, id: ExecutionId, workflow: usize, input: u64) -> Result<(), SimFailure> {
        let (name, expected) = WORKFLOWS[workflow];
        let mut id = id;
        loop {
            let events = self.read_journal(id)?;
            match events.last().map(|recorded| &recorded.event) {
                Some(Event::ExecutionCompleted {
                    continued_as: Some(next),
                    ..
                }) => id = *next,
                Some(Event::ExecutionCompleted { result, .. }) => {
                    return match expected(input) {
                        Some(value) if *result != number_payload(value) => {
                            Err(SimFailure::new(format!(
                                "{name}({input}) returned {} instead of {value}",
                                result.as_str()
                            )))
                        }
                        None if name.ends_with("endless") => Err(SimFailure::new(
                            "an execution that only ends when cancelled completed",
                        )),
                        _ => Ok(()),
                    };
                }
                Some(Event::ExecutionCancelled { .. }) if name.ends_with("endless") => {
                    return Ok(());
                }
                other => {
                    return Err(SimFailure::new(format!(
                        "{name}({input}) ended with {other:?}"
                    )));
                }
            }
        }
    }
}
