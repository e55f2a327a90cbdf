//! The world: a clock, a store, a node that owns the shard, nodes that believe they do, and what is under way.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_engine::shard::{Action, Attempt, AttemptId, By, Core, End, Input, Options};
use onward_execution::Limits;
use onward_journal::{Delivery, Event, ExecutionId, JournalEvent, PromiseId, Timestamp, codec};
use onward_store::conformance::Draw;
use onward_store::lease::{self, Lease};
use onward_store::memory::Memory;
use onward_store::tables::{Execution, Message};
use onward_store::{Clock as _, Commit, Error, ManualClock, Policy, Records as _, Scan, Store as _};

use crate::client::{self, SHARD};
use crate::now::now;
use crate::scripts::{Scripts, WORKFLOWS, perform};
use crate::workers::Workers;

/// How often things go wrong, in thousandths.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A node dies.
    pub crash: u64,
    /// A node is stopped until another owns its shard, and goes on.
    pub stop: u64,
    /// A node is asked to give its shard up in order.
    pub drain: u64,
    /// A commit is not stored, and its author is told so.
    pub commit_fails: u64,
    /// A commit is stored or not, and its author is told that nobody knows.
    pub commit_unknown: u64,
    /// A read fails.
    pub read_fails: u64,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Steps of the world.
    pub steps: u64,
    /// Nodes that owned the shard, one after the other.
    pub nodes: u32,
    /// Nodes that gave the shard up when all they had begun had ended.
    pub drained: u32,
    /// Tasks that went to a worker with the commit that stored them.
    pub given: u32,
    /// Tasks whose end a worker told the node itself.
    pub reported: u32,
    /// Attempts that were performed.
    pub attempts: u64,
    /// A number that two runs share only if they were the same.
    pub trace: u64,
}

/// How long a lease lasts.
const LEASE_MS: u64 = 5_000;

/// How long the world may take.
const STEPS_MAX: u64 = 200_000;

/// A simulated world.
pub struct Sim {
    pub(crate) store: Arc<Memory>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) draw: Draw,
    faults: Faults,
    pub(crate) nodes: BTreeMap<u32, Node>,
    pub(crate) owner: Option<u32>,
    born: u32,
    under_way: Vec<(Timestamp, u32, Op)>,
    plans: Vec<(Timestamp, Plan)>,
    pub(crate) workers: Workers,
    pub(crate) started: Vec<(ExecutionId, usize, u64)>,
    /// How often, of those that may be repeated and of those that may not.
    pub(crate) performed: BTreeMap<(AttemptId, bool), u32>,
    attempts: u64,
    /// Who stored the start of which attempt that may not be repeated.
    pub(crate) authors: BTreeMap<AttemptId, u32>,
    pub(crate) drained: u32,
    trace: u64,
    pub(crate) stuck: Vec<String>,
    /// Attempts that began too early.
    pub(crate) hasty: Vec<String>,
}

pub(crate) struct Node {
    pub(crate) core: Core,
    pub(crate) lease: Lease,
    /// When it gives the shard up at the latest, if it is to.
    pub(crate) leaves: Option<Timestamp>,
}

/// Something that a node waits for.
enum Op {
    Commit(u64, Box<Commit>),
    Perform(Box<Attempt>),
    Load(ExecutionId),
    Inbox,
    Scan,
    Renew,
}

/// Something that a client will do.
enum Plan {
    Start(usize, u64, String),
    /// Starts it again, having heard nothing.
    StartAgain(usize, u64, String),
    Go(ExecutionId),
    Cancel(ExecutionId),
}

