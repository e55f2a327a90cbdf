//! Traces of executions, sent by OTLP: one trace for each execution, a span for each thing that it did or waited for.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use onward_engine::node::Traces;
use onward_engine::shard::AttemptId;
use onward_engine::shard::span::{Span, What};
use onward_journal::{ExecutionId, Performer, Timestamp};
use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;

/// Spans that wait to be sent; those beyond are dropped, and counted.
const WAITING_MAX: usize = 8_192;

/// Spans that are sent together.
const BATCH: usize = 512;

/// How long a span waits for others.
const PATIENCE: Duration = Duration::from_millis(500);

/// Sends what it is told of, in the background.
pub(super) struct Otlp(mpsc::Sender<Span>);

impl Traces for Otlp {
    fn ended(&self, spans: Vec<Span>) {
        for span in spans {
            if self.0.try_send(span).is_err() {
                metrics::counter!("onward_spans_dropped_total").increment(1);
            }
        }
    }
}

/// Begins to send spans to a collector, such as `http://127.0.0.1:4318`. The second goes on until the first is dropped.
pub(super) fn otlp(endpoint: &str, node: &str) -> anyhow::Result<(Arc<Otlp>, impl Future<Output = ()> + use<>)> {
    onward_api::client::install_crypto();
    let exporter = SpanExporter::builder().with_http().with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')));
    let mut exporter = exporter.build().with_context(|| format!("cannot send traces to {endpoint}"))?;
    let instance = KeyValue::new("service.instance.id", node.to_owned());
    exporter.set_resource(&Resource::builder_empty().with_service_name("onward").with_attribute(instance).build());
    let (sender, mut waiting) = mpsc::channel(WAITING_MAX);
    let sending = async move {
        let mut batch = Vec::new();
        while waiting.recv_many(&mut batch, BATCH).await > 0 {
            // Others are likely to follow.
            let more = async { while batch.len() < BATCH && waiting.recv_many(&mut batch, BATCH).await > 0 {} };
            drop(tokio::time::timeout(PATIENCE, more).await);
            let count = batch.len() as u64;
            if let Err(error) = exporter.export(batch.drain(..).map(data).collect()).await {
                tracing::warn!(%error, spans = count, "traces could not be sent");
                metrics::counter!("onward_spans_dropped_total").increment(count);
            }
        }
    };
    Ok((Arc::new(Otlp(sender)), sending))
}

/// The trace of an execution: its id says it, so every node knows it.
fn trace(execution: ExecutionId) -> TraceId {
    TraceId::from_bytes(bytes(execution, 0))
}

/// The span of the whole execution.
fn root(execution: ExecutionId) -> SpanId {
    SpanId::from_bytes(bytes(execution, 16))
}

/// The span of an operation, or of one attempt of it.
fn part(AttemptId { execution, number, attempt }: AttemptId) -> SpanId {
    let place = (u64::from(number) << 32 | u64::from(attempt)).wrapping_add(1);
    // No two places of an execution come to the same number: the factor is odd.
    let spread = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    SpanId::from_bytes((u64::from_be_bytes(bytes(execution, 24)) ^ spread).to_be_bytes())
}

fn bytes<const N: usize>(execution: ExecutionId, from: usize) -> [u8; N] {
    std::array::from_fn(|place| execution.as_bytes()[from + place])
}

fn context(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE)
}

fn time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(at.as_micros()).unwrap_or(0))
}

fn data(span: Span) -> SpanData {
    let Span { execution, what, begun, ended, error } = span;
    let part = |number, attempt| part(AttemptId { execution, number, attempt });
    let mut attributes = vec![KeyValue::new("onward.execution", execution.to_string())];
    let mut links = SpanLinks::default();
    let (id, parent, name): (SpanId, SpanId, Cow<'static, str>) = match what {
        What::Execution { function, parent } => {
            attributes.push(KeyValue::new("onward.function", function.to_string()));
            links
                .links
                .extend(parent.map(|parent| Link::with_context(context(trace(parent.execution), self::part(parent)))));
            (root(execution), SpanId::INVALID, function.to_string().into())
        }
        What::Attempt { function, number, attempt, performer } => {
            attributes.push(KeyValue::new("onward.promise", i64::from(number)));
            attributes.push(KeyValue::new("onward.attempt", i64::from(attempt)));
            let (by, link) = match performer {
                Performer::Owner => ("owner", None),
                Performer::Worker => ("worker", None),
                Performer::Child(child) => ("child", Some(Link::with_context(context(trace(child), root(child))))),
            };
            attributes.push(KeyValue::new("onward.performer", by));
            links.links.extend(link);
            (part(number, attempt), root(execution), function.to_string().into())
        }
        What::Timer { number } => (part(number, 0), root(execution), "timer".into()),
        What::Signal { number, name } => (part(number, 0), root(execution), format!("signal {name}").into()),
    };
    SpanData {
        span_context: context(trace(execution), id),
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name,
        start_time: time(begun),
        end_time: time(ended),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: error.map_or(Status::Ok, |error| Status::error(error.to_string())),
        instrumentation_scope: InstrumentationScope::builder("onward").build(),
    }
}
