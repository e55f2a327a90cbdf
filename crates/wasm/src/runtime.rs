//! The WASM engine, set up so that a guest does the same thing every time, and the pool of instances.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onward_journal::ComponentDigest;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Enabled, Engine, PoolingAllocationConfig, Store};

use crate::cache::Cache;
use crate::component::Component;
use crate::config::Config;
use crate::host::Data;
use crate::load::{self, LoadError};
use crate::warm::WarmPool;

/// Tables and core instances that a place in the pool comes with. Adapters and runtimes of languages bring several.
pub(crate) const TABLES_PER_PLACE: u32 = 4;
const CORE_INSTANCES_PER_COMPONENT: u32 = 64;
/// A memory that owns its whole address range needs no bounds checks; past this there is no address space for that.
const ADDRESS_SPACE_MAX: u64 = 64 << 40;
const WHOLE_RANGE: u64 = 4 << 30;

/// Why there is no runtime.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// The configuration cannot be had on this machine.
    #[error("the WASM engine cannot be set up: {0}")]
    Engine(String),
    /// The cache cannot be used.
    #[error("the cache of compiled components cannot be used: {0}")]
    Cache(String),
}

/// Compiles components and runs their functions. A clone is a counter, not a copy.
#[derive(Clone)]
pub struct Runtime(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    linker: Linker<Data>,
    cache: Cache,
    config: Config,
    /// The component used last comes first.
    loaded: Mutex<VecDeque<Component>>,
    loading: Mutex<()>,
}

/// What every component needs to run.
pub(crate) struct Shared {
    engine: Engine,
    workflows: Arc<Semaphore>,
    tasks: Arc<Semaphore>,
    pub(crate) warm: WarmPool,
    pub(crate) table_elements_max: usize,
}

impl Runtime {
    /// Sets up the engine. Reserves address space, not memory.
    pub fn new(config: Config) -> Result<Self, RuntimeError> {
        let cache = Cache::open(config.cache_folder.as_deref(), config.cache_bytes_max)
            .map_err(|error| RuntimeError::Cache(format!("{error:#}")))?;
        let refuse = |error: wasmtime::Error| RuntimeError::Engine(format!("{error:#}"));
        let mut settings = deterministic(&config);
        settings.cache(cache.wasmtime());
        let engine = Engine::new(&settings).map_err(refuse)?;
        let mut linker = Linker::new(&engine);
        crate::bindings::Component::add_to_linker::<_, HasSelf<_>>(&mut linker, |data| data).map_err(refuse)?;
        let shared = Shared {
            engine,
            workflows: Arc::new(Semaphore::new(at_least_one(config.workflows_max) as usize)),
            tasks: Arc::new(Semaphore::new(at_least_one(config.tasks_max) as usize)),
            warm: WarmPool::new(WARM_TASKS, config.calls_per_instance_max),
            table_elements_max: config.table_elements_max,
        };
        let (loaded, loading) = (Mutex::default(), Mutex::default());
        Ok(Self(Arc::new(Inner { shared: Arc::new(shared), linker, cache, config, loaded, loading })))
    }

    /// Compiles a component, or finds it compiled, and asks it what it can do. Blocks for as long as that takes: up to
    /// seconds for a large one.
    pub fn load(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        let (inner, max) = (&*self.0, self.0.config.component_bytes_max);
        if bytes.len() > max {
            return Err(LoadError::TooLarge { bytes: bytes.len(), max });
        }
        let digest = ComponentDigest::of(bytes);
        if let Some(component) = self.loaded(digest) {
            return Ok(component);
        }
        // One at a time: whoever waits may find it loaded.
        let _loading = inner.loading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(component) = self.loaded(digest) {
            return Ok(component);
        }
        let compiled =
            inner.cache.compile(&inner.shared.engine, digest, bytes).map_err(|error| LoadError::invalid(&error))?;
        let component = load::admit(digest, &compiled, &inner.shared, &inner.linker, &inner.config)?;
        self.remember(&component);
        Ok(component)
    }

