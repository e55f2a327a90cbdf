//! Bindings of function names to components, kept in memory because the core of a shard cannot wait
//! for a database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use futures_util::future::join_all;
use onward_base::SharedText;
use onward_execution::{Guest, GuestFunction, GuestFunctionKind};
use onward_journal::ComponentDigest;
use onward_store::tables::{ComponentRow, DeployedFunctionKind, FunctionRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, Store, TableScan};

use super::attempt_runner::NativeTaskRegistry;
use super::{ComponentLoadError, ComponentRuntime, NativeTask};
use crate::shard::{
    AllowedHosts, FunctionCaller, FunctionResolver, GuestEntry, GuestUnavailable, ResolvedFunction,
    owner_key,
};

/// Maximum length in bytes of a function name by which tasks for workers can be looked up.
const NAME_MAX: usize = 512;

/// How long a refresh of the bindings waits for components that are not loaded yet.
const LOAD_AHEAD_TIMEOUT: Duration = Duration::from_secs(2);

/// Registry of components, function names and native tasks.
pub struct FunctionRegistry {
    pub(super) runtime: Arc<dyn ComponentRuntime>,
    pub(super) native_tasks: NativeTaskRegistry,
    index: RwLock<FunctionIndex>,
    /// Components that could not be loaded and were already logged.
    broken_components: Mutex<BTreeSet<ComponentDigest>>,
    has_workers: bool,
}

#[derive(Default)]
struct FunctionIndex {
    components: BTreeMap<ComponentDigest, Vec<GuestFunction>>,
    /// Bindings by owner, then by function name.
    bindings: BTreeMap<SharedText, BTreeMap<SharedText, FunctionBinding>>,
}

impl FunctionIndex {
    fn find_binding(&self, owner: &str, function: &str) -> Option<&FunctionBinding> {
        self.bindings.get(owner)?.get(function)
    }
}

/// The component that a function name is bound to.
struct FunctionBinding {
    component: ComponentDigest,
    kind: GuestFunctionKind,
    hosts: AllowedHosts,
}

impl FunctionRegistry {
    /// Creates a registry with the native tasks of this process; components run on the runtime
    /// `code`.
    pub fn new(code: Arc<dyn ComponentRuntime>, native: NativeTaskRegistry) -> Self {
        Self {
            runtime: code,
            native_tasks: native,
            index: RwLock::default(),
            broken_components: Mutex::default(),
            has_workers: false,
        }
    }

    /// Allows workers: a task of a function that this process does not know is queued until a
    /// worker claims it.
    #[must_use]
    pub fn with_workers(self) -> Self {
        Self {
            has_workers: true,
            ..self
        }
    }

    /// Loads a component unless it is loaded. Returns `false` if the store does not have it.
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
            .map_err(|error| match error {
                ComponentLoadError::TimedOut(_) => Error::Unavailable(error.to_string()),
                _ => Error::corrupt(error),
            })?;
        self.update_index(|known| known.components.insert(digest, functions));
        Ok(true)
    }

    /// Reads the current bindings from the store and loads their components. Returns the functions
    /// that had no binding before.
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
                let hosts: Vec<&str> = serde_json::from_str(&row.hosts).map_err(Error::corrupt)?;
                let hosts = hosts.into_iter().map(SharedText::from).collect();
                let owner = owner_key(&row.tenant_id, &row.project_id, &row.environment_id);
                let binding = FunctionBinding {
                    component: row.component_digest,
                    kind: guest_function_kind(row.kind),
                    hosts,
                };
                names
                    .entry(owner)
                    .or_default()
                    .insert(row.name.clone(), binding);
                named.push(row);
            }
        }
        let mut new: BTreeSet<ComponentDigest> = names
            .values()
            .flat_map(BTreeMap::values)
            .map(|named| named.component)
            .collect();
        // Known components may have been evicted from memory and are loaded again on demand.
        self.with_index(|known| {
            new.retain(|digest| !known.components.contains_key(digest) && !self.is_broken(*digest))
        });
        self.load_components(store, new).await?;
        let is_new = |row: &FunctionRow| {
            let owner = owner_key(&row.tenant_id, &row.project_id, &row.environment_id);
            self.with_index(|known| known.find_binding(&owner, &row.name).is_none())
        };
        named.retain(is_new);
        self.update_index(|known| known.bindings = names);
        Ok(named)
    }

    /// Loads components, but waits only for a while: one that takes long to compile must not delay
    /// the bindings of others. It is loaded when an execution needs it.
    async fn load_components(
        &self,
        store: &dyn Store,
        digests: BTreeSet<ComponentDigest>,
    ) -> Result<(), Error> {
        let loads = digests.into_iter().map(async |digest| {
            let load = self.ensure_loaded(store, digest);
            (digest, tokio::time::timeout(LOAD_AHEAD_TIMEOUT, load).await)
        });
        let mut outcome = Ok(());
        for (digest, loaded) in join_all(loads).await {
            match loaded {
                Err(_) | Ok(Ok(_)) => {}
                // A broken component affects only the executions that use it; all others continue.
                Ok(Err(error @ Error::Corrupt(_))) => {
                    self.broken_components
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .insert(digest);
                    tracing::error!(%digest, %error, "component cannot be loaded: its executions are stuck until it is deployed again");
                }
                Ok(Err(error)) => outcome = Err(error),
            }
        }
        outcome
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

    /// The native task of this process with that name.
    pub(super) fn native_task(&self, name: &str) -> Option<Arc<dyn NativeTask>> {
        self.native_tasks.get(name)
    }
}

const fn guest_function_kind(kind: DeployedFunctionKind) -> GuestFunctionKind {
    match kind {
        DeployedFunctionKind::Workflow => GuestFunctionKind::Workflow,
        DeployedFunctionKind::Task => GuestFunctionKind::Task,
    }
}

const fn resolved_function(
    kind: GuestFunctionKind,
    component: ComponentDigest,
) -> ResolvedFunction {
    match kind {
        GuestFunctionKind::Workflow => ResolvedFunction::Workflow(component),
        GuestFunctionKind::Task => ResolvedFunction::Task(component),
    }
}

impl FunctionResolver for FunctionRegistry {
    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        self.runtime.create_guest(entry)
    }

    fn guest_capacity(&self) -> usize {
        self.runtime.guest_capacity()
    }

    /// Resolution order: the caller's own component, because the caller was built with it; then the
    /// native tasks of this process; then the binding in the caller's environment; then workers.
    fn resolve_function(&self, caller: FunctionCaller<'_>, function: &str) -> ResolvedFunction {
        let digest = caller.component;
        let own = |known: &FunctionIndex| {
            known
                .components
                .get(&digest)?
                .iter()
                .find(|it| &*it.name == function)
                .map(|it| it.kind)
        };
        if let Some(kind) = self.with_index(own) {
            return resolved_function(kind, digest);
        }
        if self.native_tasks.get(function).is_some() {
            return ResolvedFunction::Native;
        }
        self.with_index(|known| match known.find_binding(caller.owner, function) {
            Some(named) => resolved_function(named.kind, named.component),
            None if self.has_workers && function.len() <= NAME_MAX => ResolvedFunction::Worker,
            None => ResolvedFunction::Unknown,
        })
    }

    /// The latest deployment decides, also for executions that run older code, so that access to a
    /// host can be revoked.
    fn allowed_hosts(&self, caller: FunctionCaller<'_>, function: &str) -> AllowedHosts {
        self.with_index(|known| {
            known
                .find_binding(caller.owner, function)
                .map(|named| Arc::clone(&named.hosts))
        })
        .unwrap_or_default()
    }
}
