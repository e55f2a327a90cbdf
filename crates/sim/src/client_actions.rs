//! The actions of the simulated clients: they start executions, some of them twice, and signal and
//! cancel them.

use onward_base::Timestamp;
use onward_engine::shard::ShardInput;
use onward_journal::ExecutionId;
use onward_store::Error;

use crate::ShardSimulation;
use crate::client;
use crate::driver::LEASE_MS;
use crate::failure::SimFailure;
use crate::scripts::WORKFLOWS;

/// A scheduled action of a client.
pub(crate) enum ClientAction {
    Start(usize, u64, String),
    /// Starts the execution again, because the first start was not acknowledged.
    RetryStart(usize, u64, String),
    Signal(ExecutionId),
    Cancel(ExecutionId),
}

impl ShardSimulation {
    pub(crate) fn run_due_actions(&mut self, time: Timestamp) -> Result<(), SimFailure> {
        while let Some(index) = self.client_actions.iter().position(|(at, _)| *at <= time) {
            let result = match self.client_actions.swap_remove(index).1 {
                ClientAction::Start(workflow, input, key) => {
                    match self.owner.filter(|_| self.draw.roll_percent(50)) {
                        Some(node) => self.start_via_owner(node, workflow, input, key, time),
                        None => self.start_execution(workflow, input, &key, time),
                    }
                }
                ClientAction::RetryStart(workflow, input, key) => {
                    self.retry_start(workflow, input, &key, time)
                }
                ClientAction::Signal(execution) => {
                    client::send_go_signal(&self.store, execution, time)
                }
                ClientAction::Cancel(execution) => {
                    client::send_cancel(&self.store, execution, time)
                }
            };
            result?;
        }
        Ok(())
    }

    fn start_execution(
        &mut self,
        workflow: usize,
        input: u64,
        key: &str,
        time: Timestamp,
    ) -> Result<(), Error> {
        let name = WORKFLOWS[workflow].0;
        let id = client::start_execution(&self.store, name, input, key, time)?;
        let repeated = client::start_execution(&self.store, name, input, key, time);
        debug_assert!(repeated.is_err(), "a key starts one execution");
        self.record_start(id, workflow, input, time);
        Ok(())
    }

    /// Lets the owner of the shard start an execution, and starts it again later, because the
    /// outcome of the first start is unknown.
    fn start_via_owner(
        &mut self,
        node: u32,
        workflow: usize,
        input: u64,
        key: String,
        time: Timestamp,
    ) -> Result<(), Error> {
        let (row, execution) = client::new_execution(WORKFLOWS[workflow].0, input, &key, time)?;
        self.deliver_input(
            node,
            ShardInput::StartRequested {
                row: Box::new(row),
                execution: Box::new(execution),
            },
        );
        let delay_max_ms = if self.draw.roll_percent(50) {
            100
        } else {
            LEASE_MS * 4
        };
        let later = time.plus_ms(self.draw.next_below(delay_max_ms));
        self.client_actions
            .push((later, ClientAction::RetryStart(workflow, input, key)));
        Ok(())
    }

    fn retry_start(
        &mut self,
        workflow: usize,
        input: u64,
        key: &str,
        time: Timestamp,
    ) -> Result<(), Error> {
        let (row, execution) = client::new_execution(WORKFLOWS[workflow].0, input, key, time)?;
        if let Some(node) = self.owner.filter(|_| self.draw.roll_percent(50)) {
            self.deliver_input(
                node,
                ShardInput::StartRequested {
                    row: Box::new(row.clone()),
                    execution: Box::new(execution),
                },
            );
        }
        match client::start_execution(&self.store, WORKFLOWS[workflow].0, input, key, time) {
            Ok(_) | Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
        self.record_start(row.execution_id, workflow, input, time);
        Ok(())
    }

    /// Records a started execution and schedules the client actions it needs.
    fn record_start(&mut self, id: ExecutionId, workflow: usize, input: u64, time: Timestamp) {
        let name = WORKFLOWS[workflow].0;
        let later = time.plus_ms(self.draw.next_below(20_000));
        match name {
            "waiter" => self.client_actions.push((later, ClientAction::Signal(id))),
            "endless" | "remote_endless" => {
                self.client_actions.push((later, ClientAction::Cancel(id)))
            }
            _ => {}
        }
        self.started.push((id, workflow, input));
    }
}
