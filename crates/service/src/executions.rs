//! The execution operations of the API: start, find, list, show, signal and follow the journal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::pin;

use onward_api::execution::{
    AcceptedMessage, ChildExecution, ExecutionOrder, ExecutionPage, ExecutionResult,
    ExecutionStateName, ExecutionSummary, ExecutionView, FailureDetail, ListExecutionsQuery,
    SignalExecutionRequest, StartExecutionRequest, StartExecutionResponse,
};
use onward_api::problem::{Code, Problem};
use onward_api::{RawJson, parse_json};
use onward_base::{BoundedName, Payload, Timestamp};
use onward_engine::client::{ExecutionFilter, ExecutionListOrder, is_execution_over};
use onward_journal::jsonl::JournalLine;
use onward_journal::{
    Event, ExecutionId, ExecutionState, InvokePerformer, InvokeResult, JournalEvent, PromiseId,
};
use onward_store::tables::ExecutionRow as Row;

use super::ApiService;
use super::problems::{INVALID_CURSOR, check_length, engine_problem, invalid_field};

/// Default number of executions per page.
const DEFAULT_PAGE_SIZE: u32 = 100;

/// Maximum length of an idempotency key in characters.
pub(super) const KEY_MAX: usize = 500;

/// Maximum number of entries per page.
const PAGE_MAX: u32 = 1_000;

/// Maximum number of children in the view of an execution.
const CHILDREN_MAX: usize = 1_000;

/// Number of executions read from the store at a time, to resolve a prefix.
const READ_BATCH_SIZE: usize = 1_000;

impl ApiService {
    pub(super) async fn start_from_request(
        &self,
        start: StartExecutionRequest,
    ) -> Result<StartExecutionResponse, Problem> {
        check_length("key", start.key.as_deref().unwrap_or_default(), KEY_MAX)?;
        let input = parse_payload("input", &start.input)?;
        let (function, key) = (&*start.function, start.key.as_deref());
        let (started, ended) = match start.wait_ms {
            Some(ms) => {
                self.client
                    .start_and_wait(function, input, key, self.wait_or_stop(ms))
                    .await
            }
            None => self
                .client
                .start_execution(function, input, key)
                .await
                .map(|started| (started, None)),
        }
        .map_err(engine_problem)?;
        let ExecutionResult { result, error } = ended
            .as_ref()
            .map(api_execution_result)
            .transpose()?
            .unwrap_or_default();
        Ok(StartExecutionResponse {
            execution: started.execution.to_string(),
            existed: started.already_existed,
            result,
            error,
        })
    }

    pub(super) async fn wait_for_result(
        &self,
        id: ExecutionId,
        wait_ms: u64,
    ) -> Result<ExecutionResult, Problem> {
        if wait_ms == 0 {
            let ended = self
                .client
                .execution_result(id)
                .await
                .map_err(engine_problem)?;
            return ended
                .as_ref()
                .map(api_execution_result)
                .transpose()
                .map(Option::unwrap_or_default);
        }
        tokio::select! {
            result = self.client.wait_for_result(id) => api_execution_result(&result.map_err(engine_problem)?),
            () = self.wait_or_stop(wait_ms) => Ok(ExecutionResult::default()),
        }
    }

    pub(super) async fn send_signal(
        &self,
        execution: &str,
        signal: SignalExecutionRequest,
    ) -> Result<AcceptedMessage, Problem> {
        let row = self.find_execution(execution).await?;
        check_length("key", signal.key.as_deref().unwrap_or_default(), KEY_MAX)?;
        let name: BoundedName = signal
            .name
            .parse()
            .map_err(|error| invalid_field("name", error))?;
        let payload = parse_payload("payload", &signal.payload)?;
        self.client
            .send_signal(row.execution_id, name, payload, signal.key.as_deref())
            .await
            .map_err(engine_problem)?;
        Ok(AcceptedMessage {
            execution: row.execution_id.to_string(),
            kind: "signal".to_owned(),
        })
    }

