//! The development server: its token, the hosts and pages that it refuses, and its files.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::http_server::{HttpResponse, Server, create_token};
use crate::workflows::WorkflowStoreFixture;
use crate::{onward, text};

/// A development server in a new folder.
pub(crate) struct DevServer {
    server: Server,
    token: String,
    folder: tempfile::TempDir,
}

impl DevServer {
    fn start(args: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Self::serve(folder.path(), args);
        let token = std::fs::read_to_string(folder.path().join(".onward/token")).unwrap();
        Self {
            server,
            token: token.trim().to_owned(),
            folder,
        }
    }

    fn serve(folder: &Path, args: &[&str]) -> Server {
        let mut command = onward(&[&["dev", "--listen", "127.0.0.1:0"], args].concat());
        command
            .current_dir(folder)
            .env("ONWARD_SECRET_MAIL", "topsecret-canary")
            .env(
                "ONWARD_CACHE",
                std::env::temp_dir().join("onward-test-cache"),
            );
        Server::spawn(&mut command)
    }

    /// Runs a command that is given the server, but no token.
    fn run_in(&self, folder: &Path, args: &[&str]) -> Output {
        let mut command = onward(args);
        command.current_dir(folder);
        command.env("ONWARD_SERVER", self.server.url());
        command.output().unwrap()
    }

    fn send_json(&self, request: &str, headers: &str, body: &str) -> HttpResponse {
        let headers = format!("content-type: application/json\r\n{headers}");
        (self.server).send_request_with(request, &self.token, &headers, body)
    }
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn the_development_server_requires_its_token_and_has_examples_deployed() {
    let dev = DevServer::start(&[]);
    let server = &dev.server;
    assert_eq!(server.send_request("GET /readyz", "", "").body, "ready\n");
    let anonymous = server.send_request("GET /v1/functions", "", "");
    assert_eq!(anonymous.code(), "unauthenticated");
    let functions = server
        .send_request("GET /v1/functions", &dev.token, "")
        .json();
    let is_order = |function: &Value| function["name"] == "order";
    assert!(
        functions["functions"]
            .as_array()
            .unwrap()
            .iter()
            .any(is_order),
        "{functions}"
    );
    // The development server does not restrict tenants: a command works as on a store.
    let runs = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/runs/orders.jsonl"
    );
    let appended = dev.run_in(dev.folder.path(), &["state", "append", runs]);
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
}

#[test]
fn commands_find_the_token_of_the_development_server_by_themselves() {
    let dev = DevServer::start(&[]);
    let below = dev.folder.path().join("src/deep");
    std::fs::create_dir_all(&below).unwrap();
    let start = [
        "start",
        "order",
        r#"{"customer":"Ada","item":"lamp","quantity":2}"#,
    ];
    for folder in [dev.folder.path(), &below] {
        let started = dev.run_in(folder, &start);
        assert_eq!(started.status.code(), Some(0), "{}", text(&started.stderr));
    }
    // ONWARD_TOKEN takes precedence, and elsewhere there is no token to find.
    let mut command = onward(&["ls"]);
    command
        .current_dir(dev.folder.path())
        .env("ONWARD_SERVER", dev.server.url())
        .env("ONWARD_TOKEN", "onward_other");
    assert_eq!(command.output().unwrap().status.code(), Some(2));
    let elsewhere = tempfile::tempdir().unwrap();
    let refused = dev.run_in(elsewhere.path(), &["ls"]);
    assert!(
        text(&refused.stderr).contains(".onward/token"),
        "{}",
        text(&refused.stderr)
    );
    // A token is sent only to the server that it belongs to.
    let other = DevServer::start(&[]);
    let mismatched = other.run_in(dev.folder.path(), &["ls"]);
    assert!(
        text(&mismatched.stderr).contains("no token given"),
        "{}",
        text(&mismatched.stderr)
    );
}

#[test]
fn the_token_survives_a_restart_and_only_this_user_can_read_the_files() {
    let dev = DevServer::start(&[]);
    let path = |name: &str| dev.folder.path().join(".onward").join(name);
    assert_eq!(mode(&path("")), 0o700);
    for name in ["token", "onward.db", "onward.db-wal", "onward.db-shm"] {
        assert_eq!(mode(&path(name)), 0o600, "{name}");
    }
    dev.server.signal("TERM");
    let DevServer {
        mut server,
        token,
        folder,
    } = dev;
    server.child.wait().unwrap();
    // A token that others could read is replaced, and a folder of an earlier version is closed.
    let again = DevServer::serve(folder.path(), &[]);
    assert_eq!(
        again.send_request("GET /v1/functions", &token, "").status,
        200
    );
    drop(again);
    let token_file = folder.path().join(".onward/token");
    std::fs::set_permissions(&token_file, Permissions::from_mode(0o644)).unwrap();
    std::fs::set_permissions(folder.path().join(".onward"), Permissions::from_mode(0o755)).unwrap();
    let renewed = DevServer::serve(folder.path(), &[]);
    let leaked = renewed.send_request("GET /v1/functions", &token, "");
    assert_eq!(leaked.code(), "unauthenticated");
    assert_eq!(mode(&token_file), 0o600);
    assert_eq!(mode(&folder.path().join(".onward")), 0o700);
}

