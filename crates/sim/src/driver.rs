//! The simulated world: a clock, a store, the node that owns the shard, nodes that still believe
//! they own it, and the operations in flight.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_base::Timestamp;
use onward_engine::shard::{
    AttemptId, ShardAction, ShardCore, ShardInput, ShardOptions, TaskAttempt,
};
use onward_execution::ExecutionLimits;
use onward_journal::{Event, ExecutionId, JournalEvent, PromiseId, codec};
use onward_store::conformance::SeededRng;
use onward_store::memory::MemoryStore;
use onward_store::shard_lease::{self, HeldLease};
use onward_store::tables::ExecutionRow;
use onward_store::{
    Error, ManualClock, RecordReader as _, Store as _, StoreClock as _, StorePolicy,
};

use crate::client::SHARD;
use crate::client_actions::ClientAction;
use crate::failure::SimFailure;
use crate::node_operations::NodeOperation;
use crate::ready_future::poll_ready;
use crate::scripts::{SimFunctions, WORKFLOWS};
use crate::workers::SimWorkers;

/// Probabilities of faults, in thousandths per opportunity.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimFaults {
    /// The owner crashes.
    pub crash: u64,
    /// The owner is paused until another node owns its shard, and then continues.
    pub stop: u64,
    /// The owner receives the request to drain and release its shard.
    pub drain: u64,
    /// A commit is not stored, and the node receives the error.
    pub commit_fails: u64,
    /// A commit is stored or not, and the node receives the error that its outcome is unknown.
    pub commit_unknown: u64,
    /// A read fails.
    pub read_fails: u64,
}

/// Result of a simulation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimReport {
    /// Number of steps of the simulation.
    pub steps: u64,
    /// Number of nodes that owned the shard, one after the other.
    pub nodes: u32,
    /// Number of nodes that released the shard after everything they had started had ended.
    pub drained: u32,
    /// Number of tasks that a worker received with the commit that stored them.
    pub tasks_matched: u32,
    /// Number of tasks whose end a worker reported directly to the node.
    pub tasks_reported: u32,
    /// Number of attempts that were performed.
    pub attempts: u64,
    /// Hash of all actions of the nodes; two runs have the same hash if they had the same history.
    pub trace: u64,
}

/// Duration of a shard lease in milliseconds.
pub(crate) const LEASE_MS: u64 = 5_000;

/// Maximum number of steps, after which the simulation fails.
const STEPS_MAX: u64 = 200_000;

/// A simulated world with one shard.
pub struct ShardSimulation {
    pub(crate) store: Arc<MemoryStore>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) draw: SeededRng,
    pub(crate) faults: SimFaults,
    pub(crate) nodes: BTreeMap<u32, SimNode>,
    pub(crate) owner: Option<u32>,
    nodes_created: u32,
    pub(crate) in_flight: Vec<(Timestamp, u32, NodeOperation)>,
    pub(crate) client_actions: Vec<(Timestamp, ClientAction)>,
    pub(crate) workers: SimWorkers,
    pub(crate) started: Vec<(ExecutionId, usize, u64)>,
    /// Number of times each attempt was performed; the flag is `true` for at-most-once attempts.
    pub(crate) performed: BTreeMap<(AttemptId, bool), u32>,
    pub(crate) attempts: u64,
    /// The node that stored the start of each attempt.
    pub(crate) attempt_starters: BTreeMap<AttemptId, u32>,
    pub(crate) drained: u32,
    trace: u64,
    pub(crate) stuck: Vec<String>,
    /// Attempts whose start or end became visible before it was durable.
    pub(crate) premature: Vec<String>,
}

pub(crate) struct SimNode {
    pub(crate) core: ShardCore,
    pub(crate) lease: HeldLease,
    /// Deadline for releasing the shard; `None` while the node is not draining.
    pub(crate) drain_deadline: Option<Timestamp>,
}

