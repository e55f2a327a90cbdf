//! Simulated workers: they claim tasks and complete them, lose them, release them or report too
//! late.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_base::{Scope, SharedText, Timestamp};
use onward_engine::client::{ClientError, EngineClient};
use onward_engine::shard::{AttemptEnd, AttemptId, AttemptReporter, ShardInput};
use onward_engine::task_matcher::{ClaimSlot, TaskMatcher, TaskWait};
use onward_engine::task_queue::{self, ClaimRequest, LeasedTask};
use onward_journal::{DeliveryGuarantee, Event};
use onward_store::conformance::SeededRng;
use onward_store::tables::TaskRow;
use onward_store::{Error, Store, StoreClock as _};

use crate::ShardSimulation;
use crate::failure::SimFailure;
use crate::ready_future::poll_ready;
use crate::scripts::perform_task;

/// Lease of a claimed task in milliseconds: a worker without a heartbeat for this long loses it.
const LEASE_MS: u32 = 2_000;

/// Scheduled action of a worker.
pub(crate) enum WorkerAction {
    /// Claim tasks, and repeat later.
    Claim,
    /// Expire the leases of lost workers, and repeat later.
    ExpireLeases,
    /// Send a heartbeat and continue with the task.
    Heartbeat(LeasedTask),
    /// Perform a task and report its result.
    Complete(LeasedTask),
    /// Report the result again, because the first report was not acknowledged.
    RetryComplete(LeasedTask),
    /// Release a task without performing it.
    Release(AttemptId, SharedText),
}

/// The workers and their scheduled actions, independent of the nodes.
pub(crate) struct SimWorkers {
    actions: Vec<(Timestamp, WorkerAction)>,
    /// Matches new tasks with waiting workers.
    pub(crate) matcher: Arc<TaskMatcher>,
    waiting: TaskWait,
    pub(crate) matched: u32,
    pub(crate) reported: u32,
}

impl SimWorkers {
    pub(crate) fn new(at: Timestamp) -> Self {
        let matcher: Arc<TaskMatcher> = Arc::default();
        let owner = "acme|shop|prod".into();
        let waiting = matcher.register_waiter(&owner, &claim_request());
        let actions = vec![
            (at, WorkerAction::Claim),
            (at, WorkerAction::Claim),
            (at, WorkerAction::ExpireLeases),
        ];
        Self {
            actions,
            matcher,
            waiting,
            matched: 0,
            reported: 0,
        }
    }

    /// Returns the time of the next scheduled action.
    pub(crate) fn next_action_at(&self) -> Option<Timestamp> {
        self.actions.iter().map(|(at, _)| *at).min()
    }
}

fn claim_request() -> ClaimRequest {
    let functions = vec!["far".into(), "far_once".into()];
    ClaimRequest {
        worker: "anna".into(),
        functions,
        max_tasks: 2,
        lease_ms: LEASE_MS,
    }
}

fn new_client(store: Arc<dyn Store>) -> Result<EngineClient, Error> {
    let scope = Scope {
        tenant: "acme".parse().map_err(Error::corrupt)?,
        project: "shop".parse().map_err(Error::corrupt)?,
        environment: "prod".parse().map_err(Error::corrupt)?,
    };
    Ok(EngineClient::new(store, scope))
}

fn complete_task(client: &EngineClient, task: &LeasedTask) -> Result<(), ClientError> {
    let result = perform_task(&task.function, &task.input, task.id.attempt);
    match poll_ready(client.complete_task(task.id, &task.claim_token, result)) {
        Ok(()) | Err(ClientError::LeaseLost) => Ok(()),
        Err(error) => Err(error),
    }
}

impl ShardSimulation {
    /// Runs all worker actions that are due.
    pub(crate) fn run_workers(&mut self) -> Result<(), SimFailure> {
        let time = self.clock.now();
        while let Some(index) = self.workers.actions.iter().position(|(at, _)| *at <= time) {
            let action = self.workers.actions.swap_remove(index).1;
            self.run_action(action, time)?;
        }
        Ok(())
    }

