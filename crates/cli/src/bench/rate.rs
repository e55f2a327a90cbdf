//! Workloads whose rate is measured: load on a new server, first without looking, then beside the yardstick.

use anyhow::Context as _;
use onward_api::Json;
use serde_json::Value;

use super::driver::{Load, Until, Work, drive};
use super::figures::Figures;
use super::place::Place;
use super::server::Start;
use super::{Settings, paint, worker};

/// What is measured.
pub(super) struct Rate {
    pub(super) workload: &'static str,
    pub(super) function: &'static str,
    pub(super) input: Value,
    /// What is counted, and how many of them one execution makes.
    pub(super) unit: &'static str,
    pub(super) units: u32,
    pub(super) lanes: usize,
    pub(super) until: Until,
}

/// Measures it. What the last execution returned comes with the figures.
pub(super) async fn measure(place: &Place, settings: &Settings, rate: Rate) -> anyhow::Result<(Figures, Value)> {
    let Rate { workload, function, input, unit, units, lanes, until } = rate;
    paint::say(format_args!("{workload}, {lanes} at a time"));
    let mut store = place.make().await?;
    let server = Start::on(&store).await?.run_with_workflows(settings.tasks).await?;
    let worker = settings.worker(&server)?;
    let work = Work { function, input: Json::parse(&input.to_string()).context("the input is not JSON")? };
    let warm_up = match until {
        Until::Elapsed(_) => Until::Elapsed(settings.warm_up),
        Until::Answered(count) => Until::Answered(count),
    };
    drive(&server.client, &work, lanes, warm_up).await?;
    let raw_before = store.raw_rate(settings.yardstick).await?;
    let before = server.meters(&store).await?;
    let worker_before = worker.as_ref().and_then(worker::Running::cpu);
    let Load { took, latencies, result } = drive(&server.client, &work, lanes, until).await?;
    let used = server.meters(&store).await?.since(before);
    let raw_after = store.raw_rate(settings.yardstick).await?;
    let executions = latencies.len();
    let result = result.context("nothing was executed")?;
    let figures = Figures {
        workload,
        concurrency: lanes,
        unit,
        executions,
        units: executions as u64 * u64::from(units),
        took,
        latencies,
        used,
        raw_rates: [raw_before, raw_after],
        more: Vec::new(),
    };
    let figures = match worker {
        Some(worker) => worker.told(figures, worker_before),
        None => figures,
    };
    drop(server);
    drop(store);
    Ok((figures, serde_json::from_str(result.as_str())?))
}
