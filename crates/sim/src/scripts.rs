//! The workflows and tasks of the simulation. Their results do not depend on the injected faults.

use onward_base::Payload;
use onward_engine::shard::{
    AllowedHosts, FunctionCaller, FunctionResolver, GuestEntry, GuestUnavailable, ResolvedFunction,
};
use onward_execution::{Guest, GuestResponse, GuestTurn, JoinSetNext, ScriptHost, ScriptedGuest};
use onward_journal::{
    ComponentDigest, DeliveryGuarantee, ErrorKind, ExecutionError, InvokeResult, RetryPolicy,
};

/// All workflows and tasks, as one component.
pub(crate) struct SimFunctions;

pub(crate) fn component_digest() -> ComponentDigest {
    ComponentDigest::from_component(b"the scripts of the simulation")
}

pub(crate) fn number_payload(value: u64) -> Payload {
    Payload::from_value(&value).unwrap_or_else(|_| Payload::null())
}

fn payload_number(payload: &Payload) -> u64 {
    payload.as_str().parse().unwrap_or(0)
}

/// Result of a workflow for an input; `None` if it is cancelled or has several valid results.
pub(crate) type ExpectedResult = fn(u64) -> Option<u64>;

/// The workflows by name, with their expected results.
pub(crate) const WORKFLOWS: [(&str, ExpectedResult); 15] = [
    ("chain", |n| Some(n)),
    ("dice", |n| Some(n)),
    ("fan", |n| Some(n * (n + 1) / 2)),
    ("flaky", |_| Some(3)),
    ("sleeper", |n| Some(n)),
    ("waiter", |_| Some(7)),
    ("impatient", |_| Some(1)),
    ("careful", |_| None),
    ("counter", |_| Some(0)),
    ("endless", |_| None),
    ("parent", |n| Some(n + n * (n + 1) / 2)),
    ("remote", |n| Some(n * (n + 1) / 2)),
    ("remote_once", |_| None),
    ("remote_race", |_| Some(1)),
    ("remote_endless", |_| None),
];

/// A guest that occasionally uses up its time slice.
struct SlowGuest {
    script: ScriptedGuest,
    pending_response: Option<GuestResponse>,
    turns: u32,
}

impl Guest for SlowGuest {
    fn resume_guest(&mut self, response: Option<GuestResponse>) -> GuestTurn {
        self.turns += 1;
        if self.turns % 5 == 1 {
            self.pending_response = response;
            return GuestTurn::Paused;
        }
        self.script
            .resume_guest(response.or_else(|| self.pending_response.take()))
    }
}

impl FunctionResolver for SimFunctions {
    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        let (execution, input) = (entry.execution, entry.input);
        let n = payload_number(input);
        let script = match &*execution.function {
            "chain" => ScriptedGuest::new(move |host| invoke_chain(host, n)),
            "dice" => ScriptedGuest::new(move |host| throw_dice(host, n)),
            "fan" => ScriptedGuest::new(move |host| fan_out(host, n)),
            "flaky" => ScriptedGuest::new(move |host| async move {
                host.invoke_function("third_time", number_payload(n)).await
            }),
            "sleeper" => ScriptedGuest::new(move |host| sleep_repeatedly(host, n)),
            "waiter" => ScriptedGuest::new(wait_for_signal),
            "impatient" => ScriptedGuest::new(time_out_waits),
            "careful" => ScriptedGuest::new(move |host| invoke_once(host, n)),
            "counter" => ScriptedGuest::new(move |host| count_down(host, n)),
            "endless" => ScriptedGuest::new(wait_for_cancel),
            "parent" => ScriptedGuest::new(move |host| run_children(host, n)),
            "remote" => ScriptedGuest::new(move |host| invoke_remote(host, n)),
            "remote_once" => ScriptedGuest::new(move |host| remote_once(host, n)),
            "remote_race" => ScriptedGuest::new(remote_race),
            "remote_endless" => ScriptedGuest::new(remote_endless),
            other => {
                return Err(GuestUnavailable::BrokenCode(format!(
                    "unknown workflow {other}"
                )));
            }
        };
        // Some guests pause in their first turn, others do not.
        let turns = u32::from(execution.execution_id.as_bytes()[1]) % 5;
        Ok(Box::new(SlowGuest {
            script,
            pending_response: None,
            turns,
        }))
    }

    fn resolve_function(&self, _: FunctionCaller<'_>, function: &str) -> ResolvedFunction {
        if WORKFLOWS.iter().any(|(name, _)| *name == function) {
            ResolvedFunction::Workflow(component_digest())
        } else if ["echo", "third_time", "once", "undo"].contains(&function) {
            ResolvedFunction::Task(component_digest())
        } else if ["far", "far_once"].contains(&function) {
            ResolvedFunction::Worker
        } else {
            ResolvedFunction::Unknown
        }
    }

    fn allowed_hosts(&self, _: FunctionCaller<'_>, function: &str) -> AllowedHosts {
        if OBSERVABLE_TASKS.contains(&function) {
            AllowedHosts::from(["example.org".into()])
        } else {
            AllowedHosts::from([])
        }
    }
}

