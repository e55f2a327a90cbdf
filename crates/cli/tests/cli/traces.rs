//! OTLP traces as a collector receives them: one trace per execution, one span per attempt, timer
//! and wait for a signal.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use onward_base::hex;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use prost::Message as _;
use serde_json::json;

use crate::http_server::{Server, create_token};
use crate::workflows::WorkflowStoreFixture;

/// An OTLP collector that keeps all spans.
struct SpanCollector {
    url: String,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl SpanCollector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let spans: Arc<Mutex<Vec<Span>>> = Arc::default();
        let kept = Arc::clone(&spans);
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || receive_spans(connection, &kept));
            }
        });
        Self { url, spans }
    }

    /// Returns the spans of the trace of an execution by span id.
    fn trace(&self, execution: &str) -> BTreeMap<String, Span> {
        let spans = self.spans.lock().unwrap();
        let its = spans
            .iter()
            .filter(|span| execution.starts_with(&hex::encode_hex(&span.trace_id)));
        its.map(|span| (hex::encode_hex(&span.span_id), span.clone()))
            .collect()
    }
}

/// Reads requests from a connection until it is closed.
fn receive_spans(connection: TcpStream, spans: &Mutex<Vec<Span>>) {
    let mut reader = BufReader::new(connection);
    loop {
        let mut length = 0;
        let mut line = String::new();
        while reader.read_line(&mut line).unwrap_or(0) > 0 && line != "\r\n" {
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            line.clear();
        }
        if line.is_empty() {
            return;
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let request = ExportTraceServiceRequest::decode(&*body).unwrap();
        let all = request
            .resource_spans
            .into_iter()
            .flat_map(|resource| resource.scope_spans);
        spans
            .lock()
            .unwrap()
            .extend(all.flat_map(|scope| scope.spans));
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn an_execution_is_a_trace_with_a_span_for_each_step() {
    let collector = SpanCollector::start();
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let mut server = Server::start(&fixture, &["--otlp-endpoint", &collector.url]);
    let start = |function: &str, input: serde_json::Value| {
        let body = json!({"function": function, "input": input, "waitMs": 30_000}).to_string();
        let started = server
            .send_request("POST /v1/executions", &admin, &body)
            .json();
        started["execution"].as_str().unwrap().to_owned()
    };
    let chain = start("chain", json!({"steps": 3}));
    let waiting = server.send_request(
        "POST /v1/executions",
        &admin,
        r#"{"function":"blocking_signal","input":{"order":7}}"#,
    );
    let waiting = waiting.json()["execution"].as_str().unwrap().to_owned();
    let why = format!("GET /v1/executions/{waiting}/why");
    while !server
        .send_request(&why, &admin, "")
        .body
        .contains("user_approval")
    {}
    let signal = format!("POST /v1/executions/{waiting}/signals");
    server.send_request(
        &signal,
        &admin,
        r#"{"name":"user_approval","payload":{"approved":true}}"#,
    );
    assert_eq!(
        server
            .send_request(
                &format!("GET /v1/executions/{waiting}/result?waitMs=30000"),
                &admin,
                ""
            )
            .status,
        200
    );
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let spans = collector.trace(&chain);
    let roots: Vec<&Span> = spans
        .values()
        .filter(|span| span.parent_span_id.is_empty())
        .collect();
    assert_eq!(
        roots.iter().map(|span| &*span.name).collect::<Vec<_>>(),
        ["chain"]
    );
    let steps: Vec<&Span> = spans
        .values()
        .filter(|span| span.parent_span_id == roots[0].span_id)
        .collect();
    assert_eq!((steps.len(), spans.len()), (3, 4), "{spans:?}");
    assert!(
        steps
            .iter()
            .all(|span| span.name == "step"
                && span.status.as_ref().unwrap().code() == StatusCode::Ok)
    );
    for span in steps {
        assert!(
            span.start_time_unix_nano >= roots[0].start_time_unix_nano
                && span.start_time_unix_nano > 0
        );
        assert!(span.end_time_unix_nano >= span.start_time_unix_nano);
        assert!(span.end_time_unix_nano <= roots[0].end_time_unix_nano);
    }
    let names: Vec<String> = collector
        .trace(&waiting)
        .into_values()
        .map(|span| span.name)
        .collect();
    assert!(
        names.contains(&"signal user_approval".to_owned()),
        "{names:?}"
    );
}
