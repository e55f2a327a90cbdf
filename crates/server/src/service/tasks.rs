//! Tasks for workers: claim, go on, complete, fail, list.

use std::time::Duration;

use futures_util::FutureExt as _;
use onward_api::Json;
use onward_api::problem::{Code, Problem};
use onward_api::task::{
    Claim, Claimed, ClaimedTask, Complete, Delivery, Ended, Extended, Fail, Next, TaskError, TaskInfo, TaskListing,
    TaskPage,
};
use onward_engine::client::{Client, Refused};
use onward_engine::shard::AttemptId;
use onward_engine::work::{self, Held, Place, task_name, task_named};
use onward_journal::{ExecutionError, InvokeResult, Name, Payload, Text};
use onward_store::tables::Task;
use tokio::sync::oneshot;

use super::Service;
use super::executions::page_size;
use super::refused::{fitting, problem};

/// Leases are at least this long, in milliseconds: the store has to be asked in between.
const LEASE_MS_MIN: u32 = 100;

/// And at most so long.
const LEASE_MS_MAX: u32 = 3_600_000;

/// Functions that a worker may ask for at a time.
const FUNCTIONS_MAX: usize = 100;

/// Characters of what a worker says went wrong, and of the name for that.
const MESSAGE_MAX: usize = 65_536;
const CODE_MAX: usize = 200;

/// Tasks of a page, unless told.
const PAGE: u32 = 100;

impl Service {
    /// Claims tasks for a worker; waits for one where there is none.
    pub async fn claim(&self, claim: Claim) -> Result<Claimed, Problem> {
        let Claim { worker, functions, max, lease_ms, wait_ms } = claim;
        let wanted = wanted(&worker, &functions, max, lease_ms)?;
        let wait = Duration::from_millis(wait_ms);
        let held = self.given(|client, gone| async move { client.claim(&wanted, wait, gone.map(drop)).await });
        Ok(Claimed { tasks: held.await?.iter().map(|held| claimed(held, lease_ms)).collect() })
    }

    /// Gives a task back that its worker has not begun.
    pub async fn release(&self, task: &str, token: &str) -> Result<Ended, Problem> {
        self.client.give_back(named(task)?, token).await.map_err(problem)?;
        Ok(Ended { task: task.to_owned(), next: None })
    }

    /// Shows that the worker of a task is alive.
    pub async fn heartbeat(&self, task: &str, token: &str) -> Result<Extended, Problem> {
        let until = self.client.go_on(named(task)?, token).await.map_err(problem)?;
        Ok(Extended { leased_until: until.to_string() })
    }

    /// A task was performed.
    pub async fn complete(&self, task: &str, complete: Complete) -> Result<Ended, Problem> {
        let result = Payload::parse(complete.result.as_str());
        let result = result.map_err(|error| Problem::new(Code::Unprocessable, error.to_string()))?;
        self.end(task, complete.token, Ok(result), complete.next).await
    }

    /// A task could not be performed.
    pub async fn fail(&self, task: &str, fail: Fail) -> Result<Ended, Problem> {
        let TaskError { message, code, retryable } = fail.error;
        fitting("the message", &message, MESSAGE_MAX)?;
        fitting("the code", code.as_deref().unwrap_or_default(), CODE_MAX)?;
        let error = ExecutionError::named(code.as_deref().unwrap_or_default(), message);
        self.end(task, fail.token, Err(if retryable { error } else { error.permanent() }), fail.next).await
    }

    async fn end(&self, task: &str, token: String, result: InvokeResult, next: Option<Next>) -> Result<Ended, Problem> {
        let (id, task) = (named(task)?, task.to_owned());
        let Some(next) = next else {
            self.client.end_task(id, &token, result).await.map_err(problem)?;
            return Ok(Ended { task, next: None });
        };
        let lease_ms = next.lease_ms;
        let wanted = wanted(&next.worker, &next.functions, 1, lease_ms)?;
        let held = self.given(|client, _| async move {
            client.end_and_claim(id, &token, result, &wanted).await.map(|held| held.into_iter().collect())
        });
        Ok(Ended { task, next: held.await?.first().map(|held| claimed(held, lease_ms)) })
    }

