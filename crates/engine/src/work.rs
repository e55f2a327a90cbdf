//! Tasks for workers: claim, go on, complete, fail. A task is held by whoever knows its claim, until the lease runs out.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use onward_journal::{Delivery, ExecutionError, ExecutionId, InvokeResult, Payload, PromiseId, Text, Timestamp};
use onward_store::tables::{Function, Task, WorkerFunction};
use onward_store::{Change, Commit, Error, Field as _, Key, Kind, Records as _, Scan, Shard, Store};
use tokio::time::Instant;

use crate::client::{Client, Refused, Scope};
use crate::node::{Note, Word, measure};
use crate::offers::Offers;
use crate::shard::task::{self, QUEUED};
use crate::shard::{AttemptId, in_doubt, owner, result_message};

/// How often to look for tasks that another process may have queued.
const LOOK: Duration = Duration::from_millis(250);

/// Tasks that are claimed together at most.
const TOGETHER_MAX: usize = 100;

/// How often something is tried that others get in the way of.
const TRIES: u32 = 20;

/// How long the note that a worker asks for a function is good for.
const ASKED: Duration = Duration::from_secs(60);

/// Lost tasks that are dealt with at a time.
const LOST_PAGE: usize = 100;

/// What a worker asks for.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its name, for people.
    pub worker: Text,
    /// Tasks of these functions.
    pub functions: Vec<Text>,
    /// At most so many.
    pub most: usize,
    /// How long it may go without a sign of life.
    pub lease_ms: u32,
}

/// A task that a worker holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which attempt of which operation.
    pub id: AttemptId,
    /// What the worker names it by besides.
    pub claim: Text,
    /// The function.
    pub function: Text,
    /// What it is called with.
    pub input: Payload,
    /// Whether it may be repeated.
    pub delivery: Delivery,
    /// How long it may take, in milliseconds.
    pub timeout_ms: Option<u64>,
    /// When it is taken back, unless the worker shows that it is alive.
    pub leased_until: Timestamp,
}

impl Held {
    /// The operation: the same for every attempt, and for nothing else.
    pub fn promise(&self) -> PromiseId {
        self.id.promise()
    }
}

impl Client {
    /// Claims tasks; where there is none, waits for one at most so long, or until `gone`. To be driven to its end: what is
    /// claimed by somebody who does not hear of it is held until the lease runs out.
    pub async fn claim(
        &self,
        wanted: &Claim,
        wait: Duration,
        gone: impl Future<Output = ()>,
    ) -> Result<Vec<Held>, Refused> {
        self.ask_for(wanted).await?;
        let mut gone = pin!(gone);
        let until = Instant::now() + wait;
        let owner = self.owner();
        let offers = self.offers();
        loop {
            // Whatever is queued from here on is told.
            let waiting = offers.wait(&owner, wanted);
            let held = self.try_claim(wanted, &offers).await?;
            if !held.is_empty() || Instant::now() >= until {
                return Ok(held);
            }
            waiting.open(wanted.most.clamp(1, TOGETHER_MAX));
            let is_gone = tokio::select! {
                () = waiting.told() => false,
                () = tokio::time::sleep_until((Instant::now() + LOOK).min(until)) => false,
                () = &mut gone => true,
            };
            let held = waiting.close().await;
            if is_gone {
                self.let_go(&held).await;
                return Ok(Vec::new());
            }
            if !held.is_empty() {
                return Ok(held);
            }
        }
    }

    fn owner(&self) -> Text {
        let Scope { tenant, project, environment } = self.scope();
        owner(tenant, project, environment)
    }

    /// Makes it known that workers perform these functions. Of those that components have, only what was queued before is left;
    /// a worker that asks for nothing else is told so.
    async fn ask_for(&self, wanted: &Claim) -> Result<(), Refused> {
        let mut deployed = None;
        let mut is_any_ours = false;
        for function in &wanted.functions {
            if self.was_asked(function) || self.note_asked(function, &wanted.worker).await? {
                is_any_ours = true;
            } else {
                deployed = Some(function);
            }
        }
        match deployed {
            Some(function) if !is_any_ours => Err(Refused::Deployed(function.to_string())),
            _ => Ok(()),
        }
    }

