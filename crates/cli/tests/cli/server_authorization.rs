//! Authorization of the HTTP API: roles, scopes, revoked and expired tokens, and the addresses that
//! a server may listen on.

use serde_json::{Value, json};

use crate::http_server::{HttpResponse, Server, create_token, start_workflow};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// The expected status for a letter in the table below.
const fn status(letter: char) -> u16 {
    match letter {
        'r' => 200,
        'c' => 201,
        'a' | 'o' => 202,
        'd' => 204,
        'b' => 400,
        'n' => 404,
        'l' => 409,
        'u' => 422,
        _ => 403,
    }
}

/// Sends a request with the content type that its path requires.
fn send_body(server: &Server, request: &str, token: &str, body: &str) -> HttpResponse {
    let media = if request == "POST /v1/components" {
        "content-type: application/wasm\r\n"
    } else {
        "content-type: application/json\r\n"
    };
    server.send_request_with(request, token, media, body)
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn a_token_grants_only_its_role_and_scope() {
    let fixture = WorkflowStoreFixture::sqlite();
    let [viewer, operator, engineer, admin, worker] =
        ["viewer", "operator", "engineer", "admin", "worker"]
            .map(|role| create_token(&fixture, role, &[]));
    let other = create_token(&fixture, "admin", &["--environment", "other"]);
    let id = start_workflow(&fixture, &["blocking_signal", "{\"order\":7}"]);
    let server = Server::start(&fixture, &[]);
    let start = r#"{"function":"chain","input":{"steps":1}}"#;
    let (cancel, signal) = (r#"{"reason":"enough"}"#, r#"{"name":"x"}"#);
    let show = format!("GET /v1/executions/{id}");
    let paths = [
        ("GET /v1/executions", "", "rrrr-"),
        (&*show, "", "rrrr-"),
        (&format!("{show}/journal"), "", "rrrr-"),
        (&format!("{show}/result"), "", "rrrr-"),
        (&format!("{show}/why"), "", "rrrr-"),
        (&format!("{show}/component"), "", "rrrr-"),
        ("GET /v1/functions", "", "rrrr-"),
        ("GET /v1/components", "", "rrrr-"),
        ("GET /v1/runs/x/events", "", "nnnn-"),
        ("POST /v1/executions", start, "-ccc-"),
        (
            &format!("POST /v1/executions/{id}/signals"),
            signal,
            "-aaa-",
        ),
        (&format!("POST /v1/executions/{id}/cancel"), cancel, "-ooo-"),
        ("POST /v1/run-events", r#"{"events":[]}"#, "--bb-"),
        ("POST /v1/components", "x", "--uu-"),
        ("GET /v1/tasks", "", "rrrr-"),
        (
            "POST /v1/tasks/claim",
            r#"{"worker":"w","functions":["far"]}"#,
            "---rr",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/heartbeat"),
            r#"{"token":"x"}"#,
            "---ll",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/release"),
            r#"{"token":"x"}"#,
            "---ll",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/complete"),
            r#"{"token":"x"}"#,
            "---ll",
        ),
        (
            &format!("POST /v1/tasks/{id}.0.1/fail"),
            r#"{"token":"x","error":{"message":"no"}}"#,
            "---ll",
        ),
        ("GET /v1/tokens", "", "---r-"),
        (
            "POST /v1/tokens",
            r#"{"name":"n","role":"viewer"}"#,
            "---c-",
        ),
        ("DELETE /v1/tokens/n", "", "---d-"),
        ("GET /v1/doctor", "", "---r-"),
        ("GET /v1/verify", "", "---r-"),
    ];
    for (request, body, letters) in paths {
        for (letter, token) in letters
            .chars()
            .zip([&viewer, &operator, &engineer, &admin, &worker])
        {
            // A component is binary, neither text nor JSON.
            if request.ends_with("/component") && letter == 'r' {
                continue;
            }
            let response = send_body(&server, request, token, body);
            // The first cancel request ends the execution: later ones conflict.
            let has_ended = letter == 'o' && response.status == 409;
            assert!(
                has_ended || response.status == status(letter),
                "{request} by {letters}: {}",
                response.body
            );
        }
        for token in ["", "onward_0000", "nonsense"] {
            assert_eq!(
                server.send_request(request, token, body).code(),
                "unauthenticated",
                "{request}"
            );
        }
        if request.contains(&id) {
            let code = if request.contains("tasks") {
                "lease_lost"
            } else {
                "no_execution"
            };
            assert_eq!(
                server.send_request(request, &other, body).code(),
                code,
                "{request}"
            );
        }
    }
    assert_eq!(
        server.send_request("GET /v1/executions", &other, "").json()["executions"],
        json!([])
    );
    let header = "onward-environment: default\r\n";
    assert_eq!(
        server
            .send_request_with("GET /v1/executions", &other, header, "")
            .code(),
        "forbidden"
    );
    let file = std::fs::read(fixture.folder.path().join("store.db-wal")).unwrap();
    assert!(
        !file
            .windows(32)
            .any(|bytes| bytes == &admin.as_bytes()[7..39]),
        "tokens are not stored"
    );
}

#[test]
fn a_revoked_or_expired_token_is_rejected() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let old = create_token(&fixture, "viewer", &["--expires", "2020-01-01T00:00:00Z"]);
    let server = Server::start(&fixture, &[]);
    assert_eq!(
        server.send_request("GET /v1/executions", &old, "").code(),
        "unauthenticated"
    );
    let created = server.run(
        &admin,
        &["token", "create", "guest", "--role", "viewer", "--json"],
    );
    let created: Value = serde_json::from_slice(&created.stdout).unwrap();
    let guest = created["token"].as_str().unwrap();
    assert_eq!(
        server
            .run(&admin, &["token", "revoke", "guest"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        server.send_request("GET /v1/executions", guest, "").code(),
        "unauthenticated"
    );
    let again = server.run(&admin, &["token", "revoke", "guest"]);
    assert_eq!(again.status.code(), Some(2));
    let twice = ["token", "create", "twin", "--role", "viewer"];
    assert_eq!(server.run(&admin, &twice).status.code(), Some(0));
    assert!(text(&server.run(&admin, &twice).stderr).contains("already"));
}

#[test]
fn a_non_loopback_address_requires_a_token_and_tls() {
    let fixture = WorkflowStoreFixture::sqlite();
    let open = ["serve", "--listen", "0.0.0.0:0"];
    let without_token = fixture.run(&open);
    assert_eq!(without_token.status.code(), Some(2));
    assert!(
        text(&without_token.stderr)
            .contains("without a token: create one with onward token create"),
        "{}",
        text(&without_token.stderr)
    );
    create_token(&fixture, "admin", &[]);
    let without_tls = fixture.run(&open);
    assert!(
        text(&without_tls.stderr).contains("--tls-in-front"),
        "{}",
        text(&without_tls.stderr)
    );
    let dev = fixture.run(&["dev", "--listen", "0.0.0.0:0"]);
    assert!(
        text(&dev.stderr).contains("is not a loopback address: use onward serve"),
        "{}",
        text(&dev.stderr)
    );
}
