//! Exports traces of executions over OTLP: one trace per execution, one span per operation or wait.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use onward_base::Timestamp;
use onward_engine::node::TraceExporter;
use onward_engine::shard::AttemptId;
use onward_engine::shard::trace_span::{TraceSpan, TraceSpanKind};
use onward_journal::{ExecutionId, InvokePerformer};
use opentelemetry::trace::{
    Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;

use super::settings::redact_url;
use crate::format_error_chain;

/// Maximum number of queued spans; further spans are dropped and counted.
const QUEUED_SPANS_MAX: usize = 8_192;

/// Maximum number of spans per export request.
const BATCH_SPANS_MAX: usize = 512;

/// How long a span waits for others to share its request.
const BATCH_DELAY: Duration = Duration::from_millis(500);

/// Queues spans for the background export; drops and counts them when the queue is full.
pub(super) struct OtlpSpanSender(mpsc::Sender<TraceSpan>);

impl TraceExporter for OtlpSpanSender {
    fn export_spans(&self, spans: Vec<TraceSpan>) {
        for span in spans {
            if self.0.try_send(span).is_err() {
                metrics::counter!("onward_spans_dropped_total").increment(1);
            }
        }
    }
}

/// Creates an exporter to a collector such as `http://127.0.0.1:4318`. Returns the sender and the
/// export task, which runs until the sender is dropped and the queue is empty.
pub(super) fn start_otlp_export(
    endpoint: &str,
    node: &str,
) -> anyhow::Result<(Arc<OtlpSpanSender>, impl Future<Output = ()> + use<>)> {
    onward_api::client::install_crypto_provider();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary);
    let exporter = exporter.with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')));
    let redaction = EndpointRedaction::new(endpoint);
    let mut exporter = exporter.build().map_err(|error| {
        let error = redaction.apply(&format_error_chain(&error.into()));
        let shown = &redaction.shown;
        anyhow::anyhow!("cannot create the OTLP exporter for {shown}: {error}")
    })?;
    let instance = KeyValue::new("service.instance.id", node.to_owned());
    exporter.set_resource(
        &Resource::builder_empty()
            .with_service_name("onward")
            .with_attribute(instance)
            .build(),
    );
    let (sender, mut waiting) = mpsc::channel(QUEUED_SPANS_MAX);
    let export = async move {
        let mut batch = Vec::new();
        while waiting.recv_many(&mut batch, BATCH_SPANS_MAX).await > 0 {
            // More spans usually follow, so the batch waits for them.
            let more = async {
                while batch.len() < BATCH_SPANS_MAX
                    && waiting.recv_many(&mut batch, BATCH_SPANS_MAX).await > 0
                {}
            };
            drop(tokio::time::timeout(BATCH_DELAY, more).await);
            let count = batch.len() as u64;
            if let Err(error) = exporter
                .export(batch.drain(..).map(to_span_data).collect())
                .await
            {
                let error = redaction.apply(&error.to_string());
                tracing::warn!(%error, spans = count, "cannot export traces");
                metrics::counter!("onward_spans_dropped_total").increment(count);
            }
        }
    };
    Ok((Arc::new(OtlpSpanSender(sender)), export))
}

/// Removes the password of the collector from texts of the HTTP client, which repeat its URL.
struct EndpointRedaction {
    /// The endpoint as it was given.
    endpoint: String,
    /// The endpoint without its password.
    shown: String,
    /// The user and password in the endpoint, and the password alone, where it has them.
    secrets: Vec<String>,
}

impl EndpointRedaction {
    fn new(endpoint: &str) -> Self {
        let authority = endpoint
            .split_once("://")
            .map_or(endpoint, |(_, rest)| rest);
        let end = authority.find(['/', '?', '#']).unwrap_or(authority.len());
        let user = authority[..end].rsplit_once('@').map(|(user, _)| user);
        let password = user.and_then(|user| user.split_once(':'));
        let secrets = [user, password.map(|(_, password)| password)];
        let secrets = secrets
            .into_iter()
            .flatten()
            .filter(|text| !text.is_empty());
        Self {
            endpoint: endpoint.to_owned(),
            shown: redact_url(endpoint),
            secrets: secrets.map(str::to_owned).collect(),
        }
    }

    fn apply(&self, text: &str) -> String {
        let shown = text.replace(&self.endpoint, &self.shown);
        self.secrets
            .iter()
            .fold(shown, |shown, secret| shown.replace(secret, "***"))
    }
}

/// Returns the trace id of an execution. It is derived from the execution id, so every node
/// computes the same.
fn trace_id(execution: ExecutionId) -> TraceId {
    TraceId::from_bytes(id_bytes(execution, 0))
}

