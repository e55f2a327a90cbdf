//! Guests that try to keep the server busy: it still answers, runs other executions, cancels them,
//! and stops on its first signal.

#![expect(
    clippy::disallowed_methods,
    reason = "how long a busy server takes to answer is what the tests measure"
)]

use std::time::{Duration, Instant};

use crate::http_server::{Server, create_token};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// Deploys a component whose workflow `flow` and task `job` have this body.
fn deploy_guest(fixture: &WorkflowStoreFixture, body: &str) {
    let text = include_str!("../../../wasm/tests/wasm/guest.wat")
        .replace(";;BODY", body)
        .replace(";;DESCRIBED", DESCRIBED);
    let path = fixture.folder.path().join("hostile.wasm");
    std::fs::write(&path, wat::parse_str(text).unwrap()).unwrap();
    let deployed = fixture.run(&["deploy", path.to_str().unwrap()]);
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}",
        crate::text(&deployed.stderr)
    );
}

/// The workflow `flow` and the task `job`, as `describe` returns them.
const DESCRIBED: &str = r#"
    (data (i32.const 16) "\20\00\00\00\02\00\00\00")
    (data (i32.const 32) "\c8\00\00\00\04\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
    (data (i32.const 56) "\cc\00\00\00\03\00\00\00\01\00\00\00\00\00\00\00\00\00\00\00\00\00\00\00")
    (data (i32.const 200) "flowjob")"#;

/// Makes the host copy 3 MiB for a dozen instructions, for ever.
const COPY: &str = r"
    (drop (memory.grow (i32.const 64)))
    (loop (call $log (i32.const 0) (i32.const 65536) (i32.const 3145728)) (br 0))
    (unreachable)";

fn start(server: &Server, admin: &str, body: &str) -> String {
    let started = server.send_request("POST /v1/executions", admin, body);
    assert_eq!(started.status, 201, "{}", started.body);
    started.json()["execution"].as_str().unwrap().to_owned()
}

fn result(server: &Server, admin: &str, execution: &str) -> String {
    let path = format!("GET /v1/executions/{execution}/result?waitMs=25000");
    server.send_request(&path, admin, "").body
}

fn cancel(server: &Server, admin: &str, execution: &str) {
    let path = format!("POST /v1/executions/{execution}/cancel");
    let cancelled = server.send_request(&path, admin, r#"{"reason":"enough"}"#);
    assert_eq!(cancelled.status, 202, "{}", cancelled.body);
}

#[test]
fn tasks_that_keep_every_processor_busy_stop_nothing_else() {
    let fixture = WorkflowStoreFixture::sqlite();
    deploy_guest(&fixture, COPY);
    let bench = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/workflows/built/bench.wasm"
    );
    assert_eq!(fixture.run(&["deploy", bench]).status.code(), Some(0));
    let admin = create_token(&fixture, "admin", &[]);
    let mut server = Server::start(&fixture, &["--drain-timeout-ms", "300"]);
    let processors = std::thread::available_parallelism().unwrap().get();
    let hostile: Vec<String> = (0..2 * processors)
        .map(|_| {
            let body = r#"{"function":"bench_chain","input":{"steps":1,"task":"job"}}"#;
            start(&server, &admin, body)
        })
        .collect();
    let path = format!("GET /v1/executions/{}/why", hostile[0]);
    while !server.send_request(&path, &admin, "").body.contains("job") {}
    for _ in 0..50 {
        let begun = Instant::now();
        assert_eq!(server.send_request("GET /healthz", "", "").status, 200);
        assert!(
            begun.elapsed() < Duration::from_secs(2),
            "{:?}",
            begun.elapsed()
        );
    }
    let honest = start(
        &server,
        &admin,
        r#"{"function":"chain","input":{"steps":5}}"#,
    );
    assert!(result(&server, &admin, &honest).contains('5'));
    cancel(&server, &admin, &hostile[0]);
    let ended = result(&server, &admin, &hostile[0]);
    assert!(ended.contains("cancelled"), "{ended}");
    let begun = Instant::now();
    server.signal("TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(
        begun.elapsed() < Duration::from_secs(10),
        "{:?}",
        begun.elapsed()
    );
}

#[test]
fn a_workflow_that_only_computes_is_cancelled_and_its_journal_says_so() {
    let fixture = WorkflowStoreFixture::sqlite();
    deploy_guest(&fixture, "(loop (br 0)) (unreachable)");
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &[]);
    let spinning = start(&server, &admin, r#"{"function":"flow","input":1}"#);
    std::thread::sleep(Duration::from_millis(300));
    cancel(&server, &admin, &spinning);
    let ended = result(&server, &admin, &spinning);
    assert!(ended.contains("cancelled"), "{ended}");
    drop(server);
    let journal = fixture.run(&["journal", "show", &spinning]);
    assert!(
        text(&journal.stdout).contains("CancelRequested"),
        "{}",
        text(&journal.stdout)
    );
}
