//! Which names stand for which code, kept in memory: the core of a shard cannot wait for a database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use onward_base::SharedText;
use onward_execution::Guest;
use onward_journal::ComponentDigest;
use onward_store::tables::{ComponentRow, FunctionRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, Store, TableScan};

use super::attempt_runner::NativeTaskRegistry;
use super::{ComponentRuntime, NativeTask};
use crate::client::{FunctionInfo, FunctionKind};
use crate::shard::{
    AllowedHosts, FunctionCaller, FunctionResolver, GuestEntry, GuestUnavailable, ResolvedFunction,
    owner_key,
};

/// Bytes of a name that tasks for workers can be found by.
const NAME_MAX: usize = 512;

/// Code and names.
pub struct FunctionRegistry {
    pub(super) runtime: Arc<dyn ComponentRuntime>,
    pub(super) native_tasks: NativeTaskRegistry,
    index: RwLock<FunctionIndex>,
    /// Components that were said to be of no use.
    broken_components: Mutex<BTreeSet<ComponentDigest>>,
    has_workers: bool,
}

#[derive(Default)]
struct FunctionIndex {
    components: BTreeMap<ComponentDigest, Vec<FunctionInfo>>,
    /// By owner, and by name.
    bindings: BTreeMap<SharedText, BTreeMap<SharedText, FunctionBinding>>,
}

impl FunctionIndex {
    fn find_binding(&self, owner: &str, function: &str) -> Option<&FunctionBinding> {
        self.bindings.get(owner)?.get(function)
    }
}

/// What a name stands for.
struct FunctionBinding {
    component: ComponentDigest,
    is_workflow: bool,
    hosts: AllowedHosts,
}

impl FunctionRegistry {
    /// A library that knows the tasks of this process, and runs components on `code`.
    pub fn new(code: Arc<dyn ComponentRuntime>, native: NativeTaskRegistry) -> Self {
        Self {
            runtime: code,
            native_tasks: native,
            index: RwLock::default(),
            broken_components: Mutex::default(),
            has_workers: false,
        }
    }

    /// The same, where workers may perform what nobody here knows: such a task waits for one that asks for it.
    #[must_use]
    pub fn with_workers(self) -> Self {
        Self {
            has_workers: true,
            ..self
        }
    }

    /// Makes sure that a component can be run. Tells whether there is such a component.
    pub async fn ensure_loaded(
        &self,
        store: &dyn Store,
        digest: ComponentDigest,
    ) -> Result<bool, Error> {
        if self.runtime.is_loaded(digest)
            && self.with_index(|known| known.components.contains_key(&digest))
        {
            return Ok(true);
        }
        let stored: Option<(ComponentRow, u64)> =
            store.read_record(RowKey(vec![digest.to_value()])).await?;
        let Some((component, _)) = stored else {
            return Ok(false);
        };
        let functions = self
            .runtime
            .load_component(&component.code)
            .await
            .map_err(Error::Corrupt)?;
        self.update_index(|known| known.components.insert(digest, functions));
        Ok(true)
    }