/// Tasks whose execution is observable from outside.
const OBSERVABLE_TASKS: [&str; 2] = ["third_time", "undo"];

/// Performs a task and returns its result.
pub(crate) fn perform_task(function: &str, input: &Payload, attempt: u32) -> InvokeResult {
    match (function, attempt) {
        ("third_time", 1 | 2) => Err(ExecutionError::new(ErrorKind::Timeout, "not yet")),
        ("third_time", _) => Ok(number_payload(u64::from(attempt))),
        _ => Ok(input.clone()),
    }
}

async fn invoke_chain(host: ScriptHost, n: u64) -> InvokeResult {
    let mut last = 0;
    for step in 1..=n {
        last = payload_number(&host.invoke_function("echo", number_payload(step)).await?);
    }
    Ok(number_payload(last))
}

/// Fails if replay returns other random bytes than the first run did.
async fn throw_dice(host: ScriptHost, n: u64) -> InvokeResult {
    for _ in 0..n {
        let thrown = host
            .random_bytes(8)
            .await?
            .iter()
            .fold(0, |sum, byte| sum * 251 + u64::from(*byte));
        let echoed = host.invoke_function("echo", number_payload(thrown)).await?;
        if payload_number(&echoed) != thrown {
            return Err(ExecutionError::from_kind_name(
                "wrong",
                format!("sent {thrown} and received {}", echoed.as_str()),
            ));
        }
    }
    Ok(number_payload(n))
}

async fn fan_out(host: ScriptHost, n: u64) -> InvokeResult {
    let set = host.create_join_set().await?;
    for step in 1..=n {
        let promise = host.schedule_function("echo", number_payload(step)).await?;
        host.submit_to_join_set(set, promise).await?;
    }
    let mut sum = 0;
    while let JoinSetNext::Result(_, result) = host.next_result(set, None).await? {
        sum += payload_number(&result?);
    }
    Ok(number_payload(sum))
}

async fn sleep_repeatedly(host: ScriptHost, n: u64) -> InvokeResult {
    for _ in 0..n {
        host.sleep(3_000).await?;
    }
    Ok(number_payload(n))
}

async fn wait_for_signal(host: ScriptHost) -> InvokeResult {
    let signal = host.await_signal("go", None).await?;
    Ok(signal.unwrap_or_else(Payload::null))
}

async fn time_out_waits(host: ScriptHost) -> InvokeResult {
    let none = host.await_signal("never", Some(2_000)).await?;
    let set = host.create_join_set().await?;
    let promise = host
        .schedule_function("third_time", number_payload(0))
        .await?;
    host.submit_to_join_set(set, promise).await?;
    while host.next_result(set, Some(500)).await? == JoinSetNext::TimedOut {}
    Ok(number_payload(u64::from(none.is_none())))
}

