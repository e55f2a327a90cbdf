//! Clients in other languages against the real server, and the server against its own description.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Server, token};
use crate::text;
use crate::work::Place;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// A server with the workflows that workers serve.
pub(crate) struct Served {
    pub(crate) server: Server,
    pub(crate) admin: String,
    pub(crate) worker: String,
    _place: Place,
}

impl Served {
    pub(crate) fn new() -> Self {
        let place = Place::sqlite();
        let component = root().join("examples/workflows/built/remote.wasm");
        let deployed = place.run(&["deploy", component.to_str().unwrap()]);
        assert_eq!(
            deployed.status.code(),
            Some(0),
            "{}",
            text(&deployed.stderr)
        );
        let (admin, worker) = (token(&place, "admin", &[]), token(&place, "worker", &[]));
        let server = Server::of(&place, &[]);
        Self {
            server,
            admin,
            worker,
            _place: place,
        }
    }

    /// Runs a program that finds the server in its environment.
    fn expect(&self, folder: &str, program: &str, args: &[&str]) -> String {
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
    let served = Served::new();
    let said = served.expect("sdk/python", "python3", &["-m", "unittest"]);
    assert!(said.contains("OK") && !said.contains("skipped"), "{said}");
    let greeted = served.expect("examples/workers", "python3", &["greet.py"]);
    assert_eq!(
        greeted.lines().next(),
        Some("hello Ada, from Python at attempt 1"),
        "{greeted}"
    );
}

#[test]
fn workers_in_typescript_pass_their_scenarios_and_greet() {
    let served = Served::new();
    served.expect("sdk/ts", "npm", &["ci", "--no-audit", "--no-fund"]);
    let said = served.expect("sdk/ts", "npm", &["test"]);
    assert!(
        said.contains("# fail 0") && said.contains("# skipped 0"),
        "{said}"
    );
    let greeted = served.expect("sdk/ts", "node", &["dist/examples/greet.js"]);
    assert_eq!(
        greeted.lines().next(),
        Some("hello Ada, from TypeScript at attempt 1"),
        "{greeted}"
    );
}

#[test]
fn workers_in_rust_greet() {
    let served = Served::new();
    let run = [
        "run",
        "--quiet",
        "--locked",
        "-p",
        "onward-worker",
        "--example",
        "greet",
    ];
    let greeted = served.expect(".", env!("CARGO"), &run);
    assert!(
        greeted.contains("hello Ada, from Rust at attempt 1"),
        "{greeted}"
    );
}

/// What cannot be asked like this: an answer without end, and a body that is a component.
const LEFT_OUT: [&str; 2] = ["followExecution", "deployComponent"];

#[test]
fn the_server_keeps_to_its_description_whatever_it_is_asked() {
    let served = Served::new();
    let started = served.server.ask(
        "POST /v1/executions",
        &served.admin,
        r#"{"function":"listen","input":"go"}"#,
    );
    let execution = started.json()["execution"].as_str().unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let there = folder.path().join("there.toml");
    std::fs::write(
        &there,
        format!("[parameters]\n\"path.execution\" = \"{execution}\"\n"),
    )
    .unwrap();
    let nowhere = folder.path().join("nowhere.toml");
    std::fs::write(&nowhere, "").unwrap();
    // Once about things that are not there, and once about one that is.
    for settings in [nowhere, there] {
        served.expect_description(&settings);
    }
}

impl Served {
    fn expect_description(&self, settings: &Path) {
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
        // That a request makes sense is more than its shape: a name may stand for nothing.
        args.extend([
            "--checks",
            "all",
            "--exclude-checks",
            "positive_data_acceptance",
            "--continue-on-failure",
        ]);
        LEFT_OUT
            .iter()
            .for_each(|operation| args.extend(["--exclude-operation-id", operation]));
        let said = self.expect("target", installed.to_str().unwrap(), &args);
        assert!(said.contains("No issues found"), "{said}");
    }
}
