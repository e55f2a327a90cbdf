//! Whoever wants something of executions without running them: it knows the store alone, so it works from any process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use onward_api::Json;
pub use onward_api::component::{FunctionInfo, FunctionKind};
pub use onward_api::execution::Order;
use onward_execution::{Ending, Execution as InMemory, Limits, Start};
use onward_journal::{
    ComponentDigest, Event, ExecutionId, InvokeResult, Journal, JournalEvent, Name, Payload, Text, Timestamp, codec,
};
use onward_runs::{EnvironmentId, ProjectId, TenantId};
use onward_store::tables::{Component, Execution, Function, Message};
use onward_store::{
    Change, Commit, Conflict, Error, Field as _, JournalAppend, Key, Outcome, Record as _, Records as _, Scan, Shard,
    Store,
};

use crate::node::{Nearby, Node, Note, Word};
use crate::offers::Offers;
use crate::shard::{cancel, owner, signal};

/// Slices that executions are spread over. Every process that uses a store has to agree.
pub const SHARDS: u32 = 8;

/// How often a deployment is tried that others get in the way of.
const DEPLOY_TRIES: u32 = 20;

/// The slice of an execution that nobody called.
pub fn shard_of(execution: &ExecutionId) -> Shard {
    Shard(u32::from(execution.as_bytes()[0]) % SHARDS)
}

/// Whose executions and functions are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The tenant.
    pub tenant: TenantId,
    /// The project.
    pub project: ProjectId,
    /// The environment.
    pub environment: EnvironmentId,
}

impl Scope {
    /// Whether what belongs to these belongs to it.
    pub fn has(&self, tenant: &TenantId, project: &ProjectId, environment: &EnvironmentId) -> bool {
        (tenant, project, environment) == (&self.tenant, &self.project, &self.environment)
    }
}

/// What a start came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The execution.
    pub execution: ExecutionId,
    /// Whether it was there already: the key has started it before.
    pub existed: bool,
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The store says no.
    #[error(transparent)]
    Store(#[from] Error),
    /// No such function was deployed.
    #[error("there is no function {0}: deploy a component that has it")]
    NoFunction(String),
    /// It is a task.
    #[error("{0} is a task: only workflows are started, tasks are invoked by them")]
    NotAWorkflow(String),
    /// There is no such execution.
    #[error("there is no execution {0}")]
    NoExecution(ExecutionId),
    /// The execution is over.
    #[error("execution {0} is over")]
    Over(ExecutionId),
    /// A component has the function.
    #[error("{0} is deployed as a function of a component: workers cannot perform it")]
    Deployed(String),
    /// The worker does not hold the task.
    #[error("the task is not held by this claim: it is over, no longer wanted, or somebody else's")]
    LeaseLost,
    /// The key has started something else.
    #[error("the key has started {0} with another input")]
    KeyTaken(ExecutionId),
    /// An input or a signal is too large.
    #[error("it has {found} bytes, at most {limit} are allowed")]
    TooLarge {
        /// How many bytes it has.
        found: usize,
        /// How many it may have.
        limit: usize,
    },
}

/// Access to executions through their store.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn Store>,
    scope: Scope,
    limits: Limits,
    nearby: Option<Arc<Nearby>>,
    turns: Arc<AtomicUsize>,
}

impl Client {
    /// Access to what `scope` owns.
    pub fn new(store: Arc<dyn Store>, scope: Scope) -> Self {
        Self { store, scope, limits: Limits::default(), nearby: None, turns: Arc::default() }
    }

    /// The same, telling a node of this process at once what it would find in the store a little later.
    #[must_use]
    pub fn beside(self, node: &Node) -> Self {
        Self { nearby: Some(node.nearby()), ..self }
    }

    /// The same for another owner.
    #[must_use]
    pub fn of(&self, scope: Scope) -> Self {
        Self { scope, ..self.clone() }
    }

    pub(crate) fn nearby(&self) -> Option<&Nearby> {
        self.nearby.as_deref()
    }

