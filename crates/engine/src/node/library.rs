//! Which names stand for which code, kept in memory: the core of a shard cannot wait for a database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use onward_execution::Guest;
use onward_journal::{ComponentDigest, Text};
use onward_store::tables::{Component, Function};
use onward_store::{Error, Field as _, Key, Records as _, Scan, Store};

use super::tasks::Native;
use super::{Code, Task};
use crate::client::{FunctionInfo, FunctionKind};
use crate::shard::{Caller, Entry, Functions, Hosts, Resolved, Unready, owner};

/// Bytes of a name that tasks for workers can be found by.
const NAME_MAX: usize = 512;

/// Code and names.
pub struct Library {
    pub(super) code: Arc<dyn Code>,
    pub(super) native: Native,
    known: RwLock<Known>,
    /// Components that were said to be of no use.
    broken: Mutex<BTreeSet<ComponentDigest>>,
    has_workers: bool,
}

#[derive(Default)]
struct Known {
    components: BTreeMap<ComponentDigest, Vec<FunctionInfo>>,
    /// By owner, and by name.
    names: BTreeMap<Text, BTreeMap<Text, Named>>,
}

impl Known {
    fn named(&self, owner: &str, function: &str) -> Option<&Named> {
        self.names.get(owner)?.get(function)
    }
}

/// What a name stands for.
struct Named {
    component: ComponentDigest,
    is_workflow: bool,
    hosts: Hosts,
}

impl Library {
    /// A library that knows the tasks of this process, and runs components on `code`.
    pub fn new(code: Arc<dyn Code>, native: Native) -> Self {
        Self { code, native, known: RwLock::default(), broken: Mutex::default(), has_workers: false }
    }

    /// The same, where workers may perform what nobody here knows: such a task waits for one that asks for it.
    #[must_use]
    pub fn with_workers(self) -> Self {
        Self { has_workers: true, ..self }
    }

    /// Makes sure that a component can be run. Tells whether there is such a component.
    pub async fn ensure(&self, store: &dyn Store, digest: ComponentDigest) -> Result<bool, Error> {
        if self.code.is_loaded(digest) && self.read(|known| known.components.contains_key(&digest)) {
            return Ok(true);
        }
        let stored: Option<(Component, u64)> = store.get(Key(vec![digest.to_value()])).await?;
        let Some((component, _)) = stored else { return Ok(false) };
        let functions = self.code.load(&component.code).await.map_err(Error::Corrupt)?;
        self.write(|known| known.components.insert(digest, functions));
        Ok(true)
    }

    /// Learns which names stand for what now, and makes their components ready. Returns those that stood for nothing before.
    pub async fn refresh(&self, store: &dyn Store) -> Result<Vec<Function>, Error> {
        let mut named = Vec::new();
        let mut names: BTreeMap<Text, BTreeMap<Text, Named>> = BTreeMap::new();
        let scan = Scan::all::<Function>();
        let page = scan.limit.min(store.policy().limits.page_max);
        let mut next = Some(scan);
        while let Some(scan) = next.take() {
            let rows: Vec<(Function, u64)> = store.list(scan.clone()).await?;
            next = rows.last().filter(|_| rows.len() >= page).map(|(last, _)| scan.after(last));
            for (row, _) in rows {
                let is_workflow = &*row.kind == FunctionKind::Workflow.as_str();
                let hosts: Vec<&str> = serde_json::from_str(&row.hosts).map_err(Error::corrupt)?;
                let hosts = hosts.into_iter().map(Text::from).collect();
                let owner = owner(&row.tenant_id, &row.project_id, &row.environment_id);
                let stands_for = Named { component: row.component_digest, is_workflow, hosts };
                names.entry(owner).or_default().insert(row.name.clone(), stands_for);
                named.push(row);
            }
        }
        let mut new: BTreeSet<ComponentDigest> =
            names.values().flat_map(BTreeMap::values).map(|named| named.component).collect();
        // Those that are known may have left memory for others, and are loaded when they are needed.
        self.read(|known| new.retain(|digest| !known.components.contains_key(digest) && !self.is_broken(*digest)));
        for digest in new {
            match self.ensure(store, digest).await {
                Ok(_) => {}
                // Only those who use it are concerned; the others go on.
                Err(error @ Error::Corrupt(_)) => {
                    self.broken.lock().unwrap_or_else(PoisonError::into_inner).insert(digest);
                    tracing::error!(%digest, %error, "a component cannot be run");
                }
                Err(error) => return Err(error),
            }
        }
        let is_new = |row: &Function| {
            let owner = owner(&row.tenant_id, &row.project_id, &row.environment_id);
            self.read(|known| known.named(&owner, &row.name).is_none())
        };
        named.retain(is_new);
        self.write(|known| known.names = names);
        Ok(named)
    }

    fn is_broken(&self, digest: ComponentDigest) -> bool {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner).contains(&digest)
    }

    fn read<T>(&self, read: impl FnOnce(&Known) -> T) -> T {
        read(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write<T>(&self, write: impl FnOnce(&mut Known) -> T) {
        drop(write(&mut self.known.write().unwrap_or_else(PoisonError::into_inner)));
    }

    /// The task of this process with that name.
    pub(super) fn native(&self, name: &str) -> Option<Arc<dyn Task>> {
        self.native.get(name)
    }
}

impl Functions for Library {
    fn guest(&self, entry: &Entry<'_>) -> Result<Box<dyn Guest>, Unready> {
        self.code.guest(entry)
    }

    fn room(&self) -> usize {
        self.code.room()
    }

    /// What the caller's own component has comes first: it was built with it. Then what this process performs, then what
    /// the name stands for in the caller's environment, then whatever workers may ask for.
    fn resolve(&self, caller: Caller<'_>, function: &str) -> Resolved {
        let digest = caller.component;
        let own =
            |known: &Known| known.components.get(&digest)?.iter().find(|it| it.name == function).map(|it| it.kind);
        if let Some(kind) = self.read(own) {
            return if kind == FunctionKind::Workflow { Resolved::Workflow(digest) } else { Resolved::Task(digest) };
        }
        if self.native.get(function).is_some() {
            return Resolved::Native;
        }
        self.read(|known| match known.named(caller.owner, function) {
            Some(named) if named.is_workflow => Resolved::Workflow(named.component),
            Some(named) => Resolved::Task(named.component),
            None if self.has_workers && function.len() <= NAME_MAX => Resolved::Worker,
            None => Resolved::Unknown,
        })
    }

    /// What was deployed last decides, also for executions that keep older code: a host can be taken back.
    fn hosts(&self, caller: Caller<'_>, function: &str) -> Hosts {
        self.read(|known| known.named(caller.owner, function).map(|named| Arc::clone(&named.hosts))).unwrap_or_default()
    }
}
