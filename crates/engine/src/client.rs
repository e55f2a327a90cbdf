//! Client access to executions without running them. It needs only the store, so it works from any
//! process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub use onward_api::RawJson;
pub use onward_api::component::{FunctionInfo, FunctionKind};
pub use onward_api::execution::ExecutionOrder;
use onward_base::{BoundedName, Payload, Scope, SharedText, Timestamp};
use onward_execution::{Execution as InMemory, ExecutionLimits, ExecutionOutcome, ExecutionStart};
use onward_journal::{
    ComponentDigest, Event, ExecutionId, InvokeResult, Journal, JournalEvent, codec,
};
use onward_store::tables::{ComponentRow, ExecutionRow, FunctionRow, InboxMessageRow};
use onward_store::{
    ChangeOutcome, ColumnCodec as _, Commit, CommitConflict, Error, JournalAppend,
    RecordReader as _, RowChange, RowKey, ShardId, Store, TableRecord as _, TableScan,
};

use crate::node::{LocalHub, Node, Notification, ShardHint};
use crate::shard::{cancel_message, owner_key, signal_message};
use crate::task_matcher::TaskMatcher;

/// Number of shards that executions are spread over. Every process that uses a store must use the
/// same number.
pub const SHARD_COUNT: u32 = 8;

/// Maximum number of retries of a deployment whose commit conflicts with another commit.
const DEPLOY_RETRIES_MAX: u32 = 20;

/// Shard of a root execution, derived from its id. Children and successors run in the shard of
/// their first ancestor instead.
pub fn shard_of(execution: &ExecutionId) -> ShardId {
    ShardId(u32::from(execution.as_bytes()[0]) % SHARD_COUNT)
}

/// Result of starting an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedExecution {
    /// The execution that was started, or that the idempotency key had started before.
    pub execution: ExecutionId,
    /// Whether the idempotency key had already started this execution.
    pub already_existed: bool,
}

