//! The SDKs against a real server, and the server against its OpenAPI description.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::http_server::{Server, create_token};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A server with workflows that need workers.
pub(crate) struct WorkerServer {
    pub(crate) server: Server,
    pub(crate) admin: String,
    pub(crate) worker: String,
    _place: WorkflowStoreFixture,
}

impl WorkerServer {
    pub(crate) fn start() -> Self {
        let fixture = WorkflowStoreFixture::sqlite();
        let component = root().join("examples/workflows/built/remote.wasm");
        let deployed = fixture.run(&["deploy", component.to_str().unwrap()]);
        assert_eq!(
            deployed.status.code(),
            Some(0),
            "{}",
            text(&deployed.stderr)
        );
        let (admin, worker) = (
            create_token(&fixture, "admin", &[]),
            create_token(&fixture, "worker", &[]),
        );
        let server = Server::start(&fixture, &[]);
        Self {
            server,
            admin,
            worker,
            _place: fixture,
        }
    }

    /// Runs a program that reads the server address from its environment; it must succeed.
    fn run_program(&self, folder: &str, program: &str, args: &[&str]) -> String {
        let mut command = Command::new(program);
        command.args(args).current_dir(root().join(folder));
        command
            .env("ONWARD_SERVER", self.server.url())
            .env("ONWARD_TOKEN", &self.admin);
        command
            .env("ONWARD_WORKER_TOKEN", &self.worker)
            .env("PYTHONPATH", root().join("sdk/python"));
        let missing = |error| {
            panic!("{program} is needed ({error}): cargo xtask test --only tools installs it")
        };
        let output = command.output().unwrap_or_else(missing);
        let (out, error) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "{program} {args:?} in {folder}:\n{out}\n{error}"
        );
        format!("{out}{error}")
    }
}

#[test]
fn workers_in_python_pass_their_scenarios_and_greet() {
    let served = WorkerServer::start();
    let output = served.run_program("sdk/python", "python3", &["-m", "unittest"]);
    assert!(
        output.contains("OK") && !output.contains("skipped"),
        "{output}"
    );
    let greeted = served.run_program("examples/workers", "python3", &["greet.py"]);
    assert_eq!(
        greeted.lines().next(),
        Some("hello Ada, from Python at attempt 1"),
        "{greeted}"
    );
}

#[test]
fn workers_in_typescript_pass_their_scenarios_and_greet() {
    let served = WorkerServer::start();
    served.run_program("sdk/ts", "npm", &["ci", "--no-audit", "--no-fund"]);
    let output = served.run_program("sdk/ts", "npm", &["test"]);
    assert!(
        output.contains("# fail 0") && output.contains("# skipped 0"),
        "{output}"
    );
    let greeted = served.run_program("sdk/ts", "node", &["dist/examples/greet.js"]);
    assert_eq!(
        greeted.lines().next(),
        Some("hello Ada, from TypeScript at attempt 1"),
        "{greeted}"
    );
}

#[test]
fn workers_in_rust_greet() {
    let served = WorkerServer::start();
    // Cargo builds the examples of the workspace with its tests, in the folder beside its programs.
    let program = Path::new(env!("CARGO_BIN_EXE_onward")).with_file_name("examples/greet");
    assert!(
        program.exists(),
        "{} is needed: cargo build -p onward-worker --example greet",
        program.display()
    );
    let greeted = served.run_program(".", program.to_str().unwrap(), &[]);
    assert!(
        greeted.contains("hello Ada, from Rust at attempt 1"),
        "{greeted}"
    );
}

/// Operations that schemathesis cannot test: an endless response, and a binary body.
const EXCLUDED_OPERATIONS: [&str; 2] = ["followExecution", "deployComponent"];

#[test]
fn the_server_conforms_to_its_openapi_description() {
    let served = WorkerServer::start();
    let started = served.server.send_request(
        "POST /v1/executions",
        &served.admin,
        r#"{"function":"listen","input":"go"}"#,
    );
    let execution = started.json()["execution"].as_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let existing = folder.path().join("existing.toml");
    std::fs::write(
        &existing,
        format!("[parameters]\n\"path.execution\" = \"{execution}\"\n"),
    )
    .unwrap();
    let missing = folder.path().join("missing.toml");
    std::fs::write(&missing, "").unwrap();
    // Once with resources that do not exist, and once with an existing execution.
    for settings in [missing, existing] {
        served.assert_conforms(&settings);
    }
}

impl WorkerServer {
    fn assert_conforms(&self, settings: &Path) {
        let installed = root().join("target/schemathesis/bin/schemathesis");
        let url = format!("{}/openapi.json", self.server.url());
        let bearer = format!("Authorization: Bearer {}", self.admin);
        let mut args = vec![
            "--config-file",
            settings.to_str().unwrap(),
            "run",
            &url,
            "--header",
            &bearer,
        ];
        args.extend([
            "--max-examples",
            "20",
            "--seed",
            "1",
            "--no-color",
            "--warnings",
            "off",
        ]);
        // A well-formed request may still be rejected, for example because a name is unknown.
        args.extend([
            "--checks",
            "all",
            "--exclude-checks",
            "positive_data_acceptance",
            "--continue-on-failure",
        ]);
        EXCLUDED_OPERATIONS
            .iter()
            .for_each(|operation| args.extend(["--exclude-operation-id", operation]));
        let output = self.run_program("target", installed.to_str().unwrap(), &args);
        assert!(output.contains("No issues found"), "{output}");
    }
}
