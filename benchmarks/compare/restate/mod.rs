//! Restate: the server and a Node service, from npm, set up as in its documentation.
//!
//! Both are installed under target/, which also contains the data: in a memory file system, syncing
//! would cost nothing.

mod settings;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use serde_json::json;

use crate::http::BenchHttpRequest;
use crate::npm::NpmPackages;
use crate::process::{EngineProcess, bound_to_this, clean, printed};
use crate::restate::settings::RestateSettings;
use crate::side::{DataFolder, EngineFacts, EngineOptions, RunningEngine, free_addresses};
use crate::workload::ComparedWork;

const SOURCES: &str = "benchmarks/compare/restate";
const FOLDER: &str = "target/compare/restate";
const SETTINGS: &str = "server.toml";
const SERVICE: &str = "service.mjs";

/// Restate with its service. `processes` is first, because it is dropped before the data is
/// removed.
pub(crate) struct Restate {
    processes: [EngineProcess; 2],
    _data: DataFolder,
    ingress: SocketAddr,
}

struct RestatePrograms {
    packages: NpmPackages,
    partitions: usize,
}

pub(crate) fn install(root: &Path, choices: EngineOptions) -> Result<EngineFacts> {
    facts(&RestatePrograms::of(
        NpmPackages::install(root, SOURCES, FOLDER, &[SETTINGS, SERVICE])?,
        choices,
    )?)
}

pub(crate) fn start(root: &Path, choices: EngineOptions) -> Result<Restate> {
    let programs = RestatePrograms::of(NpmPackages::at(root, FOLDER)?, choices)?;
    let folder = &programs.packages.folder;
    let [ingress, admin, fabric, service] = free_addresses()?;
    let data = DataFolder::create(folder.join("data"))?;
    let mut command = programs.server_with_settings(bound_to_this);
    command
        .arg("--base-dir")
        .arg(data.path())
        .env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string())
        .env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string())
        .env("RESTATE_BIND_ADDRESS", fabric.to_string());
    let mut server = EngineProcess::start("server", &mut command, folder)?;
    let service_process = EngineProcess::start("service", &mut programs.service(service), folder)?;
    let deployment = json!({ "uri": format!("http://{service}") });
    server.wait_until_successful(&BenchHttpRequest::post(admin, "/deployments", &deployment))?;
    server.wait_until_successful(&request(ingress, ComparedWork::Start))?;
    Ok(Restate {
        processes: [server, service_process],
        _data: data,
        ingress,
    })
}

impl RunningEngine for Restate {
    fn request(&self, work: ComparedWork) -> BenchHttpRequest {
        request(self.ingress, work)
    }

    fn processes(&self) -> &[EngineProcess] {
        &self.processes
    }
}

fn facts(programs: &RestatePrograms) -> Result<EngineFacts> {
    let server = printed(programs.server(clean).arg("--version"))?;
    let node = printed(programs.packages.node(clean).arg("--version"))?;
    let sdk = programs.packages.version("@restatedev/restate-sdk")?;
    let default = RestateSettings::read(&printed(programs.server(clean).arg("--dump-config"))?)?;
    let used = RestateSettings::read(&printed(
        programs.server_with_settings(clean).arg("--dump-config"),
    )?)?;
    Ok(EngineFacts {
        versions: format!("{server}, its TypeScript SDK {sdk}, Node {node}"),
        settings: used.partitions_with_default(&default),
        durability: used.durability_with_default(&default)?,
    })
}

fn request(ingress: SocketAddr, work: ComparedWork) -> BenchHttpRequest {
    BenchHttpRequest::post(ingress, &format!("/compare/{}", work.name()), &work.input())
}

impl RestatePrograms {
    fn of(packages: NpmPackages, choices: EngineOptions) -> Result<Self> {
        let cores = thread::available_parallelism().context("cannot count the cores")?;
        let partitions = choices.partitions.map_or(cores.get(), usize::from);
        Ok(Self {
            packages,
            partitions,
        })
    }

    /// The server binary; the wrapper script of npm would be an additional process.
    fn server(&self, how: fn(&Path) -> Command) -> Command {
        let package = format!(
            "node_modules/@restatedev/restate-server-linux-{}",
            self.packages.architecture
        );
        let mut command = how(&self
            .packages
            .folder
            .join(package)
            .join("bin/restate-server"));
        command.current_dir(&self.packages.folder);
        command
    }

    /// The server with one partition per core by default: each partition is a thread, and the high
    /// default of Restate means small batches on a small machine.
    fn server_with_settings(&self, how: fn(&Path) -> Command) -> Command {
        let mut command = self.server(how);
        command.args([
            "--config-file",
            SETTINGS,
            "--default-num-partitions",
            &self.partitions.to_string(),
        ]);
        command
    }

    fn service(&self, address: SocketAddr) -> Command {
        let mut command = self.packages.node(bound_to_this);
        command
            .arg(SERVICE)
            .env("PORT", address.port().to_string())
            .env("NODE_ENV", "production")
            .env("RESTATE_LOGGING", "WARN");
        command
    }
}