/// Reason why a client operation failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// The store returned an error.
    #[error(transparent)]
    Store(#[from] Error),
    /// No function of this name is deployed in the scope.
    #[error("there is no function {0}: deploy a component that has it")]
    FunctionNotFound(String),
    /// The function is a task, which only a workflow can invoke.
    #[error("{0} is a task: only workflows are started, tasks are invoked by them")]
    NotAWorkflow(String),
    /// No execution has this id in the scope.
    #[error("there is no execution {0}")]
    ExecutionNotFound(ExecutionId),
    /// The execution has ended, so it accepts no more messages.
    #[error("execution {0} is over")]
    ExecutionEnded(ExecutionId),
    /// The function is deployed as part of a component, so workers cannot perform it.
    #[error("{0} is deployed as a function of a component: workers cannot perform it")]
    FunctionDeployed(String),
    /// The claim token is not valid: the worker does not hold the task.
    #[error("the task is not held by this claim: it is over, no longer wanted, or somebody else's")]
    LeaseLost,
    /// The idempotency key has already started this execution with a different input.
    #[error("the key has started {0} with another input")]
    IdempotencyKeyConflict(ExecutionId),
    /// An input, signal payload or result exceeds the size limit.
    #[error("it has {found} bytes, at most {limit} are allowed")]
    PayloadTooLarge {
        /// Size of the payload in bytes.
        found: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
}

/// Client that reads and changes executions through their store, within one scope.
#[derive(Clone)]
pub struct EngineClient {
    store: Arc<dyn Store>,
    scope: Scope,
    limits: ExecutionLimits,
    hub: Option<Arc<LocalHub>>,
    claim_rotation: Arc<AtomicUsize>,
}

impl EngineClient {
    /// Creates a client for the executions and functions that `scope` owns.
    pub fn new(store: Arc<dyn Store>, scope: Scope) -> Self {
        Self {
            store,
            scope,
            limits: ExecutionLimits::default(),
            hub: None,
            claim_rotation: Arc::default(),
        }
    }

    /// Connects the client to a node of this process: the client notifies the node directly,
    /// instead of leaving it to find the change in the store a little later.
    #[must_use]
    pub fn with_local_node(self, node: &Node) -> Self {
        Self {
            hub: Some(node.local_hub()),
            ..self
        }
    }

    /// Returns a copy of this client for another scope.
    #[must_use]
    pub fn with_scope(&self, scope: Scope) -> Self {
        Self {
            scope,
            ..self.clone()
        }
    }

    pub(crate) fn local_hub(&self) -> Option<&LocalHub> {
        self.hub.as_deref()
    }

    /// The matcher of the workers that wait for tasks in this process; an empty one if no local
    /// node is connected.
    pub(crate) fn task_matcher(&self) -> Arc<TaskMatcher> {
        self.hub
            .as_ref()
            .map_or_else(Arc::default, |nearby| Arc::clone(&nearby.task_matcher))
    }

    /// Returns a different number on each call, to rotate the function that a claim scans first.
    pub(crate) fn next_claim_rotation(&self) -> usize {
        self.claim_rotation.fetch_add(1, Ordering::Relaxed)
    }

    /// Notifies the owner of a shard: directly if it is in this process, otherwise through the
    /// store.
    pub(crate) fn notify_shard(&self, shard: ShardId, note: ShardHint) {
        let is_here = self
            .hub
            .as_ref()
            .is_some_and(|nearby| nearby.send_hint(shard, note));
        if !is_here {
            self.store
                .notify(Notification::ShardWork(shard).to_string());
        }
    }

    /// The store that this client reads and writes.
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The scope whose executions and functions this client can see.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Stores a component and binds the names of its functions to it from now on. The functions may
    /// send requests to `hosts`, as far as the process that runs them allows it.
    pub async fn deploy_component(
        &self,
        code: &[u8],
        functions: &[FunctionInfo],
        hosts: &[String],
    ) -> Result<ComponentDigest, ClientError> {
        let mut tries = 0;
        loop {
            // A concurrent deployment is ordered before or after this one.
            match self.try_deploy_component(code, functions, hosts).await {
                Err(ClientError::Store(Error::Conflict(_))) if tries < DEPLOY_RETRIES_MAX => {
                    tries += 1
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_deploy_component(
        &self,
        code: &[u8],
        functions: &[FunctionInfo],
        hosts: &[String],
    ) -> Result<ComponentDigest, ClientError> {
        let component_digest = ComponentDigest::from_component(code);
        let now = self.store.now().await?;
        let text = serde_json::to_string(functions).map_err(Error::corrupt)?;
        let hosts = SharedText::from(serde_json::to_string(hosts).map_err(Error::corrupt)?);
        let component = ComponentRow {
            component_digest,
            code: code.into(),
            functions: text.into(),
            created_at: now,
        };
        let mut commit = Commit::new().insert_or_keep(&component);
        for function in functions {
            let row = FunctionRow {
                tenant_id: self.scope.tenant.clone(),
                project_id: self.scope.project.clone(),
                environment_id: self.scope.environment.clone(),
                name: function.name.as_str().into(),
                kind: function.kind.as_str().into(),
                component_digest,
                hosts: hosts.clone(),
                deployed_at: now,
            };
            commit
                .changes
                .push(match self.function_row(&function.name).await? {
                    Some((_, version)) => RowChange::update(&row, version),
                    None => RowChange::insert(&row),
                });
        }
        self.store.commit(commit).await?;
        Ok(component_digest)
    }

    async fn function_row(&self, name: &str) -> Result<Option<(FunctionRow, u64)>, Error> {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        let key = [
            tenant.to_value(),
            project.to_value(),
            environment.to_value(),
            SharedText::from(name).to_value(),
        ];
        self.store.read_record(RowKey(key.into())).await
    }

    /// Starts a workflow. If the idempotency key `key` has already started one, returns that
    /// execution.
    pub async fn start_execution(
        &self,
        function: &str,
        input: Payload,
        key: Option<&str>,
    ) -> Result<StartedExecution, ClientError> {
        let (id, deployed) = self.prepare_start(function, &input, key).await?;
        self.start_with_id(id, &deployed, input, key).await
    }

    /// Returns the execution id and the deployed function that a start with these arguments would
    /// use. Fails if the payload is too large or the function is missing or not a workflow.
    pub(crate) async fn prepare_start(
        &self,
        function: &str,
        input: &Payload,
        key: Option<&str>,
    ) -> Result<(ExecutionId, FunctionRow), ClientError> {
        self.check_payload_size(input)?;
        let Some((deployed, _)) = self.function_row(function).await? else {
            return Err(ClientError::FunctionNotFound(function.to_owned()));
        };
        if &*deployed.kind != FunctionKind::Workflow.as_str() {
            return Err(ClientError::NotAWorkflow(function.to_owned()));
        }
        let made = key.map_or_else(random_key, str::to_owned);
        let id = ExecutionId::derive(
            &deployed.component_digest,
            None,
            &self.scoped_key(function, &made),
        );
        Ok((id, deployed))
    }

    pub(crate) async fn start_with_id(
        &self,
        id: ExecutionId,
        deployed: &FunctionRow,
        input: Payload,
        key: Option<&str>,
    ) -> Result<StartedExecution, ClientError> {
        let conflict = match self
            .insert_execution(id, deployed, input.clone(), key)
            .await
        {
            Ok(()) => {
                return Ok(StartedExecution {
                    execution: id,
                    already_existed: false,
                });
            }
            Err(Error::Conflict(conflict)) => conflict,
            Err(error) => return Err(error.into()),
        };
        let existing = match &conflict {
            // The same key with the same component.
            CommitConflict::JournalLength { execution, .. } => {
                Some(*execution).filter(|it| *it == id)
            }
            // The same key with the same component, or with a component that was deployed before.
            CommitConflict::RowExists { table, key }
            | CommitConflict::NotUnique { table, key, .. } => key
                .0
                .first()
                .filter(|_| *table == ExecutionRow::TABLE.name)
                .and_then(ExecutionId::from_value),
            _ => None,
        };
        let begun_with = match existing {
            Some(execution) => self
                .execution_input(execution)
                .await?
                .map(|first| (execution, first)),
            None => None,
        };
        match begun_with {
            Some((execution, first)) if is_same_json(first.as_str(), input.as_str()) => {
                Ok(StartedExecution {
                    execution,
                    already_existed: key.is_some(),
                })
            }
            Some((execution, _)) => Err(ClientError::IdempotencyKeyConflict(execution)),
            None => Err(Error::from(conflict).into()),
        }
    }

    /// Returns the input that an execution was started with.
    async fn execution_input(&self, execution: ExecutionId) -> Result<Option<Payload>, Error> {
        let Some(chunk) = self
            .store
            .read_journal(execution, 0, 1)
            .await?
            .into_iter()
            .next()
        else {
            return Ok(None);
        };
        let events = codec::decode_record(execution, &chunk.records).map_err(Error::corrupt)?;
        Ok(events
            .into_iter()
            .next()
            .and_then(|first| match first.event {
                Event::ExecutionStarted { input, .. } => Some(input),
                _ => None,
            }))
    }

    pub(crate) fn check_payload_size(&self, payload: &Payload) -> Result<(), ClientError> {
        let (found, limit) = (payload.as_str().len(), self.limits.payload_bytes_max);
        if found > limit {
            Err(ClientError::PayloadTooLarge { found, limit })
        } else {
            Ok(())
        }
    }

    /// Idempotency keys are unique within a scope and a function, execution ids are globally
    /// unique: adds the scope and the function to the key.
    fn scoped_key(&self, function: &str, key: &str) -> String {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        format!(
            "{}|{function}|{key}",
            owner_key(tenant, project, environment)
        )
    }

    async fn insert_execution(
        &self,
        id: ExecutionId,
        deployed: &FunctionRow,
        input: Payload,
        key: Option<&str>,
    ) -> Result<(), Error> {
        let now = self.store.now().await?;
        let component_digest = deployed.component_digest;
        let key = key.map(SharedText::from);
        let start = ExecutionStart {
            component_digest,
            input,
            parent: None,
            key: key.clone(),
            signals: Vec::new(),
        };
        let mut execution = InMemory::start(id, start, now, self.limits).map_err(Error::corrupt)?;
        let row = ExecutionRow {
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
        if let Some(nearby) = &self.hub
            && let Some(begun) = nearby.request_start(&row, &execution).await
        {
            return begun;
        }
        let events = execution.take_events().to_vec();
        let records = codec::encode_record(id, &events).map_err(Error::corrupt)?;
        let append = JournalAppend {
            execution: id,
            expected_length: 0,
            count: 1,
            records: records.into(),
        };
        self.store
            .commit(Commit::new().insert(&row).append_journal(append))
            .await?;
        self.notify_shard(
            row.shard,
            ShardHint::ExecutionStarted(Box::new(row), events),
        );
        Ok(())
    }

    /// Sends a signal. Sending it again with the same idempotency key has no effect.
    pub async fn send_signal(
        &self,
        to: ExecutionId,
        name: BoundedName,
        payload: Payload,
        key: Option<&str>,
    ) -> Result<(), ClientError> {
        self.check_payload_size(&payload)?;
        let row = self
            .find_execution(to)
            .await?
            .ok_or(ClientError::ExecutionNotFound(to))?;
        let is_over = is_execution_over(&row) && self.execution_result(to).await?.is_some();
        if is_over && key.is_none() {
            return Err(ClientError::ExecutionEnded(to));
        }
        let now = self.store.now().await?;
        let message = signal_message(to, row.shard, name, payload, key.map(SharedText::from), now)?;
        let receipt = self
            .store
            .commit(Commit::new().insert_or_keep(&message))
            .await?;
        // A sender that retries after a lost response succeeds, even if this signal was the last
        // thing the execution waited for and the execution has ended since.
        let is_new = receipt.changes.contains(&ChangeOutcome::Applied);
        self.notify_shard(message.shard, ShardHint::MessageArrived);
        if is_over && is_new {
            Err(ClientError::ExecutionEnded(to))
        } else {
            Ok(())
        }
    }

    /// Requests cancellation of an execution. Fails if the execution has ended.
    pub async fn request_cancel(
        &self,
        execution: ExecutionId,
        reason: &str,
    ) -> Result<(), ClientError> {
        let row = self.find_open_execution(execution).await?;
        let message = cancel_message(execution, row.shard, reason.into(), self.store.now().await?)?;
        self.send_message(&message).await
    }

    async fn send_message(&self, message: &InboxMessageRow) -> Result<(), ClientError> {
        self.store
            .commit(Commit::new().insert_or_keep(message))
            .await?;
        self.notify_shard(message.shard, ShardHint::MessageArrived);
        Ok(())
    }

    /// Returns the row of an execution that has not ended, or that continued as an execution that
    /// has not ended: messages are forwarded to that successor.
    async fn find_open_execution(&self, id: ExecutionId) -> Result<ExecutionRow, ClientError> {
        let row = self
            .find_execution(id)
            .await?
            .ok_or(ClientError::ExecutionNotFound(id))?;
        if is_execution_over(&row) && self.execution_result(id).await?.is_some() {
            Err(ClientError::ExecutionEnded(id))
        } else {
            Ok(row)
        }
    }

    /// Returns the row of an execution, or `None` if this scope has no execution with the id.
    pub async fn find_execution(
        &self,
        id: ExecutionId,
    ) -> Result<Option<ExecutionRow>, ClientError> {
        let row: Option<(ExecutionRow, u64)> =
            self.store.read_record(RowKey(vec![id.to_value()])).await?;
        Ok(row.map(|(row, _)| row).filter(|row| self.is_in_scope(row)))
    }

    fn is_in_scope(&self, row: &ExecutionRow) -> bool {
        self.scope
            .matches_ids(&row.tenant_id, &row.project_id, &row.environment_id)
    }

    /// Lists at most `limit` executions of this scope by creation time, after the position `after`
    /// (creation time and id).
    pub async fn list_executions(
        &self,
        order: ExecutionOrder,
        after: Option<(Timestamp, ExecutionId)>,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, ClientError> {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        let mut scan = TableScan::by_index::<ExecutionRow>(ExecutionRow::BY_AGE)
            .where_equal(tenant)
            .where_equal(project)
            .where_equal(environment)
            .with_limit(limit);
        scan.is_reversed = order == ExecutionOrder::Newest;
        scan.after = after.map(|(created_at, id)| {
            vec![
                tenant.to_value(),
                project.to_value(),
                environment.to_value(),
                created_at.to_value(),
                id.to_value(),
            ]
        });
        let rows: Vec<(ExecutionRow, u64)> = self.store.list_records(scan).await?;
        Ok(rows.into_iter().map(|(row, _)| row).collect())
    }

    /// Lists executions of this scope whose ids begin with these hexadecimal digits. `limit`
    /// applies before the scope filter, so it also counts executions of other scopes.
    pub async fn find_by_id_prefix(
        &self,
        digits: &str,
        limit: usize,
    ) -> Result<Vec<ExecutionRow>, ClientError> {
        let filled = |with: char| {
            format!(
                "{digits}{}",
                with.to_string().repeat(64 - digits.len().min(64))
            )
            .parse()
        };
        let (Ok(first), Ok(last)) = (filled('0'), filled('f')) else {
            return Ok(Vec::new());
        };
        let (first, last): (ExecutionId, ExecutionId) = (first, last);
        let mut scan = TableScan::all_rows::<ExecutionRow>()
            .where_at_most(&last)
            .with_limit(limit);
        scan.after = first.previous_id().map(|before| vec![before.to_value()]);
        let rows: Vec<(ExecutionRow, u64)> = self.store.list_records(scan).await?;
        Ok(rows
            .into_iter()
            .map(|(row, _)| row)
            .filter(|row| self.is_in_scope(row))
            .collect())
    }

    /// Reads the whole journal of an execution.
    pub async fn read_journal(&self, id: ExecutionId) -> Result<Vec<JournalEvent>, ClientError> {
        Ok(read_journal(&*self.store, id).await?)
    }

    /// Reads the events of a journal, starting with sequence `from`.
    pub async fn read_journal_from(
        &self,
        id: ExecutionId,
        from: u64,
    ) -> Result<Vec<JournalEvent>, ClientError> {
        Ok(read_journal_from(&*self.store, id, from).await?)
    }

    /// Returns the result of an execution, following the executions it continued as; `None` until
    /// the last of them has ended.
    pub async fn execution_result(
        &self,
        id: ExecutionId,
    ) -> Result<Option<InvokeResult>, ClientError> {
        let mut id = id;
        loop {
            match self.execution_ending(id).await? {
                None => return Ok(None),
                Some(ExecutionOutcome::Result(result)) => return Ok(Some(result)),
                Some(ExecutionOutcome::Continued(next)) => id = next,
            }
        }
    }

    /// Returns how an execution ended; `None` until it has ended.
    pub async fn execution_ending(
        &self,
        id: ExecutionId,
    ) -> Result<Option<ExecutionOutcome>, ClientError> {
        let row = self
            .find_execution(id)
            .await?
            .ok_or(ClientError::ExecutionNotFound(id))?;
        if !is_execution_over(&row) {
            return Ok(None);
        }
        let journal = Journal::recover(id, self.read_journal(id).await?).map_err(Error::corrupt)?;
        Ok(InMemory::recover(journal, self.limits).execution_outcome())
    }
}

/// Whether two JSON texts are equal apart from white space between tokens.
fn is_same_json(one: &str, other: &str) -> bool {
    strip_json_whitespace(one).eq(strip_json_whitespace(other))
}

/// The bytes of a JSON text without the white space between tokens.
fn strip_json_whitespace(text: &str) -> impl Iterator<Item = u8> {
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

/// Whether the state in the row is terminal.
pub fn is_execution_over(row: &ExecutionRow) -> bool {
    matches!(&*row.state, "Completed" | "Failed" | "Cancelled")
}

/// Reads a whole journal, page by page.
pub(crate) async fn read_journal(
    store: &dyn Store,
    id: ExecutionId,
) -> Result<Vec<JournalEvent>, Error> {
    read_journal_from(store, id, 0).await
}

/// Reads a journal from sequence `from` on, page by page.
async fn read_journal_from(
    store: &dyn Store,
    id: ExecutionId,
    from: u64,
) -> Result<Vec<JournalEvent>, Error> {
    let mut events: Vec<JournalEvent> = Vec::new();
    loop {
        let known = events.len();
        let chunks = store.read_journal(id, from + known as u64, 1_000).await?;
        if chunks.is_empty() {
            return Ok(events);
        }
        for chunk in chunks {
            let decoded = codec::decode_record(id, &chunk.records).map_err(Error::corrupt)?;
            // The first page may begin with earlier events that were stored in the same record as
            // event `from`.
            events.extend(decoded.into_iter().filter(|event| event.sequence >= from));
        }
        if events.len() == known {
            return Err(Error::corrupt(format!(
                "the journal of {id} has no event {}",
                from + known as u64
            )));
        }
    }
}

/// Returns a unique random key.
pub(crate) fn random_key() -> String {
    key_from_entropy(&mut fill_os_entropy)
}

/// Encodes 16 bytes of the given entropy source as a hexadecimal key.
pub(crate) fn key_from_entropy(entropy: &mut dyn FnMut(&mut [u8])) -> String {
    let mut bytes = [0; 16];
    entropy(&mut bytes);
    onward_base::hex::encode_hex(&bytes)
}

/// Fills `bytes` with entropy from the operating system; aborts the process if there is none.
pub(crate) fn fill_os_entropy(bytes: &mut [u8]) {
    if let Err(error) = getrandom::fill(bytes) {
        tracing::error!(%error, "the operating system has no entropy");
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::is_same_json;

    #[test]
    fn white_space_counts_inside_of_strings_only() {
        assert!(is_same_json(
            r#"{"a": [1, "x y"]}"#,
            "{ \"a\":[1,\"x y\"] }\n"
        ));
        assert!(is_same_json(r#""\\" "#, r#""\\""#));
        for (one, other) in [
            (r#""x y""#, r#""xy""#),
            (r#""\" ""#, r#""\"""#),
            ("[1,2]", "[2,1]"),
            ("1", "1.0"),
            ("[1]", "[1"),
        ] {
            assert!(!is_same_json(one, other), "{one} {other}");
        }
    }
}
