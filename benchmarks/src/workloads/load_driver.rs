//! Closed-loop load driver: a fixed number of lanes, each of which starts the next execution as
//! soon as its last one has ended, over connections that stay open.

use std::time::Duration;

use anyhow::bail;
use onward_api::client::ApiClient;
use onward_api::execution::{ExecutionResult, StartExecutionRequest, StartExecutionResponse};
use onward_api::{OnwardApi as _, RawJson};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::load::{LoadLimit, LoadResult};
use crate::statistics::BenchLatencies;

/// Long-poll timeout of one request in milliseconds.
const WAIT_MS: u64 = 60_000;

/// The function and input that are executed repeatedly.
#[derive(Clone)]
pub(super) struct BenchInvocation {
    pub(super) function: &'static str,
    pub(super) input: RawJson,
}

impl BenchInvocation {
    /// Builds a start request. With `wait_ms`, the server waits that long for the result.
    fn start_request(&self, wait_ms: Option<u64>) -> StartExecutionRequest {
        StartExecutionRequest {
            function: self.function.to_owned(),
            input: self.input.clone(),
            key: None,
            wait_ms,
        }
    }
}

/// Executes `work` repeatedly on `lanes` lanes. Fails if one execution fails: a rate of failures is
/// not measured.
pub(super) async fn drive_load(
    client: &ApiClient,
    work: &BenchInvocation,
    lanes: usize,
    until: LoadLimit,
) -> anyhow::Result<LoadResult<RawJson>> {
    let started_at = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..lanes {
        all.spawn(drive_lane(client.clone(), work.clone(), until, started_at));
    }
    let (mut latencies, mut result) = (Vec::new(), None);
    while let Some(lane) = all.join_next().await {
        let (mut lane_latencies, last) = lane??;
        latencies.append(&mut lane_latencies);
        result = last.or(result);
    }
    Ok(LoadResult {
        elapsed: started_at.elapsed(),
        latencies: BenchLatencies::new(latencies),
        result,
    })
}

async fn drive_lane(
    client: ApiClient,
    work: BenchInvocation,
    until: LoadLimit,
    started_at: Instant,
) -> anyhow::Result<(Vec<Duration>, Option<RawJson>)> {
    let (mut latencies, mut result) = (Vec::new(), None);
    while !until.is_reached(started_at.elapsed(), latencies.len()) {
        let sent = Instant::now();
        let StartExecutionResponse {
            execution,
            result: immediate,
            error,
            ..
        } = client
            .start_execution(work.start_request(Some(WAIT_MS)))
            .await?;
        let outcome = ExecutionResult {
            result: immediate,
            error,
        };
        result = Some(if outcome.has_ended() {
            into_result(outcome)?
        } else {
            wait_for_result(&client, &execution).await?
        });
        latencies.push(sent.elapsed());
    }
    Ok((latencies, result))
}

/// Starts `count` executions and returns their ids without waiting for results.
pub(super) async fn start_executions(
    client: &ApiClient,
    work: &BenchInvocation,
    lanes: usize,
    count: usize,
) -> anyhow::Result<Vec<String>> {
    let mut all = JoinSet::new();
    for lane in 0..lanes {
        let (client, work) = (client.clone(), work.clone());
        all.spawn(async move {
            let mut ids = Vec::new();
            for _ in (lane..count).step_by(lanes) {
                ids.push(
                    client
                        .start_execution(work.start_request(None))
                        .await?
                        .execution,
                );
            }
            anyhow::Ok(ids)
        });
    }
    Ok(all
        .join_all()
        .await
        .into_iter()
        .collect::<anyhow::Result<Vec<_>>>()?
        .concat())
}

/// Waits until all executions have completed. Fails if one failed.
pub(super) async fn wait_for_executions(
    client: &ApiClient,
    executions: &[String],
    lanes: usize,
) -> anyhow::Result<()> {
    let mut all = JoinSet::new();
    for share in executions.chunks(executions.len().div_ceil(lanes).max(1)) {
        let (client, share) = (client.clone(), share.to_vec());
        all.spawn(async move {
            for execution in &share {
                wait_for_result(&client, execution).await?;
            }
            anyhow::Ok(())
        });
    }
    all.join_all().await.into_iter().collect()
}

/// Waits until the execution has ended and returns its result.
async fn wait_for_result(client: &ApiClient, execution: &str) -> anyhow::Result<RawJson> {
    loop {
        let outcome = client.get_execution_result(execution, WAIT_MS).await?;
        if outcome.has_ended() {
            return into_result(outcome);
        }
    }
}

fn into_result(outcome: ExecutionResult) -> anyhow::Result<RawJson> {
    match outcome {
        ExecutionResult {
            result: Some(result),
            ..
        } => Ok(result),
        ExecutionResult {
            error: Some(error), ..
        } => bail!("an execution failed: {}: {}", error.kind, error.message),
        ExecutionResult { .. } => bail!("an execution has not ended"),
    }
}
