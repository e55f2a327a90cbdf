//! Executions: starting, finding, listing, showing, following.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::pin::pin;
use std::time::Duration;

use onward_api::execution::{
    Child, Execution, ExecutionPage, Failure, Listing, Outcome, Sent, Signal, Start, Started, Summary,
};
use onward_api::problem::{Code, Problem};
use onward_api::{Json, json};
use onward_engine::client::is_over;
use onward_journal::jsonl::Line;
use onward_journal::{Event, ExecutionId, InvokeResult, JournalEvent, Name, Payload, PromiseId, Timestamp};
use onward_store::tables::Execution as Row;

use super::Service;
use super::refused::{fitting, problem, unreadable};

/// Executions of a page, unless told.
const PAGE: u32 = 100;

/// Characters of a key.
pub(super) const KEY_MAX: usize = 500;

/// Executions of a page at most.
const PAGE_MAX: u32 = 1_000;

/// Executions that are looked through at most for a page.
const LOOKED_THROUGH: usize = 100_000;

/// Executions that are read at a time.
const READ: usize = 1_000;

/// How often to look for news of an execution that another process may run.
const LOOK: Duration = Duration::from_millis(100);

impl Service {
    pub(super) async fn start_one(&self, start: Start) -> Result<Started, Problem> {
        fitting("the key", start.key.as_deref().unwrap_or_default(), KEY_MAX)?;
        let input = payload("the input", &start.input)?;
        let (function, key) = (&*start.function, start.key.as_deref());
        let (started, ended) = match start.wait_ms {
            Some(ms) => self.client.start_and_wait(function, input, key, self.patience(ms)).await,
            None => self.client.start(function, input, key).await.map(|started| (started, None)),
        }
        .map_err(problem)?;
        let Outcome { result, error } = ended.as_ref().map(outcome).transpose()?.unwrap_or_default();
        Ok(Started { execution: started.execution.to_string(), existed: started.existed, result, error })
    }

    pub(super) async fn outcome_of(&self, id: ExecutionId, wait_ms: u64) -> Result<Outcome, Problem> {
        if wait_ms == 0 {
            let ended = self.client.result(id).await.map_err(problem)?;
            return ended.as_ref().map(outcome).transpose().map(Option::unwrap_or_default);
        }
        tokio::select! {
            result = self.client.outcome(id) => outcome(&result.map_err(problem)?),
            () = self.patience(wait_ms) => Ok(Outcome::default()),
        }
    }

    pub(super) async fn send_signal(&self, execution: &str, signal: Signal) -> Result<Sent, Problem> {
        let row = self.find(execution).await?;
        fitting("the key", signal.key.as_deref().unwrap_or_default(), KEY_MAX)?;
        let name: Name = signal.name.parse().map_err(|error| unreadable("the name", error))?;
        let said = payload("the signal", &signal.payload)?;
        self.client.signal(row.execution_id, name, said, signal.key.as_deref()).await.map_err(problem)?;
        Ok(Sent { execution: row.execution_id.to_string(), sent: "signal".to_owned() })
    }