/// Returns the id of the root span, which covers the whole execution.
fn root_span_id(execution: ExecutionId) -> SpanId {
    SpanId::from_bytes(id_bytes(execution, 16))
}

/// Returns the span id of an operation, or of one attempt of it.
fn operation_span_id(
    AttemptId {
        execution,
        number,
        attempt,
    }: AttemptId,
) -> SpanId {
    let place = (u64::from(number) << 32 | u64::from(attempt)).wrapping_add(1);
    // The factor is odd, so no two operations of an execution map to the same number.
    let spread = place.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    SpanId::from_bytes((u64::from_be_bytes(id_bytes(execution, 24)) ^ spread).to_be_bytes())
}

fn id_bytes<const N: usize>(execution: ExecutionId, from: usize) -> [u8; N] {
    std::array::from_fn(|place| execution.as_bytes()[from + place])
}

fn span_context(trace: TraceId, span: SpanId) -> SpanContext {
    SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE)
}

fn link_to_span(execution: ExecutionId, span: SpanId) -> Link {
    Link::with_context(span_context(trace_id(execution), span))
}

/// Returns the name of the performer of an attempt, and a link to the child execution if one
/// performs it.
fn performer_link(performer: InvokePerformer) -> (&'static str, Option<Link>) {
    match performer {
        InvokePerformer::Owner => ("owner", None),
        InvokePerformer::Worker => ("worker", None),
        InvokePerformer::Child(child) => ("child", Some(link_to_span(child, root_span_id(child)))),
    }
}

fn to_system_time(at: Timestamp) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_micros(u64::try_from(at.as_micros()).unwrap_or(0))
}

fn to_span_data(span: TraceSpan) -> SpanData {
    let TraceSpan {
        execution,
        kind,
        started_at,
        ended_at,
        error,
    } = span;
    let part = |number, attempt| {
        operation_span_id(AttemptId {
            execution,
            number,
            attempt,
        })
    };
    let mut attributes = vec![KeyValue::new("onward.execution", execution.to_string())];
    let mut links = SpanLinks::default();
    let (id, parent, name): (SpanId, SpanId, Cow<'static, str>) = match kind {
        TraceSpanKind::Execution { function, parent } => {
            attributes.push(KeyValue::new("onward.function", function.to_string()));
            links.links.extend(
                parent.map(|parent| link_to_span(parent.execution, operation_span_id(parent))),
            );
            (
                root_span_id(execution),
                SpanId::INVALID,
                function.to_string().into(),
            )
        }
        TraceSpanKind::Attempt {
            function,
            number,
            attempt,
            performer,
        } => {
            attributes.push(KeyValue::new("onward.promise", i64::from(number)));
            attributes.push(KeyValue::new("onward.attempt", i64::from(attempt)));
            let (name, link) = performer_link(performer);
            attributes.push(KeyValue::new("onward.performer", name));
            links.links.extend(link);
            (
                part(number, attempt),
                root_span_id(execution),
                function.to_string().into(),
            )
        }
        TraceSpanKind::Timer { number } => {
            (part(number, 0), root_span_id(execution), "timer".into())
        }
        TraceSpanKind::Signal { number, name } => (
            part(number, 0),
            root_span_id(execution),
            format!("signal {name}").into(),
        ),
    };
    SpanData {
        span_context: span_context(trace_id(execution), id),
        parent_span_id: parent,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name,
        start_time: to_system_time(started_at),
        end_time: to_system_time(ended_at),
        attributes,
        dropped_attributes_count: 0,
        events: SpanEvents::default(),
        links,
        status: error.map_or(Status::Ok, |error| Status::error(error.to_string())),
        instrumentation_scope: InstrumentationScope::builder("onward").build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_password_of_the_collector_is_not_repeated() {
        for endpoint in [
            "http://me:s3cret@collector:4318",
            "http://me:s3cret@collector:4318/?password=s3cret",
            "me:s3cret@collector",
            "http://me:s3c:ret@x@collector",
        ] {
            let redaction = EndpointRedaction::new(endpoint);
            let text = format!("cannot send to {endpoint}/v1/traces: {endpoint} is away");
            let shown = redaction.apply(&text);
            assert!(!shown.contains("s3c"), "{shown}");
            assert!(shown.contains("collector"), "{shown}");
        }
        let plain = EndpointRedaction::new("http://127.0.0.1:4318");
        assert_eq!(
            plain.apply("refused by 127.0.0.1:4318"),
            "refused by 127.0.0.1:4318"
        );
    }
}
