//! Authorization of the HTTP API: roles, scopes, revoked and expired tokens, and the addresses that
//! a server may listen on.

use serde_json::{Value, json};

use crate::server::{Server, started, token};
use crate::text;
use crate::work::Place;

/// What a letter in the table below stands for.
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

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn nobody_sees_or_does_more_than_their_token_allows() {
    let place = Place::sqlite();
    let [viewer, operator, engineer, admin, worker] =
        ["viewer", "operator", "engineer", "admin", "worker"].map(|role| token(&place, role, &[]));
    let other = token(&place, "admin", &["--environment", "other"]);
    let id = started(&place, &["blocking_signal", "{\"order\":7}"]);
    let server = Server::of(&place, &[]);
    let start = r#"{"function":"chain","input":{"steps":1}}"#;
    let (cancel, signal) = (r#"{"reason":"enough"}"#, r#"{"name":"x"}"#);
    let look = format!("GET /v1/executions/{id}");
    let paths = [
        ("GET /v1/executions", "", "rrrr-"),
        (&*look, "", "rrrr-"),
        (&format!("{look}/journal"), "", "rrrr-"),
        (&format!("{look}/result"), "", "rrrr-"),
        (&format!("{look}/why"), "", "rrrr-"),
        (&format!("{look}/component"), "", "rrrr-"),
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
            // A component is not decoded as text, nor is it JSON.
            if request.ends_with("/component") && letter == 'r' {
                continue;
            }
            let answer = server.ask(request, token, body);
            // The first cancel request ends the execution: later ones conflict.
            let is_over = letter == 'o' && answer.status == 409;
            assert!(
                is_over || answer.status == status(letter),
                "{request} by {letters}: {}",
                answer.body
            );
        }
        for token in ["", "onward_0000", "nonsense"] {
            assert_eq!(
                server.ask(request, token, body).code(),
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
            assert_eq!(server.ask(request, &other, body).code(), code, "{request}");
        }
    }
    assert_eq!(
        server.ask("GET /v1/executions", &other, "").json()["executions"],
        json!([])
    );
    let header = "onward-environment: default\r\n";
    assert_eq!(
        server
            .ask_with("GET /v1/executions", &other, header, "")
            .code(),
        "forbidden"
    );
    let file = std::fs::read(place.folder.path().join("store.db-wal")).unwrap();
    assert!(
        !file
            .windows(32)
            .any(|bytes| bytes == &admin.as_bytes()[7..39]),
        "tokens are not stored"
    );
}

#[test]
fn a_token_that_is_taken_back_or_has_run_out_is_no_longer_good() {
    let place = Place::sqlite();
    let admin = token(&place, "admin", &[]);
    let old = token(&place, "viewer", &["--expires", "2020-01-01T00:00:00Z"]);
    let server = Server::of(&place, &[]);
    assert_eq!(
        server.ask("GET /v1/executions", &old, "").code(),
        "unauthenticated"
    );
    let made = server.run(
        &admin,
        &["token", "create", "guest", "--role", "viewer", "--json"],
    );
    let made: Value = serde_json::from_slice(&made.stdout).unwrap();
    let guest = made["token"].as_str().unwrap();
    assert_eq!(
        server
            .run(&admin, &["token", "revoke", "guest"])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        server.ask("GET /v1/executions", guest, "").code(),
        "unauthenticated"
    );
    let again = server.run(&admin, &["token", "revoke", "guest"]);
    assert_eq!(again.status.code(), Some(2));
    let twice = ["token", "create", "twin", "--role", "viewer"];
    assert_eq!(server.run(&admin, &twice).status.code(), Some(0));
    assert!(text(&server.run(&admin, &twice).stderr).contains("already"));
}

#[test]
fn a_server_does_not_listen_to_the_world_unprotected() {
    let place = Place::sqlite();
    let open = ["serve", "--listen", "0.0.0.0:0"];
    let without_token = place.run(&open);
    assert_eq!(without_token.status.code(), Some(2));
    assert!(
        text(&without_token.stderr).contains("nobody has a token"),
        "{}",
        text(&without_token.stderr)
    );
    token(&place, "admin", &[]);
    let without_tls = place.run(&open);
    assert!(
        text(&without_tls.stderr).contains("--tls-in-front"),
        "{}",
        text(&without_tls.stderr)
    );
    let dev = place.run(&["dev", "--listen", "0.0.0.0:0"]);
    assert!(
        text(&dev.stderr).contains("beyond loopback"),
        "{}",
        text(&dev.stderr)
    );
}