    fn was_asked(&self, function: &Text) -> bool {
        let Some(nearby) = self.nearby() else { return false };
        let asked = nearby.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        asked.get(&(self.owner(), function.clone())).is_some_and(|at| at.elapsed() < ASKED)
    }

    /// Tells whether it is for workers.
    async fn note_asked(&self, function: &Text, worker: &Text) -> Result<bool, Refused> {
        let Scope { tenant, project, environment } = self.scope();
        let key = Key(vec![tenant.to_value(), project.to_value(), environment.to_value(), function.to_value()]);
        let deployed: Option<(Function, u64)> = self.store().get(key.clone()).await?;
        if deployed.is_some() {
            return Ok(false);
        }
        for _ in 0..TRIES {
            let known: Option<(WorkerFunction, u64)> = self.store().get(key.clone()).await?;
            let row = WorkerFunction {
                tenant_id: tenant.clone(),
                project_id: project.clone(),
                environment_id: environment.clone(),
                name: function.clone(),
                worker: worker.clone(),
                asked_at: self.store().now().await?,
            };
            let change = known.map_or_else(|| Change::insert(&row), |(_, version)| Change::update(&row, version));
            let mut commit = Commit::new();
            commit.changes.push(change);
            match self.store().commit(commit).await {
                Ok(_) => break,
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(nearby) = self.nearby() {
            let mut asked = nearby.asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            asked.retain(|_, at| at.elapsed() < ASKED);
            asked.insert((self.owner(), function.clone()), Instant::now());
        }
        Ok(true)
    }

    async fn try_claim(&self, wanted: &Claim, offers: &Offers) -> Result<Vec<Held>, Refused> {
        let most = wanted.most.clamp(1, TOGETHER_MAX);
        for _ in 0..TRIES {
            let within = most + offers.in_hand().min(TOGETHER_MAX);
            let found = self.queued(wanted, within + 1, self.turn()).await?;
            let are_all = found.len() <= within;
            if are_all {
                offers.caught_up(&self.owner(), &wanted.functions);
            }
            let taken = offers.take(found.iter().map(|(row, _)| task::id(row)), most);
            if taken.ids.is_empty() {
                return Ok(Vec::new());
            }
            let now = self.store().now().await?;
            let mut commit = Commit::new();
            let mut held = Vec::with_capacity(taken.ids.len());
            for (row, version) in found.into_iter().filter(|(row, _)| taken.ids.contains(&task::id(row))) {
                let claim = crate::client::random_key().into();
                let mut row = row;
                task::claimed(&mut row, &wanted.worker, wanted.lease_ms, claim, now);
                commit = commit.update(&row, version);
                let input = Payload::parse(&row.input).map_err(Error::corrupt)?;
                held.push(task::held(row, input));
            }
            match self.store().commit(commit).await {
                Ok(_) => {
                    // There are more, for the next who waits.
                    if !are_all {
                        offers.offer(&self.owner(), &wanted.functions);
                    }
                    return Ok(held);
                }
                // Another process was faster, or one of them is no longer wanted.
                Err(Error::Conflict(_)) => {}
                Err(error) => {
                    if error.kind() == Kind::Unknown {
                        self.let_go(&held).await;
                    }
                    return Err(error.into());
                }
            }
        }
        Ok(Vec::new())
    }

    /// Tasks that may be held by whoever will not hear of them.
    async fn let_go(&self, held: &[Held]) {
        for held in held {
            if let Err(error) = self.give_back(held.id, &held.claim).await {
                tracing::debug!(%error, "a task was not claimed, or stays claimed until its lease runs out");
            }
        }
    }

    /// Tasks that wait for a worker, those of each function in the order in which they were queued.
    async fn queued(&self, wanted: &Claim, most: usize, turn: usize) -> Result<Vec<(Task, u64)>, Error> {
        let Scope { tenant, project, environment } = self.scope();
        let mut found: Vec<(Task, u64)> = Vec::new();
        let functions: BTreeSet<&Text> = wanted.functions.iter().collect();
        // Another is first each time, so that none has to wait for ever.
        let first = turn % functions.len().max(1);
        for function in functions.iter().cycle().skip(first).take(functions.len()) {
            if found.len() >= most {
                break;
            }
            let scan = Scan::by::<Task>(Task::BY_FUNCTION).equal(tenant).equal(project).equal(environment);
            let scan = scan.equal(*function).equal(&Text::from(QUEUED)).limit(most - found.len());
            let rows: Vec<(Task, u64)> = self.store().list(scan).await?;
            found.extend(rows);
        }
        Ok(found)
    }

    /// Shows that the worker is alive. Returns until when the task is its own.
    pub async fn go_on(&self, id: AttemptId, claim: &str) -> Result<Timestamp, Refused> {
        let longer = |row: &Task, now: Timestamp| now.plus_ms(row.lease_ms.into()).max(row.leased_until);
        let change = |row: &Task, version, now| {
            Ok(Commit::new().update(&Task { leased_until: longer(row, now), ..row.clone() }, version))
        };
        let (row, now) = self.change_held(id, claim, change).await?;
        Ok(longer(&row, now))
    }

    /// A worker gives a task back that it has not begun: it waits for another as if nobody had had it.
    pub async fn give_back(&self, id: AttemptId, claim: &str) -> Result<(), Refused> {
        let (row, _) = self.change_held(id, claim, given_back).await?;
        offer(&**self.store(), &self.offers(), &self.owner(), &[row.function]);
        Ok(())
    }

    /// A task has ended. Its worker does not hold it from then on.
    pub async fn end_task(&self, id: AttemptId, claim: &str, result: InvokeResult) -> Result<(), Refused> {
        if let Ok(payload) = &result {
            self.fits(payload)?;
        }
        if let Some(nearby) = self.nearby() {
            let (row, _) = held(&**self.store(), id, claim, |row| self.is_ours(row)).await?;
            match nearby.report(&row, result.clone()).await {
                Some(true) => return Ok(()),
                Some(false) => return Err(Refused::LeaseLost),
                // Its shard is elsewhere, or about to be.
                None => {}
            }
        }
        let change = |row: &Task, version, now| ended(row, version, result.clone(), now);
        let (row, _) = self.change_held(id, claim, change).await?;
        self.tell(row.shard, Note::Message);
        Ok(())
    }

    /// The same, and claims the task that follows from the end, if it is one of what is `wanted`. To be driven to its end, like
    /// [`Self::claim`]: that is for what waits already, and gets many at a time.
    pub async fn end_and_claim(
        &self,
        id: AttemptId,
        claim: &str,
        result: InvokeResult,
        wanted: &Claim,
    ) -> Result<Option<Held>, Refused> {
        if let Err(error) = self.ask_for(wanted).await {
            tracing::debug!(%error, "a worker cannot ask for what follows");
        }
        let waiting = self.offers().follow(id.execution, &self.owner(), wanted);
        let ended = self.end_task(id, claim, result).await;
        let mut held = waiting.close().await;
        if ended.is_err() {
            self.let_go(&held).await;
        }
        ended?;
        Ok(held.pop())
    }

    /// Changes a task that is held by this claim, whatever gets in the way meanwhile. Returns how it read before, and when that was.
    async fn change_held(
        &self,
        id: AttemptId,
        claim: &str,
        change: impl Fn(&Task, u64, Timestamp) -> Result<Commit, Error>,
    ) -> Result<(Task, Timestamp), Refused> {
        change_held(&**self.store(), id, claim, |row| self.is_ours(row), change).await
    }

    fn is_ours(&self, row: &Task) -> bool {
        self.scope().has(&row.tenant_id, &row.project_id, &row.environment_id)
    }

    /// Tasks of this scope after a place: by function, those of a state together, oldest first.
    pub async fn tasks(&self, after: Option<&Place>, limit: usize) -> Result<Vec<Task>, Refused> {
        let Scope { tenant, project, environment } = self.scope();
        let mut scan = Scan::by::<Task>(Task::BY_FUNCTION).equal(tenant).equal(project).equal(environment).limit(limit);
        scan.after = after.map(|Place { function, state, queued_at, id }| {
            let order = [function.to_value(), state.to_value(), queued_at.to_value()];
            let whose = [tenant.to_value(), project.to_value(), environment.to_value()];
            whose.into_iter().chain(order).chain(task::key(*id).0).collect()
        });
        let rows: Vec<(Task, u64)> = self.store().list(scan).await?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }
}

/// Changes a task that is held by this claim, whatever gets in the way meanwhile. Returns how it read before, and when that was.
async fn change_held(
    store: &dyn Store,
    id: AttemptId,
    claim: &str,
    is_allowed: impl Fn(&Task) -> bool,
    change: impl Fn(&Task, u64, Timestamp) -> Result<Commit, Error>,
) -> Result<(Task, Timestamp), Refused> {
    for _ in 0..TRIES {
        let (row, version) = held(store, id, claim, &is_allowed).await?;
        let now = store.now().await?;
        match store.commit(change(&row, version, now)?).await {
            Ok(_) => return Ok((row, now)),
            Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Refused::LeaseLost)
}

/// A task that is held by this claim.
async fn held(
    store: &dyn Store,
    id: AttemptId,
    claim: &str,
    is_allowed: impl Fn(&Task) -> bool,
) -> Result<(Task, u64), Refused> {
    let stored: Option<(Task, u64)> = store.get(task::key(id)).await?;
    let is_held = |row: &Task| is_allowed(row) && row.claim.as_deref() == Some(claim);
    stored.filter(|(row, _)| is_held(row)).ok_or(Refused::LeaseLost)
}

/// As if nobody had had it.
fn given_back(row: &Task, version: u64, _now: Timestamp) -> Result<Commit, Error> {
    let (state, leased_until) = (QUEUED.into(), Timestamp::MAX);
    Ok(Commit::new().update(&Task { state, leased_until, worker: None, claim: None, ..row.clone() }, version))
}

/// Lets workers know of tasks, one of each of these functions: those that wait here, or else those that wait elsewhere.
pub(crate) fn offer(store: &dyn Store, offers: &Offers, owner: &Text, functions: &[Text]) {
    for function in offers.offer(owner, functions) {
        store.tell(Word::Task(owner.clone(), function.clone()).to_string());
    }
}

/// Takes a task back that is, or may be, held by a worker that will not hear of it. What cannot be reached for long is left to
/// its lease.
pub(crate) async fn take_back(store: &dyn Store, offers: &Offers, id: AttemptId, claim: &str) {
    for _ in 0..TRIES {
        match change_held(store, id, claim, |_| true, given_back).await {
            Ok((row, _)) => {
                let owner = owner(&row.tenant_id, &row.project_id, &row.environment_id);
                return offer(store, offers, &owner, &[row.function]);
            }
            Err(Refused::Store(error)) if error.kind() == Kind::Fatal => return,
            // What is being stored may come yet.
            Err(_) => tokio::time::sleep(LOOK).await,
        }
    }
}

/// Where a task stands among those of its scope, also after it is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    function: Text,
    state: Text,
    queued_at: Timestamp,
    id: AttemptId,
}

impl Place {
    /// Where a task stands.
    pub fn of(task: &Task) -> Self {
        let Task { function, state, queued_at, .. } = task;
        Self { function: function.clone(), state: state.clone(), queued_at: *queued_at, id: task::id(task) }
    }

    /// The place that is written so.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(4, ':');
        let (micros, state, id) = (parts.next()?.parse().ok()?, parts.next()?.into(), task_named(parts.next()?)?);
        Some(Self { function: parts.next()?.into(), state, queued_at: Timestamp::from_micros(micros)?, id })
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { function, state, queued_at, id } = self;
        write!(f, "{}:{state}:{}:{function}", queued_at.as_micros(), task_name(*id))
    }
}

/// The end of a task: it is on its way to whoever wants it, and no worker's any more.
fn ended(row: &Task, version: u64, result: InvokeResult, now: Timestamp) -> Result<Commit, Error> {
    let message = result_message(&task::id(row).promise(), row.shard, row.attempt, result, now)?;
    Ok(Commit::new().delete(row, version).insert_or_keep(&message))
}

/// Takes tasks from workers whose time is over. Returns the shards that have something to read.
pub async fn expire(store: &dyn Store, now: Timestamp) -> Result<BTreeSet<Shard>, Error> {
    let mut scan = Scan::by::<Task>(Task::BY_LEASE).until(&now).limit(LOST_PAGE);
    let mut shards = BTreeSet::new();
    loop {
        let lost: Vec<(Task, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = lost.last() else { return Ok(shards) };
        scan = scan.after(last);
        end_lost(store, lost, now, &mut shards).await?;
    }
}

async fn end_lost(
    store: &dyn Store,
    lost: Vec<(Task, u64)>,
    now: Timestamp,
    shards: &mut BTreeSet<Shard>,
) -> Result<(), Error> {
    for (row, version) in lost {
        let worker = row.worker.as_deref().unwrap_or_default();
        let how = format!("worker {worker} was not heard of for {} ms", row.lease_ms);
        let is_once = task::is_at_most_once(&row);
        let error = if is_once { in_doubt(&how) } else { ExecutionError::named("worker_lost", how) };
        tracing::warn!(execution = %row.execution_id, function = %row.function, worker, "a worker is lost");
        match store.commit(ended(&row, version, Err(error), now)?).await {
            Ok(_) => {
                shards.insert(row.shard);
                if is_once {
                    measure::in_doubt(task::id(&row));
                }
            }
            // It was heard of at the last moment.
            Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Who has asked for the functions of these tasks last, and when.
pub(crate) async fn asked_for(store: &dyn Store, tasks: &[Task]) -> Result<BTreeMap<Text, (Text, Timestamp)>, Error> {
    let mut asked = BTreeMap::new();
    for Task { tenant_id, project_id, environment_id, function, .. } in tasks {
        let key = [tenant_id.to_value(), project_id.to_value(), environment_id.to_value(), function.to_value()];
        let row: Option<(WorkerFunction, u64)> = store.get(Key(key.into())).await?;
        asked.extend(row.map(|(row, _)| (row.name, (row.worker, row.asked_at))));
    }
    Ok(asked)
}

/// Why an attempt ends that waited for a worker when its function was deployed.
pub(crate) fn deployed_meanwhile() -> ExecutionError {
    ExecutionError::named("unknown_function", "it was deployed after it had been asked for")
}

/// Tasks that waited for a worker when their function was deployed: the next attempt is the component's.
pub(crate) async fn hand_over(store: &dyn Store, named: &Function) -> Result<(), Error> {
    let Function { tenant_id, project_id, environment_id, name, .. } = named;
    let scan = Scan::by::<Task>(Task::BY_FUNCTION).equal(tenant_id).equal(project_id).equal(environment_id).equal(name);
    let mut scan = scan.equal(&Text::from(QUEUED)).limit(LOST_PAGE);
    loop {
        let waiting: Vec<(Task, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = waiting.last() else { return Ok(()) };
        scan = scan.after(last);
        // One that has no other attempt stays for a worker.
        let waiting = waiting.into_iter().filter(|(row, _)| !row.is_last);
        for (row, version) in waiting {
            match store.commit(ended(&row, version, Err(deployed_meanwhile()), store.now().await?)?).await {
                // A worker was faster, which is as good.
                Ok(_) | Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The same for every function that is deployed.
pub(crate) async fn hand_over_all(store: &dyn Store) -> Result<(), Error> {
    let mut scan = Scan::all::<Function>();
    loop {
        let page: Vec<(Function, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        scan = scan.after(last);
        for (named, _) in page {
            hand_over(store, &named).await?;
        }
    }
}

/// Which attempt a task is.
pub const fn id_of(task: &Task) -> AttemptId {
    task::id(task)
}

/// The name of an attempt: the execution, the number of the operation, and the attempt.
pub fn task_name(id: AttemptId) -> String {
    format!("{}.{}.{}", id.execution, id.number, id.attempt)
}

/// The attempt that has this name.
pub fn task_named(name: &str) -> Option<AttemptId> {
    let mut parts = name.split('.');
    let execution: ExecutionId = parts.next()?.parse().ok()?;
    let (number, attempt) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    parts.next().is_none().then_some(AttemptId { execution, number, attempt })
}
