//! Restate: its server and a service in Node, as its own documentation has them, from npm.
//!
//! Both are installed under target/, and so is their data: a folder in memory would make syncing
//! free.

mod settings;

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result};
use serde_json::json;

use crate::compare::http::BenchHttpRequest;
use crate::compare::npm::Packages;
use crate::compare::process::{Process, bound_to_this, clean, printed};
use crate::compare::restate::settings::RestateSettings;
use crate::compare::side::{Choices, DataFolder, Facts, Running, free_addresses};
use crate::compare::workload::Work;
use crate::run::XtaskRun;

const SOURCES: &str = "xtask/src/compare/restate";
const FOLDER: &str = "target/compare/restate";
const SETTINGS: &str = "server.toml";
const SERVICE: &str = "service.mjs";

/// Restate with its service. The processes come first, because they are to end before their data
/// goes.
pub(crate) struct Restate {
    processes: [Process; 2],
    _data: DataFolder,
    ingress: SocketAddr,
}

struct RestatePrograms {
    packages: Packages,
    partitions: usize,
}

pub(crate) fn install(run: &XtaskRun, choices: Choices) -> Result<Facts> {
    facts(&RestatePrograms::of(
        Packages::install(run, SOURCES, FOLDER, &[SETTINGS, SERVICE])?,
        choices,
    )?)
}

pub(crate) fn start(run: &XtaskRun, choices: Choices) -> Result<Restate> {
    let programs = RestatePrograms::of(Packages::at(run, FOLDER)?, choices)?;
    let folder = &programs.packages.folder;
    let [ingress, admin, fabric, service] = free_addresses()?;
    let data = DataFolder::make(folder.join("data"))?;
    let mut command = programs.server_with_settings(bound_to_this);
    command
        .arg("--base-dir")
        .arg(data.path())
        .env("RESTATE_INGRESS__BIND_ADDRESS", ingress.to_string())
        .env("RESTATE_ADMIN__BIND_ADDRESS", admin.to_string())
        .env("RESTATE_BIND_ADDRESS", fabric.to_string());
    let mut server = Process::start("server", &mut command, folder)?;
    let service_process = Process::start("service", &mut programs.service(service), folder)?;
    let deployment = json!({ "uri": format!("http://{service}") });
    server.wait_until_it_answers(&BenchHttpRequest::post(admin, "/deployments", &deployment))?;
    server.wait_until_it_answers(&request(ingress, Work::Start))?;
    Ok(Restate {
        processes: [server, service_process],
        _data: data,
        ingress,
    })
}

impl Running for Restate {
    fn request(&self, work: Work) -> BenchHttpRequest {
        request(self.ingress, work)
    }

    fn processes(&self) -> &[Process] {
        &self.processes
    }
}

fn facts(programs: &RestatePrograms) -> Result<Facts> {
    let server = printed(programs.server(clean).arg("--version"))?;
    let node = printed(programs.packages.node(clean).arg("--version"))?;
    let sdk = programs.packages.version("@restatedev/restate-sdk")?;
    let default = RestateSettings::read(&printed(programs.server(clean).arg("--dump-config"))?)?;
    let used = RestateSettings::read(&printed(
        programs.server_with_settings(clean).arg("--dump-config"),
    )?)?;
    Ok(Facts {
        versions: format!("{server}, its TypeScript SDK {sdk}, Node {node}"),
        settings: used.partitions_beside(&default),
        durability: used.durability_beside(&default)?,
    })
}

fn request(ingress: SocketAddr, work: Work) -> BenchHttpRequest {
    BenchHttpRequest::post(ingress, &format!("/compare/{}", work.name()), &work.input())
}

impl RestatePrograms {
    fn of(packages: Packages, choices: Choices) -> Result<Self> {
        let cores = thread::available_parallelism().context("cannot count the cores")?;
        let partitions = choices.partitions.map_or(cores.get(), usize::from);
        Ok(Self {
            packages,
            partitions,
        })
    }

    /// The server itself: the script that npm puts before it would be one more process.
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

    /// With a partition a core unless told: each is one thread, and on a small machine the default
    /// of many means small batches.
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