    /// The tasks that work comes to. It is driven to its end, and told when nobody waits for it any more: what is claimed by
    /// then is given back.
    async fn given<W>(&self, work: impl FnOnce(Client, oneshot::Receiver<()>) -> W) -> Result<Vec<Held>, Problem>
    where
        W: Future<Output = Result<Vec<Held>, Refused>> + Send + 'static,
    {
        let (_here, gone) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let client = self.client.clone();
        let working = work(client.clone(), gone);
        tokio::spawn(async move {
            for unwanted in answer.send(working.await).err().and_then(Result::ok).into_iter().flatten() {
                if let Err(error) = client.give_back(unwanted.id, &unwanted.claim).await {
                    tracing::warn!(%error, "a task that nobody took could not be given back; its lease runs out");
                }
            }
        });
        let stopped = |_| Problem::new(Code::Unavailable, "the server is stopping");
        answered.await.map_err(stopped)?.map_err(problem)
    }

    pub(super) async fn list_tasks(&self, listing: &TaskListing) -> Result<TaskPage, Problem> {
        // Their inputs are read along.
        let limit = page_size(listing.limit, PAGE)?.min(PAGE as usize);
        let wrong = || Problem::new(Code::InvalidRequest, "after: that is not where a page ended");
        let after = listing.after.as_deref().map(|text| Place::parse(text).ok_or_else(wrong)).transpose()?;
        let rows = self.client.tasks(after.as_ref(), limit).await.map_err(problem)?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|last| Place::of(last).to_string());
        Ok(TaskPage { tasks: rows.into_iter().map(info).collect(), next })
    }
}

fn named(task: &str) -> Result<AttemptId, Problem> {
    task_named(task).ok_or_else(|| Problem::new(Code::NotFound, "that is not the name of a task"))
}

/// What a worker asks for, if it makes sense.
fn wanted(worker: &str, functions: &[String], max: u32, lease_ms: u32) -> Result<work::Claim, Problem> {
    let wrong = |words: &str| Problem::new(Code::Unprocessable, words);
    if worker.trim().is_empty() || worker.len() > 200 {
        return Err(wrong("a worker has a name of at most 200 bytes"));
    }
    if functions.is_empty() || functions.len() > FUNCTIONS_MAX {
        return Err(wrong("a worker asks for 1 to 100 functions"));
    }
    if !(1..=100).contains(&max) {
        return Err(wrong("a worker asks for 1 to 100 tasks"));
    }
    if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms) {
        return Err(wrong("a lease is of 100 ms to an hour"));
    }
    let name = |name: &String| name.parse::<Name>().map(|name| Text::from(&*name));
    let functions: Result<Vec<Text>, _> = functions.iter().map(name).collect();
    Ok(work::Claim {
        worker: worker.into(),
        functions: functions.map_err(|error| wrong(&error.to_string()))?,
        most: max as usize,
        lease_ms,
    })
}

fn claimed(held: &Held, lease_ms: u32) -> ClaimedTask {
    ClaimedTask {
        task: task_name(held.id),
        promise: held.promise().to_string(),
        execution: held.id.execution.to_string(),
        attempt: held.id.attempt,
        token: held.claim.to_string(),
        function: held.function.to_string(),
        input: Json::parse(held.input.as_str()).unwrap_or_default(),
        delivery: match held.delivery {
            onward_journal::Delivery::AtLeastOnce => Delivery::AtLeastOnce,
            onward_journal::Delivery::AtMostOnce => Delivery::AtMostOnce,
        },
        leased_until: held.leased_until.to_string(),
        lease_ms,
        timeout_ms: held.timeout_ms,
    }
}

fn info(row: Task) -> TaskInfo {
    let is_claimed = row.claim.is_some();
    TaskInfo {
        task: task_name(work::id_of(&row)),
        function: row.function.to_string(),
        execution: row.execution_id.to_string(),
        attempt: row.attempt,
        state: row.state.to_string(),
        queued_at: row.queued_at.to_string(),
        worker: row.worker.map(|worker| worker.to_string()),
        leased_until: is_claimed.then(|| row.leased_until.to_string()),
    }
}
