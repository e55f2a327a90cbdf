//! Configuration of a server: the defaults of `onward dev`, and the precedence of file, environment
//! and command line.

use serde_json::{Value, json};

use crate::http_server::Server;
use crate::{onward, text};

#[test]
fn the_development_server_needs_no_token_and_has_examples_deployed() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = onward(&["dev", "--listen", "127.0.0.1:0"]);
    command.current_dir(folder.path()).env(
        "ONWARD_CACHE",
        std::env::temp_dir().join("onward-test-cache"),
    );
    let server = Server::spawn(&mut command);
    assert_eq!(server.send_request("GET /readyz", "", "").body, "ready\n");
    let functions = server.send_request("GET /v1/functions", "", "").json();
    assert!(
        functions["functions"]
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["name"] == "order"),
        "{functions}"
    );
    let start = [
        "start",
        "order",
        r#"{"customer":"Ada","item":"lamp","quantity":2}"#,
    ];
    let started = onward(&start)
        .env("ONWARD_SERVER", server.url())
        .output()
        .unwrap();
    assert_eq!(started.status.code(), Some(0), "{}", text(&started.stderr));
    // The development server does not restrict tenants: a command works as on a store.
    let runs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/runs/orders.jsonl"
    );
    let appended = onward(&["state", "append", runs])
        .env("ONWARD_SERVER", server.url())
        .output()
        .unwrap();
    assert_eq!(
        appended.status.code(),
        Some(0),
        "{}",
        text(&appended.stderr)
    );
    let metrics = server.send_request("GET /metrics", "", "").body;
    for line in [
        "onward_http_request_seconds_count",
        "onward_in_doubt_total 0",
        "# HELP onward_in_doubt_total ",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    let document = server.send_request("GET /openapi.json", "", "").json();
    assert!(document["paths"]["/v1/executions"]["post"].is_object());
    assert!(folder.path().join(".onward/onward.db").exists());
}

#[test]
fn settings_come_from_file_environment_and_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onward.toml");
    std::fs::write(
        &file,
        "store = \"postgres://me:secret@db/onward\"\nlease-ms = 7000\nlisten = \"127.0.0.1:1\"\n",
    )
    .unwrap();
    let show = |args: &[&str], environment: &[(&str, &str)]| {
        let mut command = onward(
            &[
                &["config", "show", "--config", file.to_str().unwrap()],
                args,
            ]
            .concat(),
        );
        command.envs(environment.iter().copied()).output().unwrap()
    };
    let output = show(
        &["--json", "--listen", "127.0.0.1:3"],
        &[
            ("ONWARD_LISTEN", "127.0.0.1:2"),
            ("ONWARD_LEASE_MS", "8000"),
        ],
    );
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        shown["listen"],
        json!({ "value": "127.0.0.1:3", "from": "command-line" })
    );
    assert_eq!(
        shown["lease-ms"],
        json!({ "value": 8000, "from": "environment" })
    );
    assert_eq!(
        shown["store"],
        json!({ "value": "postgres://me:***@db/onward", "from": "file" })
    );
    assert_eq!(
        shown["tls-in-front"],
        json!({ "value": false, "from": "default" })
    );
    assert!(!text(&show(&[], &[]).stdout).contains("secret"));
    let invalid = show(&[], &[("ONWARD_LISTEN", "nowhere")]);
    assert!(
        text(&invalid.stderr).contains("invalid environment variable ONWARD_LISTEN"),
        "{}",
        text(&invalid.stderr)
    );
    std::fs::write(&file, "lissten = \"127.0.0.1:1\"\n").unwrap();
    let invalid = show(&[], &[]);
    assert_eq!(invalid.status.code(), Some(2));
    assert!(
        text(&invalid.stderr).contains("unknown field `lissten`"),
        "{}",
        text(&invalid.stderr)
    );
}