async fn invoke_once(host: ScriptHost, n: u64) -> InvokeResult {
    let promise = host
        .schedule_with_policy(
            "once",
            number_payload(n),
            None,
            DeliveryGuarantee::AtMostOnce,
        )
        .await?;
    match host.await_promise(promise).await {
        Err(error) if error.kind.as_str() == "in_doubt" => Ok(number_payload(99)),
        other => other,
    }
}

async fn count_down(host: ScriptHost, n: u64) -> InvokeResult {
    host.invoke_function("echo", number_payload(n)).await?;
    if n > 0 {
        host.continue_as_new(number_payload(n - 1)).await?;
    }
    Ok(number_payload(n))
}

async fn wait_for_cancel(host: ScriptHost) -> InvokeResult {
    let set = host.create_join_set().await?;
    let child = host
        .schedule_function("sleeper", number_payload(1_000_000))
        .await?;
    host.submit_to_join_set(set, child).await?;
    let result = host.next_result(set, None).await;
    host.invoke_function("undo", number_payload(1)).await?;
    match result {
        Err(error) => Err(error),
        Ok(_) => Ok(number_payload(0)),
    }
}

async fn run_children(host: ScriptHost, n: u64) -> InvokeResult {
    let first = host.schedule_function("chain", number_payload(n)).await?;
    let second = host.schedule_function("fan", number_payload(n)).await?;
    let both = host.await_all(&[first, second]).await?;
    let mut sum = 0;
    for result in both {
        sum += payload_number(&result?);
    }
    Ok(number_payload(sum))
}

/// A retry policy without a limit on attempts, because workers are lost.
fn unlimited_retries() -> Option<Box<RetryPolicy>> {
    Some(Box::new(RetryPolicy {
        max_attempts: None,
        timeout_ms: Some(4_000),
        ..RetryPolicy::default()
    }))
}

/// Invokes tasks on workers, some one after the other and the rest concurrently.
async fn invoke_remote(host: ScriptHost, n: u64) -> InvokeResult {
    let mut promises = Vec::new();
    for step in 1..=n {
        let promise = host
            .schedule_with_policy(
                "far",
                number_payload(step),
                unlimited_retries(),
                DeliveryGuarantee::AtLeastOnce,
            )
            .await?;
        if step.is_multiple_of(2) {
            host.await_promise(promise).await?;
        }
        promises.push(promise);
    }
    let mut sum = 0;
    for result in host.await_all(&promises).await? {
        sum += payload_number(&result?);
    }
    Ok(number_payload(sum))
}

async fn remote_once(host: ScriptHost, n: u64) -> InvokeResult {
    let promise = host
        .schedule_with_policy(
            "far_once",
            number_payload(n),
            unlimited_retries(),
            DeliveryGuarantee::AtMostOnce,
        )
        .await?;
    match host.await_promise(promise).await {
        Err(error) if error.kind.as_str() == "in_doubt" => Ok(number_payload(99)),
        other => other,
    }
}

/// Closes the join set while the task is still pending, so that the workflow no longer waits for
/// it.
async fn remote_race(host: ScriptHost) -> InvokeResult {
    let set = host.create_join_set().await?;
    let promise = host
        .schedule_with_policy(
            "far",
            number_payload(1),
            unlimited_retries(),
            DeliveryGuarantee::AtLeastOnce,
        )
        .await?;
    host.submit_to_join_set(set, promise).await?;
    host.next_result(set, Some(200)).await?;
    host.close_join_set(set).await?;
    host.sleep(100).await?;
    Ok(number_payload(1))
}

/// Runs until it is cancelled; cancellation revokes its task.
async fn remote_endless(host: ScriptHost) -> InvokeResult {
    loop {
        let promise = host
            .schedule_with_policy(
                "far",
                number_payload(1),
                unlimited_retries(),
                DeliveryGuarantee::AtLeastOnce,
            )
            .await?;
        host.await_promise(promise).await?;
        host.sleep(1_000).await?;
    }
}
