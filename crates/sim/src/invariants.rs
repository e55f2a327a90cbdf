//! Invariants that must hold when everything is done.

use onward_base::Timestamp;
use onward_engine::client::is_execution_over;
use onward_journal::{DeliveryGuarantee, Event, ExecutionId, Journal, JournalEvent};
use onward_store::tables::{ExecutionRow, InboxMessageRow, TaskRow};
use onward_store::{RecordReader as _, TableScan};

use crate::ShardSimulation;
use crate::client::SHARD;
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
            .map(|(it, _)| format!("message {} to {}", it.kind, it.execution_id));
        lines.chain(inbox).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        if let Some(stuck) = self.stuck.first() {
            return Err(format!("an execution was given up: {stuck}"));
        }
        if let Some(hasty) = self.premature.first() {
            return Err(format!("an attempt was not recorded: {hasty}"));
        }
        let left: Vec<(TaskRow, u64)> =
            poll_ready(self.store.list_records(TableScan::all_rows::<TaskRow>()))
                .unwrap_or_default();
        if let Some((task, _)) = left.first() {
            return Err(format!(
                "{}: a task is left, and nobody waits for it",
                task.execution_id
            ));
        }
        for row in self.list_executions() {
            if row.wake_at != Timestamp::MAX {
                return Err(format!("{} is over and would be woken", row.execution_id));
            }
            self.check_journal(row.execution_id)?;
        }
        self.started
            .iter()
            .try_for_each(|(id, workflow, input)| self.check_result(*id, *workflow, *input))
    }

    fn check_journal(&self, id: ExecutionId) -> Result<(), String> {
        let events = self.read_journal(id)?;
        Journal::recover(id, events.clone()).map_err(|violation| format!("{id}: {violation}"))?;
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
    ) -> Result<(), String> {
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
                    return Err(format!(
                        "{id}: operation {number} is recorded and was never performed"
                    ));
                }
            }
            Event::InvokeScheduled {
                promise_id,
                delivery: DeliveryGuarantee::AtMostOnce,
                ..
            } => {
                let number = promise_id.child_number_in(id).unwrap_or(u32::MAX);
                // None of these tasks fails, so at most one attempt may have been performed.
                let all: u32 = (1..=ATTEMPTS_MAX)
                    .map(|attempt| count(number, attempt, true))
                    .sum();
                if all > 1 {
                    return Err(format!(
                        "{id}: operation {number} was performed {all} times"
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Follows an execution through its continue-as-new successors and checks the final result.
    fn check_result(&self, id: ExecutionId, workflow: usize, input: u64) -> Result<(), String> {
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
                        Some(value) if *result != number_payload(value) => Err(format!(
                            "{name}({input}) returned {} instead of {value}",
                            result.as_str()
                        )),
                        None if name.ends_with("endless") => {
                            Err("an execution that was to be cancelled completed".to_owned())
                        }
                        _ => Ok(()),
                    };
                }
                Some(Event::ExecutionCancelled { .. }) if name.ends_with("endless") => {
                    return Ok(());
                }
                other => return Err(format!("{name}({input}) ended with {other:?}")),
            }
        }
    }
}