impl ShardSimulation {
    /// Creates the world of a seed, with `each` executions of every workflow.
    pub fn new(seed: u64, each: u64, faults: SimFaults) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH.plus_ms(1_000_000)));
        let store = Arc::new(MemoryStore::new(StorePolicy::default(), clock.clone()));
        let mut draw = SeededRng::new(seed);
        let mut actions = Vec::new();
        for (workflow, (name, _)) in WORKFLOWS.iter().enumerate() {
            for copy in 0..each {
                let at = clock.now().plus_ms(draw.next_below(5_000));
                actions.push((
                    at,
                    ClientAction::Start(workflow, 1 + draw.next_below(5), format!("{name}-{copy}")),
                ));
            }
        }
        let workers = SimWorkers::new(clock.now());
        Self {
            store,
            clock,
            draw,
            faults,
            nodes: BTreeMap::new(),
            owner: None,
            nodes_created: 0,
            in_flight: Vec::new(),
            client_actions: actions,
            workers,
            started: Vec::new(),
            performed: BTreeMap::new(),
            attempts: 0,
            attempt_starters: BTreeMap::new(),
            drained: 0,
            trace: 0,
            stuck: Vec::new(),
            premature: Vec::new(),
        }
    }

    /// Runs the simulation until all executions have ended, and checks the invariants.
    pub fn run(mut self) -> Result<SimReport, SimFailure> {
        for step in 0..STEPS_MAX {
            // This check takes longer than a step, so it is not made at every step.
            if step % 50 == 0 && self.is_done() {
                self.check_invariants()?;
                let Self {
                    nodes_created: nodes,
                    drained,
                    attempts,
                    trace,
                    ..
                } = self;
                let SimWorkers {
                    matched, reported, ..
                } = self.workers;
                return Ok(SimReport {
                    steps: step,
                    nodes,
                    drained,
                    tasks_matched: matched,
                    tasks_reported: reported,
                    attempts,
                    trace,
                });
            }
            self.run_step()?;
        }
        Err(SimFailure::new(format!(
            "executions are unfinished after {STEPS_MAX} steps\n{}",
            self.describe_unfinished()
        )))
    }

    fn is_done(&self) -> bool {
        self.client_actions.is_empty() && self.all_complete()
    }

    fn run_step(&mut self) -> Result<(), SimFailure> {
        if self.owner.is_none() {
            self.claim_shard()?;
        }
        if self.owner.is_some() && self.draw_fault(self.faults.drain) {
            self.drain_owner();
        }
        self.finish_drain()?;
        if self.owner.is_some() && self.draw_fault(self.faults.crash) {
            self.crash_owner();
        }
        if self.owner.is_some() && self.draw_fault(self.faults.stop) {
            self.pause_owner();
        }
        let time = self.clock.now();
        self.run_due_actions(time)?;
        self.run_workers()?;
        let ready: Vec<usize> = self
            .in_flight
            .iter()
            .enumerate()
            .filter(|(_, (at, ..))| *at <= time)
            .map(|(index, _)| index)
            .collect();
        if ready.is_empty() {
            self.advance_time();
            return Ok(());
        }
        let index = *self.draw.pick_element(&ready);
        let (_, node, op) = self.in_flight.swap_remove(index);
        self.complete_operation(node, op)
    }

    pub(crate) fn draw_fault(&mut self, permille: u64) -> bool {
        permille > 0 && self.draw.next_below(1_000) < permille
    }

    /// No operation is due: advances the clock to the next one.
    fn advance_time(&mut self) {
        let operations = self.in_flight.iter().map(|(at, ..)| *at);
        let actions = self.client_actions.iter().map(|(at, _)| *at);
        let due = self
            .nodes
            .values()
            .filter_map(|node| node.core.next_deadline());
        let later = self.clock.now().plus_ms(LEASE_MS);
        let next = operations
            .chain(actions)
            .chain(due)
            .chain(self.workers.next_action_at())
            .chain([later])
            .min()
            .unwrap_or(later);
        self.clock.set(next.max(self.clock.now()));
        for id in self.nodes.keys().copied().collect::<Vec<u32>>() {
            self.deliver_input(id, ShardInput::Tick);
        }
    }

    /// A new node takes over the shard if the lease of the last owner has expired.
    fn claim_shard(&mut self) -> Result<(), SimFailure> {
        let claimed = poll_ready(shard_lease::claim_shard(
            &*self.store,
            SHARD,
            "node",
            LEASE_MS,
        ))?;
        let Some(lease) = claimed else {
            self.clock.set(self.clock.now().plus_ms(500));
            return Ok(());
        };
        self.nodes_created += 1;
        let mut entropy = SeededRng::new(self.draw.next_u64());
        let entropy =
            Box::new(move |bytes: &mut [u8]| bytes.fill(entropy.next_u64().to_le_bytes()[0]));
        // With a small limit, some steps are too large for one commit.
        let step_bytes = if self.draw.roll_percent(30) {
            100
        } else {
            ExecutionLimits::default().batch_bytes_max
        };
        let limits = ExecutionLimits {
            batch_bytes_max: step_bytes,
            ..ExecutionLimits::default()
        };
        let options = ShardOptions {
            limits,
            idle_ms: 1_000,
            idle_max: 3,
            emit_spans: true,
            // No attempt causes the crashes of the simulation.
            takeovers_max: u8::MAX,
        };
        let core = ShardCore::new(SHARD, lease.epoch, Arc::new(SimFunctions), entropy, options);
        let core = core
            .with_task_matcher(Arc::clone(&self.workers.matcher))
            .after_takeover(lease.is_takeover);
        self.nodes.insert(
            self.nodes_created,
            SimNode {
                core,
                lease,
                drain_deadline: None,
            },
        );
        self.owner = Some(self.nodes_created);
        for op in [
            NodeOperation::Scan,
            NodeOperation::Inbox,
            NodeOperation::Renew,
        ] {
            self.schedule_operation(self.nodes_created, op);
        }
        Ok(())
    }

    /// Crashes the owner with all its operations in flight. Its commits may have been stored
    /// nevertheless, and its tasks may have been performed.
    pub(crate) fn crash_owner(&mut self) {
        let Some(id) = self.owner.take() else { return };
        self.nodes.remove(&id);
        let (lost, others) = std::mem::take(&mut self.in_flight)
            .into_iter()
            .partition(|(_, node, _)| *node == id);
        self.in_flight = others;
        let lost: Vec<(Timestamp, u32, NodeOperation)> = lost;
        for (_, _, op) in lost {
            match op {
                NodeOperation::Commit(_, commit) if self.draw.roll_percent(50) => {
                    drop(self.commit_as(id, *commit))
                }
                NodeOperation::Perform(attempt) if self.draw.roll_percent(50) => {
                    self.count_attempt(&attempt)
                }
                _ => {}
            }
        }
    }

    /// Pauses the owner until another node has taken over; the paused node does not notice.
    fn pause_owner(&mut self) {
        let Some(id) = self.owner.take() else { return };
        let until = self.clock.now().plus_ms(LEASE_MS * 3);
        for (at, node, _) in &mut self.in_flight {
            if *node == id {
                *at = until;
            }
        }
    }

    pub(crate) fn remove_node(&mut self, id: u32) {
        self.nodes.remove(&id);
        self.in_flight.retain(|(_, node, _)| *node != id);
        if self.owner == Some(id) {
            self.owner = None;
        }
    }

    pub(crate) fn execution_row(
        &self,
        execution: ExecutionId,
    ) -> Result<Option<(ExecutionRow, u64)>, Error> {
        use onward_store::ColumnCodec as _;
        poll_ready(
            self.store
                .read_record(onward_store::RowKey(vec![execution.to_value()])),
        )
    }

    pub(crate) fn read_journal(
        &self,
        execution: ExecutionId,
    ) -> Result<Vec<JournalEvent>, SimFailure> {
        let chunks = poll_ready(self.store.read_journal(execution, 0, 10_000))?;
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(codec::decode_record(execution, &chunk.records)?);
        }
        Ok(events)
    }

    /// Delivers an input to a node and starts the actions that it returns.
    pub(crate) fn deliver_input(&mut self, id: u32, input: ShardInput) {
        let time = self.clock.now();
        let Some(node) = self.nodes.get_mut(&id) else {
            return;
        };
        let actions = node.core.handle_input(input, time);
        for action in actions {
            self.hash_action(&action);
            match action {
                ShardAction::Commit { ticket, commit } => {
                    self.schedule_operation(id, NodeOperation::Commit(ticket, commit))
                }
                ShardAction::Perform(attempt) => {
                    self.check_start_recorded(&attempt);
                    self.schedule_operation(id, NodeOperation::Perform(attempt));
                }
                ShardAction::Load(execution) | ShardAction::LoadLater(execution) => {
                    self.schedule_operation(id, NodeOperation::Load(execution))
                }
                ShardAction::AbortAttempt(attempt) => self.abandon_attempt(id, attempt),
                ShardAction::ShardLost => self.remove_node(id),
                ShardAction::DeliverTask { slot, task } => self.deliver_task(slot, *task),
                ShardAction::ReclaimTasks(claims) => self.release_claims(claims),
                ShardAction::WorkerResultSettled {
                    attempt,
                    is_recorded: true,
                } => self.check_end_recorded(attempt),
                ShardAction::WorkerResultSettled { .. }
                | ShardAction::StartSettled { .. }
                | ShardAction::ExecutionOver { .. }
                | ShardAction::ReadInbox
                | ShardAction::AnnounceTasks { .. }
                | ShardAction::ExportSpans(_)
                | ShardAction::InDoubt(_)
                | ShardAction::Log { .. } => {}
                ShardAction::ExecutionStuck { execution, reason } => {
                    self.stuck.push(format!("{execution}: {reason}"))
                }
            }
        }
    }

    /// Checks that the start of an attempt with observable side effects is recorded before it is
    /// performed.
    fn check_start_recorded(&mut self, attempt: &TaskAttempt) {
        let key = (attempt.id.promise_id(), attempt.id.attempt);
        if !attempt.is_side_effect_free() && !self.is_start_durable(attempt.id.execution, &key) {
            self.premature
                .push(format!("{} started before its start was durable", key.0));
        }
    }

    /// Returns `true` if the start of an attempt is durable.
    pub(crate) fn is_start_durable(&self, execution: ExecutionId, key: &(PromiseId, u32)) -> bool {
        let events = self.read_journal(execution).unwrap_or_default();
        let is_start = |recorded: &JournalEvent| matches!(&recorded.event, Event::InvokeStarted { promise_id, attempt, .. } if (promise_id, *attempt) == (&key.0, key.1));
        events.iter().any(is_start)
    }

    fn hash_action(&mut self, action: &ShardAction) {
        for byte in format!("{action:?}").bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