    /// The execution with this id, or whose id begins so.
    pub(super) async fn find(&self, id: &str) -> Result<Row, Problem> {
        let absent = |id: &str| Problem::new(Code::NoExecution, format!("there is no execution {id}"));
        if let Ok(id) = id.parse::<ExecutionId>() {
            let row = self.client.execution(id).await.map_err(problem)?;
            return row.ok_or_else(|| absent(&id.to_string()));
        }
        let beginning = id.to_ascii_lowercase();
        if beginning.len() < 4 || !beginning.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let words = format!("{id} is not the id of an execution, nor four or more digits of one");
            return Err(Problem::new(Code::InvalidRequest, words));
        }
        let mut found = self.client.executions_beginning(&beginning, READ).await.map_err(problem)?;
        if found.len() > 1 {
            let words = format!("several executions begin with {beginning}: give more digits");
            return Err(Problem::new(Code::AmbiguousId, words));
        }
        found.pop().ok_or_else(|| absent(&format!("{beginning}…")))
    }

    /// A page, looked for in a bounded part of all: it may be short, or empty, and still not be the last.
    pub(super) async fn list(&self, listing: &Listing) -> Result<ExecutionPage, Problem> {
        let limit = page_size(listing.limit, PAGE)?;
        let mut after = listing.after.as_deref().map(place).transpose()?;
        let is_wanted = |row: &Row| {
            listing.state.is_none_or(|state| state.as_str() == &*row.state)
                && listing.function.as_ref().is_none_or(|function| **function == *row.function)
        };
        let mut executions = Vec::new();
        let mut seen = 0;
        loop {
            let rows = self.client.executions(listing.order, after, READ).await.map_err(problem)?;
            let is_last = rows.len() < READ;
            for row in rows {
                seen += 1;
                after = Some((row.created_at, row.execution_id));
                if is_wanted(&row) {
                    executions.push(summary(&row));
                }
                if executions.len() == limit || seen == LOOKED_THROUGH {
                    return Ok(ExecutionPage { executions, next: after.map(cursor) });
                }
            }
            if is_last {
                return Ok(ExecutionPage { executions, next: None });
            }
        }
    }

    pub(super) async fn show(&self, row: &Row) -> Result<Execution, Problem> {
        let events = self.client.journal(row.execution_id).await.map_err(problem)?;
        let children = self.children(row, &events).await?;
        let ended = self.client.result(row.execution_id).await.map_err(problem)?;
        let Outcome { result, error } = ended.as_ref().map(outcome).transpose()?.unwrap_or_default();
        Ok(Execution {
            execution: row.execution_id.to_string(),
            function: row.function.to_string(),
            component: row.component_digest.to_string(),
            state: row.state.to_string(),
            key: row.start_key.as_ref().map(ToString::to_string),
            created_at: row.created_at.to_string(),
            events: events.len() as u64,
            children,
            continued_as: events.last().and_then(|last| last.event.successor()).map(|next| next.to_string()),
            result,
            error,
        })
    }

    /// The children of an execution, in the order in which they were started.
    async fn children(&self, row: &Row, events: &[JournalEvent]) -> Result<Vec<Child>, Problem> {
        let mut functions: BTreeMap<&PromiseId, String> = BTreeMap::new();
        let mut children = Vec::new();
        for recorded in events {
            match &recorded.event {
                Event::InvokeScheduled { promise_id, function_name, .. } => {
                    functions.insert(promise_id, function_name.to_string());
                }
                Event::InvokeStarted { promise_id, performer: onward_journal::Performer::Child(child), .. } => {
                    let state = self.client.execution(*child).await.map_err(problem)?;
                    children.push(Child {
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

    pub(super) async fn journal_of(&self, row: &Row, from: u64, wait_ms: u64) -> Result<String, Problem> {
        let id = row.execution_id;
        let mut patience = pin!(self.patience(wait_ms));
        let mut is_last = is_over(row) || wait_ms == 0;
        loop {
            let events = self.client.journal_from(id, from).await.map_err(problem)?;
            if !events.is_empty() || is_last {
                return Ok(lines(id, &events));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = &mut patience => return Ok(String::new()),
            }
            // Nothing is recorded after its end, but its end may be what was not seen.
            is_last = self.client.execution(id).await.map_err(problem)?.is_none_or(|row| is_over(&row));
        }
    }
}

/// A part of a journal. One that was read after its execution was over has no more to come.
pub(crate) struct Followed {
    /// Events as JSON Lines.
    pub(crate) lines: String,
    /// Whether there will be no more.
    pub(crate) is_whole: bool,
}

impl Service {
    /// What a journal holds from `from` on, waited for if there is nothing.
    pub(crate) async fn follow(&self, execution: &str, from: u64, wait_ms: u64) -> Result<Followed, Problem> {
        let row = self.find(execution).await?;
        let lines = self.journal_of(&row, from, wait_ms).await?;
        Ok(Followed { lines, is_whole: is_over(&row) })
    }
}

/// Events as JSON Lines.
pub(crate) fn lines(id: ExecutionId, events: &[JournalEvent]) -> String {
    events.iter().fold(String::new(), |mut text, event| {
        // A string takes whatever is written to it.
        let _ = writeln!(text, "{}", Line::new(event, id));
        text
    })
}

fn payload(what: &str, json: &Json) -> Result<Payload, Problem> {
    Payload::parse(json.as_str()).map_err(|error| unreadable(what, error))
}

fn outcome(result: &InvokeResult) -> Result<Outcome, Problem> {
    Ok(match result {
        Ok(payload) => Outcome { result: Some(json(payload.as_str())?), error: None },
        Err(error) => {
            let failure = Failure { kind: error.kind.to_string(), message: error.message.to_string() };
            Outcome { result: None, error: Some(failure) }
        }
    })
}

fn summary(row: &Row) -> Summary {
    Summary {
        execution: row.execution_id.to_string(),
        function: row.function.to_string(),
        state: row.state.to_string(),
        key: row.start_key.as_ref().map(ToString::to_string),
        created_at: row.created_at.to_string(),
    }
}

/// How many there may be on a page.
pub(super) fn page_size(asked: Option<u32>, usual: u32) -> Result<usize, Problem> {
    match asked.unwrap_or(usual) {
        size @ 1..=PAGE_MAX => Ok(size as usize),
        size => Err(unreadable("limit", format!("{size} is not from 1 to {PAGE_MAX}"))),
    }
}

/// A place in the order of ages, as a text that nobody has to understand.
fn cursor((created_at, id): (Timestamp, ExecutionId)) -> String {
    format!("{}.{id}", created_at.as_micros())
}

fn place(cursor: &str) -> Result<(Timestamp, ExecutionId), Problem> {
    let parse = || {
        let (micros, id) = cursor.split_once('.')?;
        Some((Timestamp::from_micros(micros.parse().ok()?)?, id.parse().ok()?))
    };
    parse().ok_or_else(|| unreadable("after", "it is not the `next` of a page"))
}
