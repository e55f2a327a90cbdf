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
    (
        "onward_store_transactions_total",
        "Transactions of the database",
    ),
    (
        "onward_task_retries_total",
        "Attempts that were made because an earlier one had failed",
    ),
    (
        "onward_in_doubt_total",
        "At-most-once tasks of which nobody knows whether they were performed",
    ),
    (
        "onward_projector_events_total",
        "Run events that snapshots were made from",
    ),
    (
        "onward_spans_dropped_total",
        "Spans of traces that could not be sent in time",
    ),
];

const GAUGES: [(&str, &str); 5] = [
    (
        "onward_queue_depth",
        "What waits in the whole store, counted up to 100,000",
    ),
    (
        "onward_projector_lag_seconds",
        "How far the snapshots of runs are behind",
    ),
    (
        "onward_shard_owner",
        "1 if this server has that slice of the work",
    ),
    ("onward_nodes_alive", "Servers and nodes that this one sees"),
    (
        "onward_executions_in_memory",
        "Executions in memory; the others are in the store alone",
    ),
];

const HISTOGRAMS: [(&str, &str); 2] = [
    ("onward_http_request_seconds", "How long requests took"),
    (
        "onward_store_transaction_seconds",
        "How long transactions of the database took",
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
        .context("metrics cannot be kept")?;
    for (name, words) in COUNTERS {
        describe_counter!(name, words);
        counter!(name).absolute(0);
    }
    describe_counter!(
        "onward_campaign_items_total",
        "Items of campaigns that came to stand so"
    );
    for standing in ["served", "failed", "skipped", "in_doubt"] {
        counter!("onward_campaign_items_total", "standing" => standing).absolute(0);
    }
    describe_counter!("onward_alerts_total", "What people should look at");
    for (name, words) in GAUGES {
        describe_gauge!(name, words);
    }
    for (name, words) in HISTOGRAMS {
        describe_histogram!(name, Unit::Seconds, words);
    }
    describe_histogram!(
        commits,
        "How many commits share a transaction of the database"
    );
    let upkeep = handle.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    Ok(handle)
}