    /// Finds an execution by its id or by a unique prefix of at least four hexadecimal digits.
    pub(super) async fn find_execution(&self, id: &str) -> Result<Row, Problem> {
        let absent =
            |id: &str| Problem::new(Code::NoExecution, format!("execution {id} not found"));
        if let Ok(id) = id.parse::<ExecutionId>() {
            let row = self
                .client
                .find_execution(id)
                .await
                .map_err(engine_problem)?;
            return row.ok_or_else(|| absent(&id.to_string()));
        }
        let prefix = id.to_ascii_lowercase();
        if prefix.len() < 4 || !prefix.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let detail = format!(
                "{id} is not an execution id, nor a prefix of at least four hexadecimal digits"
            );
            return Err(Problem::new(Code::InvalidRequest, detail));
        }
        let mut found = self
            .client
            .find_by_id_prefix(&prefix, READ_BATCH_SIZE)
            .await
            .map_err(engine_problem)?;
        if found.len() > 1 {
            let detail = format!("several executions start with {prefix}: specify more digits");
            return Err(Problem::new(Code::AmbiguousId, detail));
        }
        found.pop().ok_or_else(|| absent(&format!("{prefix}…")))
    }

    /// Reads a page of executions. Every filter is an order of the table, so nothing else is read.
    pub(super) async fn read_execution_page(
        &self,
        listing: &ListExecutionsQuery,
    ) -> Result<ExecutionPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let after = listing.after.as_deref().map(parse_cursor).transpose()?;
        let filter = ExecutionFilter {
            function: listing.function.as_deref().map(Into::into),
            state: listing.state.map(execution_state),
        };
        let rows = self
            .client
            .list_executions(&filter, list_order(listing.order), after, limit)
            .await
            .map_err(engine_problem)?;
        let last = rows.last().map(|last| (last.created_at, last.execution_id));
        Ok(ExecutionPage {
            executions: rows.iter().map(api_execution_summary).collect(),
            next: last.filter(|_| rows.len() == limit).map(format_cursor),
        })
    }

    pub(super) async fn load_execution_view(&self, row: &Row) -> Result<ExecutionView, Problem> {
        let last = self
            .client
            .last_event(row.execution_id)
            .await
            .map_err(engine_problem)?;
        let children = self.load_child_executions(row).await?;
        let ended = self
            .client
            .execution_result(row.execution_id)
            .await
            .map_err(engine_problem)?;
        let ExecutionResult { result, error } = ended
            .as_ref()
            .map(api_execution_result)
            .transpose()?
            .unwrap_or_default();
        Ok(ExecutionView {
            execution: row.execution_id.to_string(),
            function: row.function.to_string(),
            component: row.component_digest.to_string(),
            state: row.state.to_string(),
            key: row.start_key.as_ref().map(ToString::to_string),
            created_at: row.created_at.to_string(),
            events: last.as_ref().map_or(0, |last| last.sequence + 1),
            children,
            continued_as: last
                .and_then(|last| last.event.continued_as())
                .map(|next| next.to_string()),
            result,
            error,
        })
    }

    /// The first children of an execution, in the order in which they were started. Reads the
    /// journal page by page.
    async fn load_child_executions(&self, row: &Row) -> Result<Vec<ChildExecution>, Problem> {
        let mut children = ChildCollector::default();
        let mut next = 0;
        while children.found.len() < CHILDREN_MAX {
            let events = self
                .client
                .read_journal_page(row.execution_id, next)
                .await
                .map_err(engine_problem)?;
            let Some(last) = events.last() else { break };
            next = last.sequence + 1;
            events
                .into_iter()
                .for_each(|recorded| children.add_event(recorded.event));
        }
        children.found.truncate(CHILDREN_MAX);
        let mut views = Vec::with_capacity(children.found.len());
        for (promise, execution, function) in children.found {
            let state = self
                .client
                .find_execution(execution)
                .await
                .map_err(engine_problem)?;
            views.push(ChildExecution {
                promise: promise.relative_to(row.execution_id).to_string(),
                execution: execution.to_string(),
                function,
                state: state.map(|child| child.state.to_string()),
            });
        }
        Ok(views)
    }

    pub(super) async fn poll_journal_lines(
        &self,
        row: &Row,
        from: u64,
        wait_ms: u64,
    ) -> Result<JournalLinesPage, Problem> {
        let id = row.execution_id;
        let mut timeout = pin!(self.wait_or_stop(wait_ms));
        let mut is_last = is_execution_over(row) || wait_ms == 0;
        let mut changes = self.client.watch_journal(row);
        loop {
            let events = self
                .client
                .read_journal_page(id, from)
                .await
                .map_err(engine_problem)?;
            if !events.is_empty() || is_last {
                return Ok(JournalLinesPage {
                    lines: format_journal_lines(id, &events),
                    next: events.last().map_or(from, |last| last.sequence + 1),
                    is_complete: events.is_empty() && is_execution_over(row),
                });
            }
            tokio::select! {
                () = changes.wait_for_change() => {}
                () = &mut timeout => return Ok(JournalLinesPage::empty(from)),
            }
            // No event follows the end of an execution, but the end itself may not have been read
            // yet: read once more.
            is_last = self
                .client
                .find_execution(id)
                .await
                .map_err(engine_problem)?
                .is_none_or(|row| is_execution_over(&row));
        }
    }
}

/// A page of a journal's events.
pub struct JournalLinesPage {
    /// The events as JSON Lines.
    pub lines: String,
    /// Sequence of the first event after the page.
    pub next: u64,
    /// Whether the page is the end of the journal of an execution that has ended: it is empty, and
    /// no more events follow.
    pub is_complete: bool,
}