    /// A component that is in memory already.
    pub fn loaded(&self, digest: ComponentDigest) -> Option<Component> {
        let mut loaded = self.recent();
        let place = loaded.iter().position(|component| component.digest() == digest)?;
        let component = loaded.remove(place)?;
        loaded.push_front(component.clone());
        Some(component)
    }

    /// How many more workflows can be instantiated now. The engine evicts idle ones when this gets low.
    pub fn workflows_free(&self) -> usize {
        self.0.shared.workflows.available_permits()
    }

    fn remember(&self, component: &Component) {
        let mut loaded = self.recent();
        loaded.push_front(component.clone());
        loaded.truncate(self.0.config.loaded_max.max(1));
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Component>> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Room for a workflow, if there is some.
    pub(crate) fn try_workflow(&self, weight: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.workflows).try_acquire_many_owned(weight).ok()
    }

    /// Room for a task. None only if the pool was closed, which it never is.
    pub(crate) async fn task(&self, weight: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.tasks).acquire_many_owned(weight).await.ok()
    }

    pub(crate) fn store(&self, data: Data, fuel: u64, fuel_slice: Option<u64>) -> wasmtime::Result<Store<Data>> {
        let mut store = Store::new(&self.engine, data);
        store.limiter(|data| &mut data.limiter);
        store.fuel_async_yield_interval(fuel_slice)?;
        store.set_fuel(fuel)?;
        Ok(store)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// The same instructions, numbers and limits on every machine; nothing that races.
fn deterministic(config: &Config) -> wasmtime::Config {
    let mut settings = wasmtime::Config::new();
    settings
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .consume_fuel(true)
        .max_wasm_stack(config.stack_bytes_max)
        .async_stack_size(config.stack_bytes_max + HOST_STACK_BYTES)
        .memory_init_cow(true)
        .wasm_backtrace_max_frames(None);
    let places = places(config);
    if u64::from(places) * WHOLE_RANGE > ADDRESS_SPACE_MAX {
        settings.memory_reservation(config.memory_bytes_max as u64);
    }
    settings.allocation_strategy(pool(config, places));
    settings
}

/// Host functions run on the guest's stack.
const HOST_STACK_BYTES: usize = 512 << 10;

/// For workflows, for tasks that run, for those that wait for their next call, and for the one component that describes
/// itself.
fn places(config: &Config) -> u32 {
    let running = at_least_one(config.workflows_max).saturating_add(at_least_one(config.tasks_max));
    running.saturating_add(WARM_TASKS).saturating_add(load::WEIGHT_MAX)
}

/// Places for instances of tasks that wait for their next call.
const WARM_TASKS: u32 = 64;

/// Room for at least one component of the largest sort, or it would wait for ever.
fn at_least_one(places: u32) -> u32 {
    places.max(load::WEIGHT_MAX)
}

fn pool(config: &Config, places: u32) -> PoolingAllocationConfig {
    // Where the kernel tells which pages were touched, a few are cheaper wiped than given back; else all would be wiped.
    let kept = if PoolingAllocationConfig::is_pagemap_scan_available() { KEPT_BYTES } else { 0 };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(places)
        .total_core_instances(places.saturating_mul(CORE_INSTANCES_PER_COMPONENT))
        .total_memories(places)
        .total_tables(places.saturating_mul(TABLES_PER_PLACE))
        .total_stacks(places)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(load::WEIGHT_MAX)
        .max_tables_per_component(load::WEIGHT_MAX * TABLES_PER_PLACE)
        .max_memory_size(config.memory_bytes_max)
        .table_elements(config.table_elements_max)
        .max_unused_warm_slots(WARM_PLACES)
        .linear_memory_keep_resident(kept)
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(kept)
        .async_stack_keep_resident(0);
    pool
}

/// Places that stay set up for the component that used them last.
const WARM_PLACES: u32 = 64;
/// What such a place may keep of the memory it has used.
const KEPT_BYTES: usize = 512 << 10;
