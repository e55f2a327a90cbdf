//! The compared engines. To add one, add a variant here and a module that starts it; workloads,
//! driver and report are the same for all.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;
use onward_benchmarks::workloads::BenchTaskRunner;

use crate::http::BenchHttpRequest;
use crate::process::EngineProcess;
use crate::workload::ComparedWork;
use crate::{onward, restate};

/// A compared engine, or a variant of one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum ComparedEngine {
    /// Onward, with tasks without network access.
    Onward,
    /// Onward, with tasks that may send requests.
    OnwardOutgoing,
    /// Onward, with tasks in a separate worker process.
    OnwardWorker,
    Restate,
}

/// Options of the comparison that apply to an engine.
#[derive(Clone, Copy)]
pub(crate) struct EngineOptions {
    /// Number of partitions of Restate; default: one per core.
    pub(crate) partitions: Option<u16>,
}

/// Facts about an engine that are needed to interpret its figures.
pub(crate) struct EngineFacts {
    /// The version of each component.
    pub(crate) versions: String,
    /// The settings that differ from the defaults.
    pub(crate) settings: String,
    /// What is on disk when a step counts as completed.
    pub(crate) durability: String,
}

/// A running engine. Dropping it kills its processes and removes its data.
pub(crate) trait RunningEngine {
    /// A request that invokes this work and returns its result.
    fn request(&self, work: ComparedWork) -> BenchHttpRequest;

    /// The processes of the engine, without the load driver.
    fn processes(&self) -> &[EngineProcess];
}

impl ComparedEngine {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Onward => "Onward",
            Self::OnwardOutgoing => "Onward, outgoing",
            Self::OnwardWorker => "Onward, worker",
            Self::Restate => "Restate",
        }
    }

    /// Builds or installs the engine.
    pub(crate) fn install(self, root: &Path, choices: EngineOptions) -> Result<EngineFacts> {
        match self {
            Self::Onward => onward::install(root, BenchTaskRunner::Wasm),
            Self::OnwardOutgoing => onward::install(root, BenchTaskRunner::Outgoing),
            Self::OnwardWorker => onward::install(root, BenchTaskRunner::Worker),
            Self::Restate => restate::install(root, choices),
        }
    }

    /// Starts the engine without any data.
    pub(crate) fn start(
        self,
        root: &Path,
        choices: EngineOptions,
    ) -> Result<Box<dyn RunningEngine>> {
        match self {
            Self::Onward => Ok(Box::new(onward::start(root, BenchTaskRunner::Wasm)?)),
            Self::OnwardOutgoing => Ok(Box::new(onward::start(root, BenchTaskRunner::Outgoing)?)),
            Self::OnwardWorker => Ok(Box::new(onward::start(root, BenchTaskRunner::Worker)?)),
            Self::Restate => Ok(Box::new(restate::start(root, choices)?)),
        }
    }
}

/// A folder that is empty when created, and removed on drop.
pub(crate) struct DataFolder(PathBuf);

impl DataFolder {
    /// Creates the folder. Removes what an earlier, killed run left in it.
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot empty {}", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // A failure cannot be handled here; the next run removes the folder.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns unused loopback addresses.
pub(crate) fn free_addresses<const COUNT: usize>() -> Result<[SocketAddr; COUNT]> {
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); COUNT];
    // All ports stay bound until the last one is found, so that they differ.
    let mut held = Vec::new();
    for address in &mut addresses {
        let listener = TcpListener::bind(*address).context("cannot find a free port")?;
        *address = listener.local_addr().context("cannot find a free port")?;
        held.push(listener);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{DataFolder, free_addresses};

    #[test]
    fn free_addresses_are_loopback_addresses_and_differ() {
        let [one, other] = free_addresses::<2>().unwrap();
        assert!(one.ip().is_loopback() && other.ip().is_loopback());
        assert_ne!(one.port(), other.port());
    }

    #[test]
    fn a_data_folder_is_empty_when_created_and_removed_on_drop() {
        let path = std::env::temp_dir().join(format!("onward-compare-data-{}", std::process::id()));
        fs::create_dir_all(path.join("left")).unwrap();
        let folder = DataFolder::create(path.clone()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(folder);
        assert!(!path.exists());
    }
}
