//! Prometheus metrics of a server.

use std::time::Duration;

use anyhow::Context as _;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

/// Histogram buckets of all latencies, in seconds.
const LATENCY_BUCKETS: [f64; 13] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.1, 0.5, 1.0, 5.0, 30.0,
];

/// Histogram buckets of the number of commits per transaction.
const COMMIT_BUCKETS: [f64; 10] = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 1_024.0];

/// How often the recorder compacts its histograms.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// Counters that are exported as 0 from the start, so that monitoring sees them before the first
/// event.
const COUNTERS: [(&str, &str); 5] = [
    ("onward_store_transactions_total", "Database transactions"),
    (
        "onward_task_retries_total",
        "Task attempts after a failed attempt",
    ),
    (
        "onward_in_doubt_total",
        "At-most-once tasks whose outcome is unknown",
    ),
    (
        "onward_projector_events_total",
        "Run events that the projector has applied to snapshots",
    ),
    (
        "onward_spans_dropped_total",
        "Trace spans that could not be exported in time",
    ),
];

const GAUGES: [(&str, &str); 5] = [
    (
        "onward_queue_depth",
        "Waiting work in the whole store by queue, counted up to 100,000",
    ),
    (
        "onward_projector_lag_seconds",
        "Lag of the run snapshots behind the run events",
    ),
    (
        "onward_shard_owner",
        "1 if this server owns the shard, else 0",
    ),
    (
        "onward_nodes_alive",
        "Live servers and nodes that this one sees",
    ),
    (
        "onward_executions_in_memory",
        "Executions in memory; all others are only in the store",
    ),
];

const HISTOGRAMS: [(&str, &str); 2] = [
    ("onward_http_request_seconds", "Duration of HTTP requests"),
    (
        "onward_store_transaction_seconds",
        "Duration of database transactions",
    ),
];

/// Installs the metrics recorder of this process and starts its upkeep task. Fails if a recorder is
/// installed already.
pub(crate) fn install_metrics_recorder() -> anyhow::Result<PrometheusHandle> {
    let commits = "onward_store_commits_per_transaction";
    let recorder = PrometheusBuilder::new()
        .set_buckets(&LATENCY_BUCKETS)
        .and_then(|it| {
            it.set_buckets_for_metric(Matcher::Full(commits.to_owned()), &COMMIT_BUCKETS)
        });
    let handle = recorder
        .and_then(PrometheusBuilder::install_recorder)
        .context("cannot install the metrics recorder")?;
    for (name, description) in COUNTERS {
        describe_counter!(name, description);
        counter!(name).absolute(0);
    }
    describe_counter!(
        "onward_campaign_items_total",
        "Campaign items that entered the state"
    );
    for state in ["sent", "failed", "skipped", "in-doubt"] {
        counter!("onward_campaign_items_total", "state" => state).absolute(0);
    }
    describe_counter!(
        "onward_alerts_total",
        "Alerts that operators should look at"
    );
    for (name, description) in GAUGES {
        describe_gauge!(name, description);
    }
    for (name, description) in HISTOGRAMS {
        describe_histogram!(name, Unit::Seconds, description);
    }
    describe_histogram!(commits, "Commits that share one database transaction");
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}
