//! Who puts the load on: so many lanes, each with the next execution as soon as the last one is over, over connections that
//! stay open.

use std::time::Duration;

use anyhow::bail;
use onward_api::client::Client;
use onward_api::execution::{Outcome, Start, Started};
use onward_api::{Json, Onward as _};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::figures::Latencies;

/// How long a server is asked to wait at a time, in milliseconds.
const WAIT_MS: u64 = 60_000;

/// What is executed over and over.
#[derive(Clone)]
pub(super) struct Work {
    pub(super) function: &'static str,
    pub(super) input: Json,
}

/// When a lane has done enough.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Elapsed(Duration),
    Answered(usize),
}

/// What came of it.
#[derive(Default)]
pub(super) struct Load {
    pub(super) took: Duration,
    pub(super) latencies: Latencies,
    /// What the last execution of a lane returned.
    pub(super) result: Option<Json>,
}

impl Until {
    fn is_reached(self, elapsed: Duration, answered: usize) -> bool {
        match self {
            Self::Elapsed(duration) => elapsed >= duration,
            Self::Answered(count) => answered >= count,
        }
    }
}

impl Work {
    /// A start of it, with the wait for its result if that is wanted.
    fn start(&self, wait_ms: Option<u64>) -> Start {
        Start { function: self.function.to_owned(), input: self.input.clone(), key: None, wait_ms }
    }
}

/// Executes it over and over. One that fails is an error: there is no rate of failures.
pub(super) async fn drive(client: &Client, work: &Work, lanes: usize, until: Until) -> anyhow::Result<Load> {
    let begun = Instant::now();
    let mut all = JoinSet::new();
    for _ in 0..lanes {
        all.spawn(lane(client.clone(), work.clone(), until, begun));
    }
    let (mut latencies, mut result) = (Vec::new(), None);
    while let Some(ended) = all.join_next().await {
        let (mut its, last) = ended??;
        latencies.append(&mut its);
        result = last.or(result);
    }
    Ok(Load { took: begun.elapsed(), latencies: Latencies::new(latencies), result })
}

async fn lane(
    client: Client,
    work: Work,
    until: Until,
    begun: Instant,
) -> anyhow::Result<(Vec<Duration>, Option<Json>)> {
    let (mut latencies, mut result) = (Vec::new(), None);
    while !until.is_reached(begun.elapsed(), latencies.len()) {
        let sent = Instant::now();
        let Started { execution, result: at_once, error, .. } = client.start(work.start(Some(WAIT_MS))).await?;
        let outcome = Outcome { result: at_once, error };
        result = Some(if outcome.is_known() { returned(outcome)? } else { wait(&client, &execution).await? });
        latencies.push(sent.elapsed());
    }
    Ok((latencies, result))
}

/// Starts so many, and waits for none.
pub(super) async fn start_all(client: &Client, work: &Work, lanes: usize, count: usize) -> anyhow::Result<Vec<String>> {
    let mut all = JoinSet::new();
    for lane in 0..lanes {
        let (client, work) = (client.clone(), work.clone());
        all.spawn(async move {
            let mut its = Vec::new();
            for _ in (lane..count).step_by(lanes) {
                its.push(client.start(work.start(None)).await?.execution);
            }
            anyhow::Ok(its)
        });
    }
    Ok(all.join_all().await.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat())
}

/// Waits for all of them.
pub(super) async fn wait_all(client: &Client, executions: &[String], lanes: usize) -> anyhow::Result<()> {
    let mut all = JoinSet::new();
    for share in executions.chunks(executions.len().div_ceil(lanes).max(1)) {
        let (client, share) = (client.clone(), share.to_vec());
        all.spawn(async move {
            for execution in &share {
                wait(&client, execution).await?;
            }
            anyhow::Ok(())
        });
    }
    all.join_all().await.into_iter().collect()
}

/// What an execution returns in the end.
async fn wait(client: &Client, execution: &str) -> anyhow::Result<Json> {
    loop {
        let outcome = client.outcome(execution, WAIT_MS).await?;
        if outcome.is_known() {
            return returned(outcome);
        }
    }
}

fn returned(outcome: Outcome) -> anyhow::Result<Json> {
    match outcome {
        Outcome { result: Some(result), .. } => Ok(result),
        Outcome { error: Some(error), .. } => bail!("an execution failed: {}: {}", error.kind, error.message),
        Outcome { .. } => bail!("an execution has not ended"),
    }
}