/// Sends a request with exactly these headers, besides the token.
fn send_from_browser(server: &Server, request: &str, token: &str, headers: &str) -> HttpResponse {
    server.send_raw(&format!(
        "{request} HTTP/1.1\r\nconnection: close\r\nauthorization: Bearer {token}\r\n{headers}\r\n"
    ))
}

#[test]
fn a_server_on_loopback_refuses_web_pages_of_other_sites() {
    let dev = DevServer::start(&["--allowed-host", "onward.test"]);
    let fixture = WorkflowStoreFixture::sqlite();
    let engineer = create_token(&fixture, "engineer", &[]);
    let serve = Server::start(&fixture, &["--allowed-host", "onward.test"]);
    for (server, token) in [(&dev.server, &dev.token), (&serve, &engineer)] {
        let port = server.address.rsplit_once(':').unwrap().1;
        let own_page = format!("host: localhost:{port}\r\norigin: http://localhost:{port}\r\n");
        for (headers, status) in [
            ("host: evil.example:7512\r\n", 421),
            ("", 400),
            ("host: localhost\r\n", 200),
            ("host: 127.0.0.1:1\r\n", 200),
            ("host: [::1]:7400\r\n", 200),
            ("host: onward.test\r\n", 200),
            (&*own_page, 200),
            (
                "host: localhost\r\norigin: http://evil.example:8899\r\n",
                403,
            ),
            ("host: localhost\r\norigin: http://localhost:3000\r\n", 403),
            ("host: localhost\r\norigin: null\r\n", 403),
            ("host: localhost\r\nsec-fetch-site: cross-site\r\n", 403),
            ("host: localhost\r\nsec-fetch-site: same-site\r\n", 403),
            ("host: localhost\r\nsec-fetch-site: same-origin\r\n", 200),
        ] {
            for request in ["GET /v1/functions", "GET /metrics"] {
                let response = send_from_browser(server, request, token, headers);
                let is_refused = |status: u16| matches!(status, 400 | 421);
                assert!(
                    response.status == status || is_refused(response.status) && headers.is_empty(),
                    "{request} {headers}: {}",
                    response.body
                );
                if status == 421 {
                    assert_eq!(response.code(), "misdirected_request");
                    let detail = response.json()["detail"].to_string();
                    assert!(detail.contains("--allowed-host"), "{detail}");
                }
                if status == 403 {
                    assert_eq!(response.code(), "cross_site_request");
                }
            }
        }
        // The one type of request that a page could send without asking the server first.
        let typed = |media: &str| {
            let headers = format!("content-type: {media}\r\n");
            server.send_request_with("POST /v1/components", token, &headers, "x")
        };
        assert_eq!(typed("text/plain").code(), "unsupported_media_type");
        assert_ne!(typed("application/wasm").status, 415);
    }
}

/// A campaign whose provider is defined inline.
fn inline_campaign(provider: &Value) -> String {
    json!({ "campaign": {
        "campaign": "c", "channel": "email", "provider": provider,
        "audience": { "file": "people.csv" },
        "template": { "from": "a@b.example", "subject": "s", "text": "t" },
    } })
    .to_string()
}

#[test]
fn a_campaign_defines_a_provider_only_if_the_development_server_allows_it() {
    let target = tempfile::tempdir().unwrap();
    let made = target.path().join("made");
    let campaign = inline_campaign(&json!({ "folder": { "path": made } }));
    let checked = |args: &[&str]| {
        let dev = DevServer::start(args);
        let response = dev.send_json("POST /v1/campaigns/check", "", &campaign);
        assert_eq!(response.status, 200, "{}", response.body);
        response.body
    };
    let refused = checked(&[]);
    assert!(refused.contains("--allow-inline-providers"), "{refused}");
    let allowed = checked(&["--allow-inline-providers"]);
    assert!(allowed.contains("its configuration is valid"), "{allowed}");
    assert!(!made.exists(), "a check creates no folder");
}

#[test]
fn a_program_that_reads_the_variables_reaches_the_development_server() {
    let dev = DevServer::start(&[]);
    let program = "from onward import Client\nwith Client() as client: print(client.start('order', {'customer': 'Ada', 'item': 'lamp', 'quantity': 2}))\n";
    let python = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sdk/python");
    let run = |token: &str| {
        let mut command = Command::new("python3");
        command
            .args(["-c", program])
            .env("PYTHONPATH", python)
            .env("ONWARD_SERVER", dev.server.url())
            .env("ONWARD_TOKEN", token);
        command.output().unwrap()
    };
    let started = run(&dev.token);
    assert!(started.status.success(), "{}", text(&started.stderr));
    assert!(!run("").status.success());
}
