//! The execution operations of the API: start, find, list, show, signal and follow the journal.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::pin;

use onward_api::execution::{
    AcceptedMessage, ChildExecution, ExecutionOrder, ExecutionPage, ExecutionResult,
    ExecutionSummary, ExecutionView, FailureDetail, ListExecutionsQuery, SignalExecutionRequest,
    StartExecutionRequest, StartExecutionResponse,
};
use onward_api::problem::{Code, Problem};
use onward_api::{RawJson, parse_json};
use onward_base::{BoundedName, Payload, Timestamp};
use onward_engine::client::{ExecutionListOrder, is_execution_over};
use onward_journal::jsonl::JournalLine;
use onward_journal::{Event, ExecutionId, InvokeResult, JournalEvent, PromiseId};
use onward_store::tables::ExecutionRow as Row;

use super::ApiService;
use super::problems::{INVALID_CURSOR, check_length, engine_problem, invalid_field};

/// Default number of executions per page.
const DEFAULT_PAGE_SIZE: u32 = 100;

/// Maximum length of an idempotency key in characters.
pub(super) const KEY_MAX: usize = 500;

/// Maximum number of entries per page.
const PAGE_MAX: u32 = 1_000;

/// Maximum number of executions scanned for one page.
const SCAN_MAX: usize = 100_000;

/// Number of executions read from the store at a time.
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

    /// Reads a page of executions. The scan is bounded, so a page may be short or empty although
    /// more pages follow.
    pub(super) async fn read_execution_page(
        &self,
        listing: &ListExecutionsQuery,
    ) -> Result<ExecutionPage, Problem> {
        let limit = parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?;
        let mut after = listing.after.as_deref().map(parse_cursor).transpose()?;
        let matches_filter = |row: &Row| {
            listing
                .state
                .is_none_or(|state| state.as_str() == row.state.as_str())
                && listing
                    .function
                    .as_ref()
                    .is_none_or(|function| **function == *row.function)
        };
        let mut executions = Vec::new();
        let mut scanned = 0;
        loop {
            let rows = self
                .client
                .list_executions(list_order(listing.order), after, READ_BATCH_SIZE)
                .await
                .map_err(engine_problem)?;
            let is_last = rows.len() < READ_BATCH_SIZE;
            for row in rows {
                scanned += 1;
                after = Some((row.created_at, row.execution_id));
                if matches_filter(&row) {
                    executions.push(api_execution_summary(&row));
                }
                if executions.len() == limit || scanned == SCAN_MAX {
                    return Ok(ExecutionPage {
                        executions,
                        next: after.map(format_cursor),
                    });
                }
            }
            if is_last {
                return Ok(ExecutionPage {
                    executions,
                    next: None,
                });
            }
        }
    }

    pub(super) async fn load_execution_view(&self, row: &Row) -> Result<ExecutionView, Problem> {
        let events = self
            .client
            .read_journal(row.execution_id)
            .await
            .map_err(engine_problem)?;
        let children = self.load_child_executions(row, &events).await?;
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
            events: events.len() as u64,
            children,
            continued_as: events
                .last()
                .and_then(|last| last.event.continued_as())
                .map(|next| next.to_string()),
            result,
            error,
        })
    }

    /// The children of an execution, in the order in which they were started.
    async fn load_child_executions(
        &self,
        row: &Row,
        events: &[JournalEvent],
    ) -> Result<Vec<ChildExecution>, Problem> {
        let mut functions: BTreeMap<&PromiseId, String> = BTreeMap::new();
        let mut children = Vec::new();
        for recorded in events {
            match &recorded.event {
                Event::InvokeScheduled {
                    promise_id,
                    function_name,
                    ..
                } => {
                    functions.insert(promise_id, function_name.to_string());
                }
                Event::InvokeStarted {
                    promise_id,
                    performer: onward_journal::InvokePerformer::Child(child),
                    ..
                } => {
                    let state = self
                        .client
                        .find_execution(*child)
                        .await
                        .map_err(engine_problem)?;
                    children.push(ChildExecution {
                        promise: promise_id.relative_to(row.execution_id).to_string(),
                        execution: child.to_string(),
                        function: functions.get(promise_id).cloned().unwrap_or_default(),
                        state: state.map(|child| child.state.to_string()),
                    });
                }
                _ => {}
            }
        }
        Ok(children)
    }

    pub(super) async fn poll_journal_lines(
        &self,
        row: &Row,
        from: u64,
        wait_ms: u64,
    ) -> Result<String, Problem> {
        let id = row.execution_id;
        let mut timeout = pin!(self.wait_or_stop(wait_ms));
        let mut is_last = is_execution_over(row) || wait_ms == 0;
        let mut changes = self.client.watch_journal(row);
        loop {
            let events = self
                .client
                .read_journal_from(id, from)
                .await
                .map_err(engine_problem)?;
            if !events.is_empty() || is_last {
                return Ok(format_journal_lines(id, &events));
            }
            tokio::select! {
                () = changes.wait_for_change() => {}
                () = &mut timeout => return Ok(String::new()),
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
    /// Whether the page was read after the execution had ended, so that no more events follow.
    pub is_complete: bool,
}

impl ApiService {
    /// Reads the events of a journal from sequence `from` on. If there are none, waits for up to
    /// `wait_ms` milliseconds.
    pub async fn follow_journal(
        &self,
        execution: &str,
        from: u64,
        wait_ms: u64,
    ) -> Result<JournalLinesPage, Problem> {
        let row = self.find_execution(execution).await?;
        let lines = self.poll_journal_lines(&row, from, wait_ms).await?;
        Ok(JournalLinesPage {
            lines,
            is_complete: is_execution_over(&row),
        })
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