impl Sim {
    /// The world of a seed, with so many executions of each workflow.
    pub fn new(seed: u64, each: u64, faults: Faults) -> Self {
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH.plus_ms(1_000_000)));
        let store = Arc::new(Memory::new(Policy::default(), clock.clone()));
        let mut draw = Draw::new(seed);
        let mut plans = Vec::new();
        for (place, (name, _)) in WORKFLOWS.iter().enumerate() {
            for copy in 0..each {
                let at = clock.now().plus_ms(draw.below(5_000));
                plans.push((at, Plan::Start(place, 1 + draw.below(5), format!("{name}-{copy}"))));
            }
        }
        let workers = Workers::new(clock.now());
        Self {
            store,
            clock,
            draw,
            faults,
            nodes: BTreeMap::new(),
            owner: None,
            born: 0,
            under_way: Vec::new(),
            plans,
            workers,
            started: Vec::new(),
            performed: BTreeMap::new(),
            attempts: 0,
            authors: BTreeMap::new(),
            drained: 0,
            trace: 0,
            stuck: Vec::new(),
            hasty: Vec::new(),
        }
    }

    /// Lets the world go on until everything is done, and looks whether it is right.
    pub fn run(mut self) -> Result<Report, String> {
        for step in 0..STEPS_MAX {
            // Looking at everything takes longer than a step.
            if step % 50 == 0 && self.is_done() {
                self.check()?;
                let Self { born: nodes, drained, attempts, trace, .. } = self;
                let Workers { given, reported, .. } = self.workers;
                return Ok(Report { steps: step, nodes, drained, given, reported, attempts, trace });
            }
            self.step()?;
        }
        Err(format!("it is not done after {STEPS_MAX} steps\n{}", self.unfinished()))
    }

    fn is_done(&self) -> bool {
        self.plans.is_empty() && self.all_over()
    }

    fn step(&mut self) -> Result<(), String> {
        if self.owner.is_none() {
            self.claim()?;
        }
        if self.owner.is_some() && self.happens(self.faults.drain) {
            self.drain();
        }
        self.leave()?;
        if self.owner.is_some() && self.happens(self.faults.crash) {
            self.crash();
        }
        if self.owner.is_some() && self.happens(self.faults.stop) {
            self.stop();
        }
        let time = self.clock.now();
        self.carry_out_plans(time)?;
        self.work()?;
        let ready: Vec<usize> =
            self.under_way.iter().enumerate().filter(|(_, (at, ..))| *at <= time).map(|(place, _)| place).collect();
        if ready.is_empty() {
            self.wait();
            return Ok(());
        }
        let place = *self.draw.pick(&ready);
        let (_, node, op) = self.under_way.swap_remove(place);
        self.perform(node, op)
    }

    fn happens(&mut self, permille: u64) -> bool {
        permille > 0 && self.draw.below(1_000) < permille
    }

    /// Nothing can happen now: time passes until something can.
    fn wait(&mut self) {
        let under_way = self.under_way.iter().map(|(at, ..)| *at);
        let planned = self.plans.iter().map(|(at, _)| *at);
        let due = self.nodes.values().filter_map(|node| node.core.deadline());
        let later = self.clock.now().plus_ms(LEASE_MS);
        let next = under_way.chain(planned).chain(due).chain(self.workers.next()).chain([later]).min().unwrap_or(later);
        self.clock.set(next.max(self.clock.now()));
        for id in self.nodes.keys().copied().collect::<Vec<u32>>() {
            self.tell(id, Input::Time);
        }
    }

    /// A new node takes the shard over, if the lease of the last one has run out.
    fn claim(&mut self) -> Result<(), String> {
        let claimed = now(lease::claim(&*self.store, SHARD, "node", LEASE_MS)).map_err(|error| error.to_string())?;
        let Some(lease) = claimed else {
            self.clock.set(self.clock.now().plus_ms(500));
            return Ok(());
        };
        self.born += 1;
        let mut entropy = Draw::new(self.draw.bits());
        let entropy = Box::new(move |bytes: &mut [u8]| bytes.fill(entropy.bits().to_le_bytes()[0]));
        // Some steps are too much for one commit.
        let step_bytes = if self.draw.percent(30) { 20 } else { Limits::default().step_bytes };
        let limits = Limits { step_bytes, ..Limits::default() };
        let options = Options { limits, idle_ms: 1_000, idle_max: 3, traces: true };
        let core = Core::new(SHARD, lease.epoch, Arc::new(Scripts), entropy, options);
        let core = core.with_offers(Arc::clone(&self.workers.offers));
        self.nodes.insert(self.born, Node { core, lease, leaves: None });
        self.owner = Some(self.born);
        for op in [Op::Scan, Op::Inbox, Op::Renew] {
            self.begin(self.born, op);
        }
        Ok(())
    }

    /// The node is gone, and with it what it waited for. Commits may have arrived all the same, and tasks may have begun.
    pub(crate) fn crash(&mut self) {
        let Some(id) = self.owner.take() else { return };
        self.nodes.remove(&id);
        let (its, others) = std::mem::take(&mut self.under_way).into_iter().partition(|(_, node, _)| *node == id);
        self.under_way = others;
        let its: Vec<(Timestamp, u32, Op)> = its;
        for (_, _, op) in its {
            match op {
                Op::Commit(_, commit) if self.draw.percent(50) => drop(self.store_by(id, *commit)),
                Op::Perform(attempt) if self.draw.percent(50) => self.count(&attempt),
                _ => {}
            }
        }
    }

    /// The node stands still until another has taken over; it does not know.
    fn stop(&mut self) {
        let Some(id) = self.owner.take() else { return };
        let until = self.clock.now().plus_ms(LEASE_MS * 3);
        for (at, node, _) in &mut self.under_way {
            if *node == id {
                *at = until;
            }
        }
    }

    fn carry_out_plans(&mut self, time: Timestamp) -> Result<(), String> {
        while let Some(place) = self.plans.iter().position(|(at, _)| *at <= time) {
            let done = match self.plans.swap_remove(place).1 {
                Plan::Start(workflow, input, key) => match self.owner.filter(|_| self.draw.percent(50)) {
                    Some(node) => self.start_through(node, workflow, input, key, time),
                    None => self.start(workflow, input, &key, time),
                },
                Plan::StartAgain(workflow, input, key) => self.start_again(workflow, input, &key, time),
                Plan::Go(execution) => client::send_go(&self.store, execution, time),
                Plan::Cancel(execution) => client::send_cancel(&self.store, execution, time),
            };
            done.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn start(&mut self, workflow: usize, input: u64, key: &str, time: Timestamp) -> Result<(), Error> {
        let name = WORKFLOWS[workflow].0;
        let id = client::start(&self.store, name, input, key, time)?;
        let again = client::start(&self.store, name, input, key, time);
        debug_assert!(again.is_err(), "a key starts one execution");
        self.note_start(id, workflow, input, time);
        Ok(())
    }

    /// Has the owner of the shard start an execution, and starts it again later: nobody knows whether it came to that.
    fn start_through(
        &mut self,
        node: u32,
        workflow: usize,
        input: u64,
        key: String,
        time: Timestamp,
    ) -> Result<(), Error> {
        let (row, execution) = client::beginning(WORKFLOWS[workflow].0, input, &key, time)?;
        self.tell(node, Input::Begin { row: Box::new(row), execution: Box::new(execution) });
        let patience = if self.draw.percent(50) { 100 } else { LEASE_MS * 4 };
        let later = time.plus_ms(self.draw.below(patience));
        self.plans.push((later, Plan::StartAgain(workflow, input, key)));
        Ok(())
    }

    fn start_again(&mut self, workflow: usize, input: u64, key: &str, time: Timestamp) -> Result<(), Error> {
        let (row, execution) = client::beginning(WORKFLOWS[workflow].0, input, key, time)?;
        if let Some(node) = self.owner.filter(|_| self.draw.percent(50)) {
            self.tell(node, Input::Begin { row: Box::new(row.clone()), execution: Box::new(execution) });
        }
        match client::start(&self.store, WORKFLOWS[workflow].0, input, key, time) {
            Ok(_) | Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
        self.note_start(row.execution_id, workflow, input, time);
        Ok(())
    }

    /// Plans what else its execution needs.
    fn note_start(&mut self, id: ExecutionId, workflow: usize, input: u64, time: Timestamp) {
        let name = WORKFLOWS[workflow].0;
        let later = time.plus_ms(self.draw.below(20_000));
        match name {
            "waiter" => self.plans.push((later, Plan::Go(id))),
            "endless" | "remote_endless" => self.plans.push((later, Plan::Cancel(id))),
            _ => {}
        }
        self.started.push((id, workflow, input));
    }

    fn begin(&mut self, node: u32, op: Op) {
        let delay = match op {
            Op::Renew => 1_000,
            Op::Scan | Op::Inbox => self.draw.below(200),
            // Some take so long that whoever may runs far ahead.
            Op::Commit(..) if self.draw.percent(20) => self.draw.below(1_000),
            Op::Commit(..) | Op::Load(_) => self.draw.below(20),
            Op::Perform(_) if self.draw.percent(50) => self.draw.below(10),
            Op::Perform(_) => self.draw.below(300),
        };
        self.under_way.push((self.clock.now().plus_ms(delay), node, op));
    }

    fn perform(&mut self, id: u32, op: Op) -> Result<(), String> {
        if !self.nodes.contains_key(&id) {
            return Ok(());
        }
        match op {
            Op::Commit(ticket, commit) => {
                let result = self.commit(id, *commit);
                self.tell(id, Input::Committed { ticket, result });
            }
            Op::Perform(attempt) => {
                let mut ends = vec![self.end(&attempt)];
                // Some end together.
                while self.draw.percent(50)
                    && let Some(attempt) = self.other_attempt(id)
                {
                    ends.push(self.end(&attempt));
                }
                self.tell(id, Input::Ended(ends));
            }
            Op::Load(execution) => {
                let input = if self.happens(self.faults.read_fails) {
                    Input::NotLoaded { execution, error: Error::Unavailable("a read failed".to_owned()) }
                } else {
                    self.load(execution)?
                };
                self.tell(id, input);
            }
            Op::Inbox => {
                if !self.happens(self.faults.read_fails) {
                    let scan = Scan::by::<Message>(Message::BY_SHARD).equal(&SHARD);
                    let messages = now(self.store.list(scan)).map_err(|error| error.to_string())?;
                    self.tell(id, Input::Messages(messages));
                }
                self.begin(id, Op::Inbox);
            }
            Op::Scan => {
                self.scan(id)?;
                self.begin(id, Op::Scan);
            }
            Op::Renew => self.renew(id)?,
        }
        Ok(())
    }

    /// Performs an attempt.
    fn end(&mut self, attempt: &Attempt) -> End {
        self.count(attempt);
        let result = perform(&attempt.function, &attempt.input, attempt.id.attempt);
        End { attempt: attempt.id, by: By::Owner(attempt.performance), result }
    }

    /// Another attempt that a node is performing.
    fn other_attempt(&mut self, id: u32) -> Option<Box<Attempt>> {
        let is_other = |(_, node, op): &(Timestamp, u32, Op)| *node == id && matches!(op, Op::Perform(_));
        let place = self.under_way.iter().position(is_other)?;
        match self.under_way.swap_remove(place).2 {
            Op::Perform(attempt) => Some(attempt),
            _ => None,
        }
    }

    fn renew(&mut self, id: u32) -> Result<(), String> {
        let Some(node) = self.nodes.get_mut(&id) else { return Ok(()) };
        match now(lease::renew(&*self.store, &node.lease, LEASE_MS)).map_err(|error| error.to_string())? {
            Some(lease) => {
                node.lease = lease;
                self.begin(id, Op::Renew);
            }
            None => self.bury(id),
        }
        Ok(())
    }

    pub(crate) fn bury(&mut self, id: u32) {
        self.nodes.remove(&id);
        self.under_way.retain(|(_, node, _)| *node != id);
        if self.owner == Some(id) {
            self.owner = None;
        }
    }

    fn commit(&mut self, id: u32, commit: Commit) -> Result<onward_store::Receipt, Error> {
        if self.happens(self.faults.commit_fails) {
            return Err(Error::Unavailable("the simulation wants it".to_owned()));
        }
        if self.happens(self.faults.commit_unknown) {
            // Nobody knows whether it is.
            if self.draw.percent(50) {
                self.store_by(id, commit)?;
            }
            return Err(Error::OutcomeUnknown("the simulation wants it".to_owned()));
        }
        self.store_by(id, commit)
    }

    fn count(&mut self, attempt: &Attempt) {
        self.attempts += 1;
        *self.performed.entry((attempt.id, attempt.delivery == Delivery::AtMostOnce)).or_default() += 1;
    }

    /// Hands executions that are due to a node, unless it knows them.
    fn scan(&mut self, id: u32) -> Result<(), String> {
        let scan = Scan::by::<Execution>(Execution::BY_WAKE).equal(&SHARD).until(&self.clock.now());
        let rows: Vec<(Execution, u64)> = now(self.store.list(scan)).map_err(|error| error.to_string())?;
        for (row, _) in rows {
            let Some(node) = self.nodes.get(&id) else { break };
            if !node.core.knows(&row.execution_id) {
                let input = self.load(row.execution_id)?;
                self.tell(id, input);
            }
        }
        Ok(())
    }

    fn load(&self, execution: ExecutionId) -> Result<Input, String> {
        let text = |error: Error| error.to_string();
        let Some((row, version)) = self.row(execution).map_err(text)? else { return Ok(Input::Absent(execution)) };
        let events = self.events(execution)?;
        Ok(Input::Loaded { row: Box::new(row), version, events })
    }

    pub(crate) fn row(&self, execution: ExecutionId) -> Result<Option<(Execution, u64)>, Error> {
        use onward_store::Field as _;
        now(self.store.get(onward_store::Key(vec![execution.to_value()])))
    }

    pub(crate) fn events(&self, execution: ExecutionId) -> Result<Vec<JournalEvent>, String> {
        let chunks = now(self.store.journal(execution, 0, 10_000)).map_err(|error| error.to_string())?;
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(codec::decode(execution, &chunk.records).map_err(|error| error.to_string())?);
        }
        Ok(events)
    }

    /// Hands something to a node, and begins what it wants done.
    pub(crate) fn tell(&mut self, id: u32, input: Input) {
        let time = self.clock.now();
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let actions = node.core.handle(input, time);
        for action in actions {
            self.note(&action);
            match action {
                Action::Commit { ticket, commit } => self.begin(id, Op::Commit(ticket, commit)),
                Action::Perform(attempt) => {
                    self.expect_recorded(&attempt);
                    self.begin(id, Op::Perform(attempt));
                }
                Action::Load(execution) | Action::LoadLater(execution) => self.begin(id, Op::Load(execution)),
                Action::Abandon(attempt) => self.abandon(id, attempt),
                Action::Lost => self.bury(id),
                Action::Give { seat, held } => self.give(seat, *held),
                Action::TakeBack(claims) => self.take_back(claims),
                Action::Reported { attempt, is_taken: true } => self.expect_ended(attempt),
                Action::Reported { .. }
                | Action::Begun { .. }
                | Action::Over { .. }
                | Action::ReadInbox
                | Action::Offer { .. }
                | Action::Spans(_)
                | Action::InDoubt(_)
                | Action::Log { .. } => {}
                Action::Stuck { execution, reason } => self.stuck.push(format!("{execution}: {reason}")),
            }
        }
    }

    /// What others can tell was done is recorded before.
    fn expect_recorded(&mut self, attempt: &Attempt) {
        let its = (attempt.id.promise(), attempt.id.attempt);
        if !attempt.reaches_nobody() && !self.is_started(attempt.id.execution, &its) {
            self.hasty.push(format!("{} began before its start was durable", its.0));
        }
    }

    /// Whether the start of an attempt is durable.
    pub(crate) fn is_started(&self, execution: ExecutionId, its: &(PromiseId, u32)) -> bool {
        let events = self.events(execution).unwrap_or_default();
        let is_start = |recorded: &JournalEvent| matches!(&recorded.event, Event::InvokeStarted { promise_id, attempt, .. } if (promise_id, *attempt) == (&its.0, its.1));
        events.iter().any(is_start)
    }

    /// What is abandoned may or may not have been done.
    fn abandon(&mut self, id: u32, attempt: AttemptId) {
        if self.draw.percent(50) {
            self.under_way.retain(|(_, node, op)| !(*node == id && matches!(op, Op::Perform(it) if it.id == attempt)));
        }
    }

    fn note(&mut self, action: &Action) {
        for byte in format!("{action:?}").bytes() {
            self.trace = (self.trace ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