    /// Learns which names stand for what now, and makes their components ready. Returns those that stood for nothing before.
    pub async fn refresh_bindings(&self, store: &dyn Store) -> Result<Vec<FunctionRow>, Error> {
        let mut named = Vec::new();
        let mut names: BTreeMap<SharedText, BTreeMap<SharedText, FunctionBinding>> =
            BTreeMap::new();
        let scan = TableScan::all_rows::<FunctionRow>();
        let page = scan.limit.min(store.policy().limits.page_max);
        let mut next = Some(scan);
        while let Some(scan) = next.take() {
            let rows: Vec<(FunctionRow, u64)> = store.list_records(scan.clone()).await?;
            next = rows
                .last()
                .filter(|_| rows.len() >= page)
                .map(|(last, _)| scan.starting_after(last));
            for (row, _) in rows {
                let is_workflow = &*row.kind == FunctionKind::Workflow.as_str();
                let hosts: Vec<&str> = serde_json::from_str(&row.hosts).map_err(Error::corrupt)?;
                let hosts = hosts.into_iter().map(SharedText::from).collect();
                let owner = owner_key(&row.tenant_id, &row.project_id, &row.environment_id);
                let stands_for = FunctionBinding {
                    component: row.component_digest,
                    is_workflow,
                    hosts,
                };
                names
                    .entry(owner)
                    .or_default()
                    .insert(row.name.clone(), stands_for);
                named.push(row);
            }
        }
        let mut new: BTreeSet<ComponentDigest> = names
            .values()
            .flat_map(BTreeMap::values)
            .map(|named| named.component)
            .collect();
        // Those that are known may have left memory for others, and are loaded when they are needed.
        self.with_index(|known| {
            new.retain(|digest| !known.components.contains_key(digest) && !self.is_broken(*digest))
        });
        for digest in new {
            match self.ensure_loaded(store, digest).await {
                Ok(_) => {}
                // Only those who use it are concerned; the others go on.
                Err(error @ Error::Corrupt(_)) => {
                    self.broken_components
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(digest);
                    tracing::error!(%digest, %error, "a component cannot be run");
                }
                Err(error) => return Err(error),
            }
        }
        let is_new = |row: &FunctionRow| {
            let owner = owner_key(&row.tenant_id, &row.project_id, &row.environment_id);
            self.with_index(|known| known.find_binding(&owner, &row.name).is_none())
        };
        named.retain(is_new);
        self.update_index(|known| known.bindings = names);
        Ok(named)
    }

    fn is_broken(&self, digest: ComponentDigest) -> bool {
        self.broken_components
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains(&digest)
    }

    fn with_index<T>(&self, read: impl FnOnce(&FunctionIndex) -> T) -> T {
        read(&self.index.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn update_index<T>(&self, write: impl FnOnce(&mut FunctionIndex) -> T) {
        drop(write(
            &mut self.index.write().unwrap_or_else(PoisonError::into_inner),
        ));
    }

    /// The task of this process with that name.
    pub(super) fn native_task(&self, name: &str) -> Option<Arc<dyn NativeTask>> {
        self.native_tasks.get(name)
    }
}

impl FunctionResolver for FunctionRegistry {
    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        self.runtime.create_guest(entry)
    }

    fn guest_capacity(&self) -> usize {
        self.runtime.guest_capacity()
    }

    /// What the caller's own component has comes first: it was built with it. Then what this process performs, then what
    /// the name stands for in the caller's environment, then whatever workers may ask for.
    fn resolve_function(&self, caller: FunctionCaller<'_>, function: &str) -> ResolvedFunction {
        let digest = caller.component;
        let own = |known: &FunctionIndex| {
            known
                .components
                .get(&digest)?
                .iter()
                .find(|it| it.name == function)
                .map(|it| it.kind)
        };
        if let Some(kind) = self.with_index(own) {
            return if kind == FunctionKind::Workflow {
                ResolvedFunction::Workflow(digest)
            } else {
                ResolvedFunction::Task(digest)
            };
        }
        if self.native_tasks.get(function).is_some() {
            return ResolvedFunction::Native;
        }
        self.with_index(|known| match known.find_binding(caller.owner, function) {
            Some(named) if named.is_workflow => ResolvedFunction::Workflow(named.component),
            Some(named) => ResolvedFunction::Task(named.component),
            None if self.has_workers && function.len() <= NAME_MAX => ResolvedFunction::Worker,
            None => ResolvedFunction::Unknown,
        })
    }

    /// What was deployed last decides, also for executions that keep older code: a host can be taken back.
    fn allowed_hosts(&self, caller: FunctionCaller<'_>, function: &str) -> AllowedHosts {
        self.with_index(|known| {
            known
                .find_binding(caller.owner, function)
                .map(|named| Arc::clone(&named.hosts))
        })
        .unwrap_or_default()
    }
}