    fn run_action(&mut self, action: WorkerAction, time: Timestamp) -> Result<(), ClientError> {
        let client = new_client(Arc::clone(&self.store) as Arc<dyn Store>)?;
        match action {
            WorkerAction::Claim => {
                let mut tasks = self.workers.waiting.take_delivered();
                tasks.extend(poll_ready(client.claim_tasks(
                    &claim_request(),
                    Duration::ZERO,
                    pending(),
                ))?);
                for task in tasks {
                    self.plan_task(task, time);
                }
                self.workers
                    .waiting
                    .set_capacity(self.draw.next_below(3) as usize);
                self.schedule_action(time, 300, WorkerAction::Claim);
            }
            WorkerAction::ExpireLeases => {
                poll_ready(task_queue::expire_leases(&*self.store, time))?;
                self.schedule_action(time, 1_000, WorkerAction::ExpireLeases);
            }
            WorkerAction::Heartbeat(task) => {
                if poll_ready(client.heartbeat_task(task.id, &task.claim_token)).is_ok() {
                    self.plan_task(task, time);
                }
            }
            WorkerAction::Complete(task) => {
                self.record_performance(&task);
                match self.nodes.keys().copied().next_back() {
                    // The node may have lost the shard, and then it loses the report.
                    Some(node) if self.draw.roll_percent(50) => {
                        self.report_to_node(&client, node, task, time)?
                    }
                    _ => complete_task(&client, &task)?,
                }
            }
            WorkerAction::RetryComplete(task) => complete_task(&client, &task)?,
            WorkerAction::Release(id, claim) => match poll_ready(client.release_task(id, &claim)) {
                Ok(()) | Err(ClientError::LeaseLost) => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    /// Reports the end of a task directly to a node. In half of the cases the worker receives no
    /// acknowledgement in time and reports through the store.
    fn report_to_node(
        &mut self,
        client: &EngineClient,
        node: u32,
        task: LeasedTask,
        time: Timestamp,
    ) -> Result<(), ClientError> {
        let stored = client.list_tasks(None, 1_000);
        let is_held = |row: &TaskRow| {
            task_queue::attempt_id_of(row) == task.id
                && row.claim.as_deref() == Some(&*task.claim_token)
        };
        if !poll_ready(stored)?.iter().any(is_held) {
            return Ok(());
        }
        let result = perform_task(&task.function, &task.input, task.id.attempt);
        self.deliver_input(
            node,
            ShardInput::AttemptsEnded(vec![AttemptEnd {
                attempt: task.id,
                reported_by: AttemptReporter::Worker,
                result,
            }]),
        );
        if self.draw.roll_percent(50) {
            self.schedule_action(time, 500, WorkerAction::RetryComplete(task));
        }
        Ok(())
    }

    /// Delivers a task to the worker that the matcher chose, and checks that its start is durable.
    pub(crate) fn deliver_task(&mut self, slot: ClaimSlot, task: LeasedTask) {
        self.workers.matched += 1;
        let key = (task.id.promise_id(), task.id.attempt);
        if !self.is_start_durable(task.id.execution, &key) {
            self.premature.push(format!(
                "{} was delivered before its start was durable",
                key.0
            ));
        }
        if slot.deliver_task(task).is_err() {
            self.premature
                .push("a waiting worker did not accept its task".to_owned());
        }
    }

    /// Releases claims whose workers may have crashed.
    pub(crate) fn release_claims(&mut self, claims: Vec<(AttemptId, SharedText)>) {
        for (id, claim) in claims {
            if self.draw.roll_percent(50) {
                self.schedule_action(self.clock.now(), 500, WorkerAction::Release(id, claim));
            }
        }
    }

    /// Checks that the end of an attempt is durable when the node acknowledges it to the worker.
    pub(crate) fn check_end_recorded(&mut self, id: AttemptId) {
        self.workers.reported += 1;
        let key = (id.promise_id(), id.attempt);
        let is_end = |event: &Event| matches!(event, Event::InvokeCompleted { promise_id, attempt, .. } if (promise_id, *attempt) == (&key.0, key.1));
        let is_retry = |event: &Event| matches!(event, Event::InvokeRetrying { promise_id, failed_attempt, .. } if (promise_id, *failed_attempt) == (&key.0, key.1));
        let events = self.read_journal(id.execution).unwrap_or_default();
        if !events
            .iter()
            .any(|recorded| is_end(&recorded.event) || is_retry(&recorded.event))
        {
            self.premature.push(format!(
                "the end of {} was acknowledged before it was durable",
                key.0
            ));
        }
    }

    /// Chooses at random what happens to a task that a worker has claimed.
    fn plan_task(&mut self, task: LeasedTask, time: Timestamp) {
        match self.draw.next_below(100) {
            0..60 => self.schedule_action(time, 500, WorkerAction::Complete(task)),
            // The worker reports when its lease has expired or is about to.
            60..70 => self.schedule_action(
                time.plus_ms(u64::from(LEASE_MS) - 500),
                3_000,
                WorkerAction::Complete(task),
            ),
            70..80 => {
                self.schedule_action(time, u64::from(LEASE_MS) - 1, WorkerAction::Heartbeat(task))
            }
            80..88 => {
                self.schedule_action(time, 100, WorkerAction::Release(task.id, task.claim_token))
            }
            // The worker crashes after it has performed the task, or before.
            88..94 => self.record_performance(&task),
            _ => {}
        }
    }

    fn record_performance(&mut self, task: &LeasedTask) {
        *self
            .performed
            .entry((task.id, task.delivery == DeliveryGuarantee::AtMostOnce))
            .or_default() += 1;
    }

    fn schedule_action(&mut self, from: Timestamp, spread_ms: u64, action: WorkerAction) {
        let draw: &mut SeededRng = &mut self.draw;
        let at = from.plus_ms(1 + draw.next_below(spread_ms));
        self.workers.actions.push((at, action));
    }
}
