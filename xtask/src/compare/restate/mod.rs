//! Restate: its server and a service in Node, as its own documentation has them, from npm.
//!
//! Both are installed under target/, and so is their data: a folder in memory would make syncing free.

mod settings;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::compare::http::Request;
use crate::compare::process::{Process, bound_to_this, clean, printed};
use crate::compare::restate::settings::Settings;
use crate::compare::side::{Choices, DataFolder, Facts, Running, free_addresses};
use crate::compare::workload::Work;
use crate::run::Run;
use crate::tools::{self, NODE, NPM};

const SOURCES: &str = "xtask/src/compare/restate";
const FOLDER: &str = "target/compare/restate";
const SETTINGS: &str = "server.toml";
const SERVICE: &str = "service.mjs";
/// What is copied to where it is installed and run: Node looks for modules beside the file that wants them.
const FILES: [&str; 5] = [".npmrc", "package.json", "package-lock.json", SETTINGS, SERVICE];

/// Restate with its service. The processes come first, because they are to end before their data goes.
pub(crate) struct Restate {
    processes: [Process; 2],
    _data: DataFolder,
    ingress: SocketAddr,
}

/// Programs that npm has installed, for this kind of machine.
struct Programs {
    folder: PathBuf,
    architecture: &'static str,
    partitions: usize,
}

pub(crate) fn install(run: &Run, choices: Choices) -> Result<Facts> {
    tools::ensure(run, &[&NODE, &NPM])?;
    let folder = run.root.join(FOLDER);
    fs::create_dir_all(&folder).with_context(|| format!("cannot make the folder {FOLDER}"))?;
    for name in FILES {
        copy_if_changed(&run.root.join(SOURCES).join(name), &folder.join(name))?;
    }
    tools::ensure_node_modules(run, FOLDER)?;
    facts(&Programs::of(run, choices)?)
}

pub(crate) fn start(run: &Run, choices: Choices) -> Result<Restate> {
    let programs = Programs::of(run, choices)?;
    let [ingress, admin, fabric, service] = free_addresses()?;
    let data = DataFolder::make(programs.folder.join("data"))?;
    let mut command = programs.server_with_settings(bound_to_this);
    command
        .arg("--base-dir")
        .arg(data.path())
        .env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string())
        .env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string())
        .env("RESTATE_BIND_ADDRESS", fabric.to_string());
    let mut server = Process::start("server", &mut command, &programs.folder)?;
    let service_process = Process::start("service", &mut programs.service(service), &programs.folder)?;
    let deployment = json!({ "uri": format!("http://{service}") });
    server.wait_until_it_answers(&Request::post(admin, "/deployments", &deployment))?;
    server.wait_until_it_answers(&request(ingress, Work::Start))?;
    Ok(Restate { processes: [server, service_process], _data: data, ingress })
}

impl Running for Restate {
    fn request(&self, work: Work) -> Request {
        request(self.ingress, work)
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }
}

fn facts(programs: &Programs) -> Result<Facts> {
    let server = printed(programs.server(clean).arg("--version"))?;
    let node = printed(programs.node(clean).arg("--version"))?;
    let manifest = fs::read_to_string(programs.folder.join("package.json")).context("cannot read package.json")?;
    let manifest: Value = serde_json::from_str(&manifest).context("package.json is not JSON")?;
    let sdk = manifest["dependencies"]["@restatedev/restate-sdk"].as_str().context("package.json names no SDK")?;
    let default = Settings::read(&printed(programs.server(clean).arg("--dump-config"))?)?;
    let used = Settings::read(&printed(programs.server_with_settings(clean).arg("--dump-config"))?)?;
    Ok(Facts {
        versions: format!("{server}, its TypeScript SDK {sdk}, Node {node}"),
        settings: used.partitions_beside(&default),
        durability: used.durability_beside(&default)?,
    })
}

/// Keeps the time of what is the same: modules are installed again when the lock file is newer.
fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let wanted = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|present| present == wanted) {
        return Ok(());
    }
    fs::write(to, wanted).with_context(|| format!("cannot write {}", to.display()))
}

fn request(ingress: SocketAddr, work: Work) -> Request {
    Request::post(ingress, &format!("/compare/{}", work.name()), &work.input())
}

impl Programs {
    fn of(run: &Run, choices: Choices) -> Result<Self> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => bail!("no server of Restate is made for {other}"),
        };
        ensure!(cfg!(target_os = "linux"), "what a process uses is read from /proc: this needs Linux");
        let cores = thread::available_parallelism().context("cannot count the cores")?;
        let partitions = choices.partitions.map_or(cores.get(), usize::from);
        Ok(Self { folder: run.root.join(FOLDER), architecture, partitions })
    }

    /// The server itself: the script that npm puts before it would be one more process.
    fn server(&self, how: fn(&Path) -> Command) -> Command {
        let package = format!("node_modules/@restatedev/restate-server-linux-{}", self.architecture);
        let mut command = how(&self.folder.join(package).join("bin/restate-server"));
        command.current_dir(&self.folder);
        command
    }

    /// With a partition a core unless told: each is one thread, and on a small machine the default of many means small batches.
    fn server_with_settings(&self, how: fn(&Path) -> Command) -> Command {
        let mut command = self.server(how);
        command.args(["--config-file", SETTINGS, "--default-num-partitions", &self.partitions.to_string()]);
        command
    }

    fn node(&self, how: fn(&Path) -> Command) -> Command {
        let package = format!("node_modules/node-linux-{}", self.architecture);
        let mut command = how(&self.folder.join(package).join("bin/node"));
        command.current_dir(&self.folder);
        command
    }

    fn service(&self, address: SocketAddr) -> Command {
        let mut command = self.node(bound_to_this);
        command
            .arg(SERVICE)
            .env("PORT", address.port().to_string())
            .env("NODE_ENV", "production")
            .env("RESTATE_LOGGING", "WARN");
        command
    }
}
