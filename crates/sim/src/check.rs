//! What must be true when everything is done.

use onward_engine::client::is_over;
use onward_journal::Timestamp;
use onward_journal::{Delivery, Event, ExecutionId, Journal, JournalEvent};
use onward_store::tables::{Execution, Message, Task};
use onward_store::{Records as _, Scan};

use crate::Sim;
use crate::client::SHARD;
use crate::now::now;
use crate::scripts::{WORKFLOWS, number};

/// Attempts that are looked at.
const ATTEMPTS_MAX: u32 = 20;

impl Sim {
    pub(crate) fn executions(&self) -> Vec<Execution> {
        let mut all = Vec::new();
        let mut scan = Scan::all::<Execution>();
        loop {
            let rows: Vec<(Execution, u64)> = now(self.store.list(scan.clone())).unwrap_or_default();
            let Some((last, _)) = rows.last() else { return all };
            scan = scan.after(last);
            all.extend(rows.into_iter().map(|(row, _)| row));
        }
    }

    pub(crate) fn all_over(&self) -> bool {
        self.executions().iter().all(is_over) && self.inbox().is_empty()
    }

    /// What waits to be taken.
    fn inbox(&self) -> Vec<(Message, u64)> {
        now(self.store.list(Scan::by::<Message>(Message::BY_SHARD).equal(&SHARD))).unwrap_or_default()
    }

    pub(crate) fn unfinished(&self) -> String {
        let rows = self.executions();
        let open = rows.iter().filter(|row| !is_over(row));
        let lines = open.map(|row| {
            let events = self.events(row.execution_id).unwrap_or_default();
            let last = events.last().map(|it| it.event.describe(row.execution_id).to_string()).unwrap_or_default();
            format!("{} {} {} wakes at {}: {last}", row.execution_id, row.function, row.state, row.wake_at)
        });
        let inbox = self.inbox().into_iter().map(|(it, _)| format!("message {} to {}", it.kind, it.execution_id));
        lines.chain(inbox).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        if let Some(stuck) = self.stuck.first() {
            return Err(format!("an execution was given up: {stuck}"));
        }
        if let Some(hasty) = self.hasty.first() {
            return Err(format!("an attempt was not recorded: {hasty}"));
        }
        let left: Vec<(Task, u64)> = now(self.store.list(Scan::all::<Task>())).unwrap_or_default();
        if let Some((task, _)) = left.first() {
            return Err(format!("{}: a task is left, and nobody waits for it", task.execution_id));
        }
        for row in self.executions() {
            if row.wake_at != Timestamp::MAX {
                return Err(format!("{} is over and would be woken", row.execution_id));
            }
            self.check_journal(row.execution_id)?;
        }
        self.started.iter().try_for_each(|(id, workflow, input)| self.check_end(*id, *workflow, *input))
    }

    fn check_journal(&self, id: ExecutionId) -> Result<(), String> {
        let events = self.events(id)?;
        Journal::recover(id, events.clone()).map_err(|violation| format!("{id}: {violation}"))?;
        events.iter().try_for_each(|recorded| self.check_event(id, &events, recorded))
    }

    /// What is recorded was done; what may be done once at most was.
    fn check_event(&self, id: ExecutionId, events: &[JournalEvent], recorded: &JournalEvent) -> Result<(), String> {
        let count = |number: u32, attempt: u32, is_once: bool| {
            let key = onward_engine::shard::AttemptId { execution: id, number, attempt };
            self.performed.get(&(key, is_once)).copied().unwrap_or(0)
        };
        match &recorded.event {
            Event::InvokeCompleted { promise_id, result: Ok(_), attempt } => {
                let number = promise_id.number_in(id).unwrap_or(u32::MAX);
                let by_child = events.iter().any(|it| {
                    matches!(&it.event, Event::InvokeStarted { promise_id: it, performer: onward_journal::Performer::Child(_), .. } if it == promise_id)
                });
                if !by_child && count(number, *attempt, false) + count(number, *attempt, true) == 0 {
                    return Err(format!("{id}: operation {number} is recorded and was never performed"));
                }
            }
            Event::InvokeScheduled { promise_id, delivery: Delivery::AtMostOnce, .. } => {
                let number = promise_id.number_in(id).unwrap_or(u32::MAX);
                // None of them fails, so whichever attempt it was, it was the only one.
                let all: u32 = (1..=ATTEMPTS_MAX).map(|attempt| count(number, attempt, true)).sum();
                if all > 1 {
                    return Err(format!("{id}: operation {number} was performed {all} times"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Follows an execution to whoever took its place in the end, and looks at the result.
    fn check_end(&self, id: ExecutionId, workflow: usize, input: u64) -> Result<(), String> {
        let (name, expected) = WORKFLOWS[workflow];
        let mut id = id;
        loop {
            let events = self.events(id)?;
            match events.last().map(|recorded| &recorded.event) {
                Some(Event::ExecutionCompleted { continued_as: Some(next), .. }) => id = *next,
                Some(Event::ExecutionCompleted { result, .. }) => {
                    return match expected(input) {
                        Some(value) if *result != number(value) => {
                            Err(format!("{name}({input}) returned {} instead of {value}", result.as_str()))
                        }
                        None if name.ends_with("endless") => {
                            Err("an execution that was to be cancelled completed".to_owned())
                        }
                        _ => Ok(()),
                    };
                }
                Some(Event::ExecutionCancelled { .. }) if name.ends_with("endless") => return Ok(()),
                other => return Err(format!("{name}({input}) ended with {other:?}")),
            }
        }
    }
}
