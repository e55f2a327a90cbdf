//! The engines that are compared, and what the comparison has to know about each. Another one is
//! another variant here and a module that starts it; workloads, driver and report are the same for
//! all.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

use crate::compare::http::BenchHttpRequest;
use crate::compare::process::Process;
use crate::compare::workload::Work;
use crate::compare::{onward, restate};
use crate::run::XtaskRun;

/// An engine.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum ComparedEngine {
    /// With tasks that reach nobody.
    Onward,
    /// With tasks that may send requests.
    OnwardOutgoing,
    /// With tasks in a process of their own.
    OnwardWorker,
    Restate,
}

/// What may be chosen for a side.
#[derive(Clone, Copy)]
pub(crate) struct Choices {
    /// How many partitions Restate has; one for each core unless told.
    pub(crate) partitions: Option<u16>,
}

/// What has to stand beside the figures of a side for them to mean something.
pub(crate) struct Facts {
    /// Of each of its parts.
    pub(crate) versions: String,
    /// What was set for it that is not its default.
    pub(crate) settings: String,
    /// What has reached the disk when a step counts as done.
    pub(crate) durability: String,
}

/// A side that answers invocations. Dropping it ends its processes and removes its data.
pub(crate) trait Running {
    /// An invocation of this work that is answered with its result.
    fn request(&self, work: Work) -> BenchHttpRequest;

    /// The processes that do the work; the one that puts the load on is not among them.
    fn processes(&self) -> &[Process];
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

    /// Gets what is needed to start it, which may take a while.
    pub(crate) fn install(self, run: &XtaskRun, choices: Choices) -> Result<Facts> {
        match self {
            Self::Onward => onward::install(run, onward::Tasks::Contained),
            Self::OnwardOutgoing => onward::install(run, onward::Tasks::Outgoing),
            Self::OnwardWorker => onward::install(run, onward::Tasks::Worker),
            Self::Restate => restate::install(run, choices),
        }
    }

    /// Starts it without any data.
    pub(crate) fn start(self, run: &XtaskRun, choices: Choices) -> Result<Box<dyn Running>> {
        match self {
            Self::Onward => Ok(Box::new(onward::start(run, onward::Tasks::Contained)?)),
            Self::OnwardOutgoing => Ok(Box::new(onward::start(run, onward::Tasks::Outgoing)?)),
            Self::OnwardWorker => Ok(Box::new(onward::start(run, onward::Tasks::Worker)?)),
            Self::Restate => Ok(Box::new(restate::start(run, choices)?)),
        }
    }
}

/// A folder that is empty when it is made, and gone when this is dropped.
pub(crate) struct DataFolder(PathBuf);

impl DataFolder {
    /// What a run that was killed left behind is removed first.
    pub(crate) fn make(path: PathBuf) -> Result<Self> {
        if path.exists() {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot empty {}", path.display()))?;
        }
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for DataFolder {
    fn drop(&mut self) {
        // Nothing more can be done about a failure here; the next run empties it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Addresses of this machine that nobody listens on just now.
pub(crate) fn free_addresses<const COUNT: usize>() -> Result<[SocketAddr; COUNT]> {
    let mut addresses = [SocketAddr::from((Ipv4Addr::LOCALHOST, 0)); COUNT];
    // All are held until the last is found, so that no two are the same.
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
    fn free_addresses_are_of_this_machine_and_differ() {
        let [one, other] = free_addresses::<2>().unwrap();
        assert!(one.ip().is_loopback() && other.ip().is_loopback());
        assert_ne!(one.port(), other.port());
    }

    #[test]
    fn a_data_folder_is_empty_at_first_and_gone_at_last() {
        let path = std::env::temp_dir().join(format!("xtask-data-{}", std::process::id()));
        fs::create_dir_all(path.join("left")).unwrap();
        let folder = DataFolder::make(path.clone()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        drop(folder);
        assert!(!path.exists());
    }
}