impl JournalLinesPage {
    const fn empty(from: u64) -> Self {
        Self {
            lines: String::new(),
            next: from,
            is_complete: false,
        }
    }
}

/// Collects the children that a journal starts, event by event.
#[derive(Default)]
struct ChildCollector {
    /// The functions of the operations that have no outcome yet.
    functions: BTreeMap<PromiseId, String>,
    /// The children, with their operations and functions.
    found: Vec<(PromiseId, ExecutionId, String)>,
}

impl ChildCollector {
    fn add_event(&mut self, event: Event) {
        match event {
            Event::InvokeScheduled {
                promise_id,
                function_name,
                ..
            } => {
                self.functions.insert(promise_id, function_name.to_string());
            }
            Event::InvokeStarted {
                promise_id,
                performer: InvokePerformer::Child(child),
                ..
            } => {
                let function = self.functions.get(&promise_id).cloned();
                self.found
                    .push((promise_id, child, function.unwrap_or_default()));
            }
            Event::InvokeCompleted { promise_id, .. } => {
                self.functions.remove(&promise_id);
            }
            _ => {}
        }
    }
}

impl ApiService {
    /// Reads a page of the events of a journal from sequence `from` on. If there are none, waits
    /// for up to `wait_ms` milliseconds.
    pub async fn follow_journal(
        &self,
        execution: &str,
        from: u64,
        wait_ms: u64,
    ) -> Result<JournalLinesPage, Problem> {
        let row = self.find_execution(execution).await?;
        self.poll_journal_lines(&row, from, wait_ms).await
    }
}

/// Formats journal events as JSON Lines.
pub(crate) fn format_journal_lines(id: ExecutionId, events: &[JournalEvent]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        // Writing to a `String` cannot fail.
        let _ = writeln!(text, "{}", JournalLine::new(event, id));
        text
    })
}

fn parse_payload(field: &str, json: &RawJson) -> Result<Payload, Problem> {
    Payload::parse(json.as_str()).map_err(|error| invalid_field(field, error))
}

fn api_execution_result(result: &InvokeResult) -> Result<ExecutionResult, Problem> {
    Ok(match result {
        Ok(payload) => ExecutionResult {
            result: Some(parse_json(payload.as_str())?),
            error: None,
        },
        Err(error) => {
            let failure = FailureDetail {
                kind: error.kind.to_string(),
                message: error.message.to_string(),
            };
            ExecutionResult {
                result: None,
                error: Some(failure),
            }
        }
    })
}

fn api_execution_summary(row: &Row) -> ExecutionSummary {
    ExecutionSummary {
        execution: row.execution_id.to_string(),
        function: row.function.to_string(),
        state: row.state.to_string(),
        key: row.start_key.as_ref().map(ToString::to_string),
        created_at: row.created_at.to_string(),
    }
}

/// Validates a requested page size. Fails if it is not from 1 to 1000.
pub(super) fn parse_page_size(requested: Option<u32>, default: u32) -> Result<usize, Problem> {
    match requested.unwrap_or(default) {
        size @ 1..=PAGE_MAX => Ok(size as usize),
        size => Err(invalid_field(
            "limit",
            format!("{size} is out of range: must be 1 to {PAGE_MAX}"),
        )),
    }
}

const fn list_order(order: ExecutionOrder) -> ExecutionListOrder {
    match order {
        ExecutionOrder::Newest => ExecutionListOrder::NewestFirst,
        ExecutionOrder::Oldest => ExecutionListOrder::OldestFirst,
    }
}

const fn execution_state(name: ExecutionStateName) -> ExecutionState {
    match name {
        ExecutionStateName::Running => ExecutionState::Running,
        ExecutionStateName::Blocked => ExecutionState::Blocked,
        ExecutionStateName::Cancelling => ExecutionState::Cancelling,
        ExecutionStateName::Completed => ExecutionState::Completed,
        ExecutionStateName::Failed => ExecutionState::Failed,
        ExecutionStateName::Cancelled => ExecutionState::Cancelled,
    }
}

/// Formats a position in the order of creation as an opaque cursor.
fn format_cursor((created_at, id): (Timestamp, ExecutionId)) -> String {
    format!("{}.{id}", created_at.as_micros())
}

fn parse_cursor(cursor: &str) -> Result<(Timestamp, ExecutionId), Problem> {
    let parse = || {
        let (micros, id) = cursor.split_once('.')?;
        Some((
            Timestamp::from_micros(micros.parse().ok()?)?,
            id.parse().ok()?,
        ))
    };
    parse().ok_or_else(|| invalid_field("after", INVALID_CURSOR))
}