    /// Who waits for tasks in this process.
    pub(crate) fn offers(&self) -> Arc<Offers> {
        self.nearby.as_ref().map_or_else(Arc::default, |nearby| Arc::clone(&nearby.offers))
    }

    /// A number that is another each time.
    pub(crate) fn turn(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the owner of a shard, wherever it is.
    pub(crate) fn tell(&self, shard: Shard, note: Note) {
        let is_here = self.nearby.as_ref().is_some_and(|nearby| nearby.tell(shard, note));
        if !is_here {
            self.store.tell(Word::Shard(shard).to_string());
        }
    }

    /// The store.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Whose executions and functions it sees.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Stores a component and lets names stand for its functions from now on. They may send requests to `hosts`, as far as
    /// the process that runs them allows it.
    pub async fn deploy(
        &self,
        code: &[u8],
        functions: &[FunctionInfo],
        hosts: &[String],
    ) -> Result<ComponentDigest, Refused> {
        let mut tries = 0;
        loop {
            // Whoever deploys at the same moment is before or after this.
            match self.try_deploy(code, functions, hosts).await {
                Err(Refused::Store(Error::Conflict(_))) if tries < DEPLOY_TRIES => tries += 1,
                outcome => return outcome,
            }
        }
    }

    async fn try_deploy(
        &self,
        code: &[u8],
        functions: &[FunctionInfo],
        hosts: &[String],
    ) -> Result<ComponentDigest, Refused> {
        let component_digest = ComponentDigest::of(code);
        let now = self.store.now().await?;
        let text = serde_json::to_string(functions).map_err(Error::corrupt)?;
        let hosts = Text::from(serde_json::to_string(hosts).map_err(Error::corrupt)?);
        let component = Component { component_digest, code: code.into(), functions: text.into(), created_at: now };
        let mut commit = Commit::new().insert_or_keep(&component);
        for function in functions {
            let row = Function {
                tenant_id: self.scope.tenant.clone(),
                project_id: self.scope.project.clone(),
                environment_id: self.scope.environment.clone(),
                name: function.name.as_str().into(),
                kind: function.kind.as_str().into(),
                component_digest,
                hosts: hosts.clone(),
                deployed_at: now,
            };
            commit.changes.push(match self.function_row(&function.name).await? {
                Some((_, version)) => Change::update(&row, version),
                None => Change::insert(&row),
            });
        }
        self.store.commit(commit).await?;
        Ok(component_digest)
    }

    async fn function_row(&self, name: &str) -> Result<Option<(Function, u64)>, Error> {
        let Scope { tenant, project, environment } = &self.scope;
        let key = [tenant.to_value(), project.to_value(), environment.to_value(), Text::from(name).to_value()];
        self.store.get(Key(key.into())).await
    }

    /// Starts a workflow, unless `key` has started one already.
    pub async fn start(&self, function: &str, input: Payload, key: Option<&str>) -> Result<Started, Refused> {
        let (id, deployed) = self.to_start(function, &input, key).await?;
        self.start_as(id, &deployed, input, key).await
    }

    /// What a start would start, and as whom.
    pub(crate) async fn to_start(
        &self,
        function: &str,
        input: &Payload,
        key: Option<&str>,
    ) -> Result<(ExecutionId, Function), Refused> {
        self.fits(input)?;
        let Some((deployed, _)) = self.function_row(function).await? else {
            return Err(Refused::NoFunction(function.to_owned()));
        };
        if &*deployed.kind != FunctionKind::Workflow.as_str() {
            return Err(Refused::NotAWorkflow(function.to_owned()));
        }
        let made = key.map_or_else(random_key, str::to_owned);
        let id = ExecutionId::derive(&deployed.component_digest, None, &self.unique_key(function, &made));
        Ok((id, deployed))
    }

    pub(crate) async fn start_as(
        &self,
        id: ExecutionId,
        deployed: &Function,
        input: Payload,
        key: Option<&str>,
    ) -> Result<Started, Refused> {
        let conflict = match self.insert(id, deployed, input.clone(), key).await {
            Ok(()) => return Ok(Started { execution: id, existed: false }),
            Err(Error::Conflict(conflict)) => conflict,
            Err(error) => return Err(error.into()),
        };
        let existing = match &conflict {
            // The same key on the same code.
            Conflict::JournalLength { execution, .. } => Some(*execution).filter(|it| *it == id),
            // The same, or the same key on code that was deployed before.
            Conflict::RowExists { table, key } | Conflict::NotUnique { table, key, .. } => {
                key.0.first().filter(|_| *table == Execution::TABLE.name).and_then(ExecutionId::from_value)
            }
            _ => None,
        };
        let begun_with = match existing {
            Some(execution) => self.input_of(execution).await?.map(|first| (execution, first)),
            None => None,
        };
        match begun_with {
            Some((execution, first)) if is_same(first.as_str(), input.as_str()) => {
                Ok(Started { execution, existed: key.is_some() })
            }
            Some((execution, _)) => Err(Refused::KeyTaken(execution)),
            None => Err(Error::from(conflict).into()),
        }
    }

    /// What an execution was started with.
    async fn input_of(&self, execution: ExecutionId) -> Result<Option<Payload>, Error> {
        let Some(chunk) = self.store.journal(execution, 0, 1).await?.into_iter().next() else { return Ok(None) };
        let events = codec::decode(execution, &chunk.records).map_err(Error::corrupt)?;
        Ok(events.into_iter().next().and_then(|first| match first.event {
            Event::ExecutionStarted { input, .. } => Some(input),
            _ => None,
        }))
    }

    pub(crate) fn fits(&self, payload: &Payload) -> Result<(), Refused> {
        let (found, limit) = (payload.as_str().len(), self.limits.payload_bytes_max);
        if found > limit { Err(Refused::TooLarge { found, limit }) } else { Ok(()) }
    }

    /// Keys are unique within a scope and a function; ids are everywhere.
    fn unique_key(&self, function: &str, key: &str) -> String {
        let Scope { tenant, project, environment } = &self.scope;
        format!("{}|{function}|{key}", owner(tenant, project, environment))
    }

    async fn insert(
        &self,
        id: ExecutionId,
        deployed: &Function,
        input: Payload,
        key: Option<&str>,
    ) -> Result<(), Error> {
        let now = self.store.now().await?;
        let component_digest = deployed.component_digest;
        let key = key.map(Text::from);
        let start = Start { component_digest, input, parent: None, key: key.clone(), signals: Vec::new() };
        let mut execution = InMemory::start(id, start, now, self.limits).map_err(Error::corrupt)?;
        let row = Execution {
            execution_id: id,
            tenant_id: self.scope.tenant.clone(),
            project_id: self.scope.project.clone(),
            environment_id: self.scope.environment.clone(),
            shard: shard_of(&id),
            function: deployed.name.clone(),
            component_digest,
            start_key: key,
            state: "Running".into(),
            wake_at: now,
            created_at: now,
            body: [].into(),
        };
        if let Some(nearby) = &self.nearby
            && let Some(begun) = nearby.begin(&row, &execution).await
        {
            return begun;
        }
        let events = execution.take_events().to_vec();
        let records = codec::encode(id, &events).map_err(Error::corrupt)?;
        let append = JournalAppend { execution: id, expected: 0, count: 1, records: records.into() };
        self.store.commit(Commit::new().insert(&row).journal(append)).await?;
        self.tell(row.shard, Note::Started(Box::new(row), events));
        Ok(())
    }

    /// Sends a signal. Sending it again under the same key does nothing.
    pub async fn signal(
        &self,
        to: ExecutionId,
        name: Name,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<(), Refused> {
        self.fits(&payload)?;
        let row = self.execution(to).await?.ok_or(Refused::NoExecution(to))?;
        let is_over = is_over(&row) && self.result(to).await?.is_some();
        if is_over && key.is_none() {
            return Err(Refused::Over(to));
        }
        let now = self.store.now().await?;
        let message = signal(to, row.shard, name, payload, key.map(Text::from), now)?;
        let receipt = self.store.commit(Commit::new().insert_or_keep(&message)).await?;
        // Whoever sends it again, having heard nothing, need not know that it was the last thing the execution waited for.
        let is_new = receipt.changes.contains(&Outcome::Made);
        self.tell(message.shard, Note::Message);
        if is_over && is_new { Err(Refused::Over(to)) } else { Ok(()) }
    }

    /// Asks for cancellation.
    pub async fn cancel(&self, execution: ExecutionId, reason: &str) -> Result<(), Refused> {
        let row = self.open_execution(execution).await?;
        let message = cancel(execution, row.shard, reason.into(), self.store.now().await?)?;
        self.send(&message).await
    }

    async fn send(&self, message: &Message) -> Result<(), Refused> {
        self.store.commit(Commit::new().insert_or_keep(message)).await?;
        self.tell(message.shard, Note::Message);
        Ok(())
    }

    /// An execution that is not over, or whose place another has taken that is not: messages are handed on to that one.
    async fn open_execution(&self, id: ExecutionId) -> Result<Execution, Refused> {
        let row = self.execution(id).await?.ok_or(Refused::NoExecution(id))?;
        if is_over(&row) && self.result(id).await?.is_some() { Err(Refused::Over(id)) } else { Ok(row) }
    }

    /// The row of an execution of this scope.
    pub async fn execution(&self, id: ExecutionId) -> Result<Option<Execution>, Refused> {
        let row: Option<(Execution, u64)> = self.store.get(Key(vec![id.to_value()])).await?;
        Ok(row.map(|(row, _)| row).filter(|row| self.has(row)))
    }

    fn has(&self, row: &Execution) -> bool {
        self.scope.has(&row.tenant_id, &row.project_id, &row.environment_id)
    }

    /// Executions in the order of their age, after the one that was started then.
    pub async fn executions(
        &self,
        order: Order,
        after: Option<(Timestamp, ExecutionId)>,
        limit: usize,
    ) -> Result<Vec<Execution>, Refused> {
        let Scope { tenant, project, environment } = &self.scope;
        let mut scan =
            Scan::by::<Execution>(Execution::BY_AGE).equal(tenant).equal(project).equal(environment).limit(limit);
        scan.is_reversed = order == Order::Newest;
        scan.after = after.map(|(created_at, id)| {
            vec![tenant.to_value(), project.to_value(), environment.to_value(), created_at.to_value(), id.to_value()]
        });
        let rows: Vec<(Execution, u64)> = self.store.list(scan).await?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }

    /// Executions whose ids begin with these digits, at most `limit` of them and of other scopes' together.
    pub async fn executions_beginning(&self, digits: &str, limit: usize) -> Result<Vec<Execution>, Refused> {
        let filled = |with: char| format!("{digits}{}", with.to_string().repeat(64 - digits.len().min(64))).parse();
        let (Ok(first), Ok(last)) = (filled('0'), filled('f')) else { return Ok(Vec::new()) };
        let (first, last): (ExecutionId, ExecutionId) = (first, last);
        let mut scan = Scan::all::<Execution>().until(&last).limit(limit);
        scan.after = first.before().map(|before| vec![before.to_value()]);
        let rows: Vec<(Execution, u64)> = self.store.list(scan).await?;
        Ok(rows.into_iter().map(|(row, _)| row).filter(|row| self.has(row)).collect())
    }

    /// The journal of an execution.
    pub async fn journal(&self, id: ExecutionId) -> Result<Vec<JournalEvent>, Refused> {
        Ok(read_journal(&*self.store, id).await?)
    }

    /// The events of a journal from the one with sequence `from` on.
    pub async fn journal_from(&self, id: ExecutionId, from: u64) -> Result<Vec<JournalEvent>, Refused> {
        Ok(read_journal_from(&*self.store, id, from).await?)
    }

    /// What an execution, or whoever took its place in the end, ended with; `None` while it has not.
    pub async fn result(&self, id: ExecutionId) -> Result<Option<InvokeResult>, Refused> {
        let mut id = id;
        loop {
            match self.ending(id).await? {
                None => return Ok(None),
                Some(Ending::Result(result)) => return Ok(Some(result)),
                Some(Ending::Continued(next)) => id = next,
            }
        }
    }

    /// How an execution ended; `None` while it has not.
    pub async fn ending(&self, id: ExecutionId) -> Result<Option<Ending>, Refused> {
        let row = self.execution(id).await?.ok_or(Refused::NoExecution(id))?;
        if !is_over(&row) {
            return Ok(None);
        }
        let journal = Journal::recover(id, self.journal(id).await?).map_err(Error::corrupt)?;
        Ok(InMemory::recover(journal, self.limits).ending())
    }
}

/// Whether two JSON texts are the same but for white space between their parts.
fn is_same(one: &str, other: &str) -> bool {
    tight(one).eq(tight(other))
}

/// A JSON text without the white space between its parts.
fn tight(text: &str) -> impl Iterator<Item = u8> {
    let (mut in_string, mut is_escaped) = (false, false);
    text.bytes().filter(move |byte| {
        let is_part = in_string || !byte.is_ascii_whitespace();
        if *byte == b'"' && !is_escaped {
            in_string = !in_string;
        }
        is_escaped = in_string && *byte == b'\\' && !is_escaped;
        is_part
    })
}

/// Whether a row says that its execution is over.
pub fn is_over(row: &Execution) -> bool {
    matches!(&*row.state, "Completed" | "Failed" | "Cancelled")
}

/// All of a journal, page by page.
pub(crate) async fn read_journal(store: &dyn Store, id: ExecutionId) -> Result<Vec<JournalEvent>, Error> {
    read_journal_from(store, id, 0).await
}

/// What a journal holds from `from` on, page by page.
async fn read_journal_from(store: &dyn Store, id: ExecutionId, from: u64) -> Result<Vec<JournalEvent>, Error> {
    let mut events: Vec<JournalEvent> = Vec::new();
    loop {
        let known = events.len();
        let chunks = store.journal(id, from + known as u64, 1_000).await?;
        if chunks.is_empty() {
            return Ok(events);
        }
        for chunk in chunks {
            let decoded = codec::decode(id, &chunk.records).map_err(Error::corrupt)?;
            // The first page may begin with events that were stored together with the one that is wanted.
            events.extend(decoded.into_iter().filter(|event| event.sequence >= from));
        }
        if events.len() == known {
            return Err(Error::corrupt(format!("the journal of {id} has no event {}", from + known as u64)));
        }
    }
}

/// A key that nobody else has.
pub(crate) fn random_key() -> String {
    key_from(&mut entropy)
}

/// A key that is as good as the entropy it is made of.
pub(crate) fn key_from(entropy: &mut dyn FnMut(&mut [u8])) -> String {
    let mut bytes = [0; 16];
    entropy(&mut bytes);
    onward_journal::hex::encode(&bytes)
}

/// Entropy from the operating system.
pub(crate) fn entropy(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        tracing::error!(%error, "the operating system has no entropy");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::is_same;

    #[test]
    fn white_space_counts_inside_of_strings_only() {
        assert!(is_same(r#"{"a": [1, "x y"]}"#, "{ \"a\":[1,\"x y\"] }\n"));
        assert!(is_same(r#""\\" "#, r#""\\""#));
        for (one, other) in
            [(r#""x y""#, r#""xy""#), (r#""\" ""#, r#""\"""#), ("[1,2]", "[2,1]"), ("1", "1.0"), ("[1]", "[1")]
        {
            assert!(!is_same(one, other), "{one} {other}");
        }
    }
}
