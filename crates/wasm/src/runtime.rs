//! The wasmtime engine, configured for deterministic execution, and the pool of instances.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_journal::ComponentDigest;
use thiserror::Error;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Enabled, Engine, PoolingAllocationConfig, Store};

use crate::cache::CompiledCache;
use crate::compile_pool::{self, CompilePool, LoadReply};
use crate::component::LoadedComponent;
use crate::config::{Config, HOST_CALL_BYTES_MAX};
use crate::host::GuestState;
use crate::load::{self, LoadError};
use crate::memory_budget::MemoryBudget;
use crate::slice_clock::{self, SliceClock, TickCounter};
use crate::warm_pool::WarmPool;

/// Number of tables and of core instances that each pool slot provides. Adapters and language
/// runtimes need several.
pub(crate) const TABLES_PER_SLOT: u32 = 4;
const CORE_INSTANCES_PER_COMPONENT: u32 = 64;
/// Maximum address space reserved for the pool. A memory that reserves its full 4 GiB range needs
/// no bounds checks; above this total there is not enough address space for that.
const ADDRESS_SPACE_MAX: u64 = 64 << 40;
const FULL_MEMORY_RANGE: u64 = 4 << 30;

/// Reason why the runtime could not be created.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// This machine does not support the configuration of the WASM engine.
    #[error("the WASM engine cannot be set up: {0}")]
    Engine(String),
    /// The cache of compiled components cannot be used.
    #[error("the cache of compiled components cannot be used: {0}")]
    Cache(String),
}

/// Compiles components and runs their functions. Clones share the same runtime.
#[derive(Clone)]
pub struct WasmRuntime(Arc<RuntimeInner>);

struct RuntimeInner {
    instance_pool: Arc<InstancePool>,
    linker: Linker<GuestState>,
    cache: CompiledCache,
    config: Config,
    compile_pool: CompilePool,
    /// Loaded components, most recently used first.
    loaded: Mutex<VecDeque<LoadedComponent>>,
}

/// Resources that all components share: the engine, the limits on concurrent instances, and the
/// warm instances.
pub(crate) struct InstancePool {
    engine: Engine,
    workflows: Arc<Semaphore>,
    tasks: Arc<Semaphore>,
    pub(crate) warm_pool: WarmPool,
    pub(crate) table_elements_max: usize,
    ticks: Arc<TickCounter>,
    pub(crate) memory_budget: Arc<MemoryBudget>,
}

impl WasmRuntime {
    /// Creates the runtime. Reserves address space, but no memory.
    pub fn new(config: Config) -> Result<Self, RuntimeError> {
        let cache = CompiledCache::open(config.cache_folder.as_deref(), config.cache_bytes_max)
            .map_err(|error| RuntimeError::Cache(format!("{error:#}")))?;
        let refuse = |error: wasmtime::Error| RuntimeError::Engine(format!("{error:#}"));
        let mut settings = deterministic_settings(&config);
        settings.cache(cache.wasmtime_cache());
        let engine = Engine::new(&settings).map_err(refuse)?;
        let mut linker = Linker::new(&engine);
        crate::bindings::Component::add_to_linker::<_, HasSelf<_>>(&mut linker, |data| data)
            .map_err(refuse)?;
        let ticks = slice_clock::spawn_ticker(engine.weak(), config.tick_interval)
            .map_err(|error| RuntimeError::Engine(error.to_string()))?;
        let shared = InstancePool {
            engine,
            workflows: Arc::new(Semaphore::new(
                at_least_one_component(config.workflows_max) as usize
            )),
            tasks: Arc::new(Semaphore::new(
                at_least_one_component(config.tasks_max) as usize
            )),
            warm_pool: WarmPool::new(WARM_TASK_SLOTS, config.calls_per_instance_max),
            table_elements_max: config.table_elements_max,
            ticks,
            memory_budget: Arc::new(MemoryBudget::new(config.guest_memory_bytes_max)),
        };
        let compile_pool = CompilePool::new(config.compile_threads)
            .map_err(|error| RuntimeError::Engine(error.to_string()))?;
        Ok(Self(Arc::new(RuntimeInner {
            instance_pool: Arc::new(shared),
            linker,
            cache,
            config,
            compile_pool,
            loaded: Mutex::default(),
        })))
    }

    /// Compiles a component, or takes it from memory or from the cache, and reads the functions
    /// that it exports. Blocks the thread, for up to several seconds if the component is large.
    pub fn load_component(&self, bytes: &[u8]) -> Result<LoadedComponent, LoadError> {
        let (reply, replied) = std::sync::mpsc::sync_channel(1);
        self.spawn_load(
            bytes.into(),
            Box::new(move |result| drop(reply.send(result))),
        )?;
        let timeout = self.0.config.compile_timeout;
        replied
            .recv_timeout(timeout)
            .unwrap_or_else(|_| Err(compile_timeout(timeout)))
    }

    /// Like [`Self::load_component`], but waits without blocking the thread. Requires a tokio
    /// runtime with timers enabled.
    pub async fn load_component_async(
        &self,
        bytes: Arc<[u8]>,
    ) -> Result<LoadedComponent, LoadError> {
        let (reply, replied) = tokio::sync::oneshot::channel();
        self.spawn_load(bytes, Box::new(move |result| drop(reply.send(result))))?;
        let timeout = self.0.config.compile_timeout;
        match tokio::time::timeout(timeout, replied).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err(compile_timeout(timeout)),
        }
    }

    fn spawn_load(&self, bytes: Arc<[u8]>, reply: LoadReply) -> Result<(), LoadError> {
        let max = self.0.config.component_bytes_max;
        if bytes.len() > max {
            return Err(LoadError::TooLarge {
                bytes: bytes.len(),
                max,
            });
        }
        let runtime = Arc::downgrade(&self.0);
        self.0
            .compile_pool
            .spawn_load(bytes, reply, move |digest, bytes| {
                let Some(inner) = runtime.upgrade() else {
                    return Err(LoadError::Invalid("the runtime was dropped".to_owned()));
                };
                Self(inner).compile_and_admit(digest, bytes)
            });
        Ok(())
    }

    /// Runs on a thread of the compile pool. No lock is held while the compiler or the guest's
    /// `describe` runs.
    fn compile_and_admit(
        &self,
        digest: ComponentDigest,
        bytes: &[u8],
    ) -> Result<LoadedComponent, LoadError> {
        if let Some(component) = self.find_loaded(digest) {
            return Ok(component);
        }
        let inner = &*self.0;
        compile_pool::check_code_size(bytes, &inner.config)?;
        let compiled = inner
            .cache
            .compile_component(&inner.instance_pool.engine, digest, bytes)
            .map_err(|error| LoadError::from_compile_error(&error))?;
        let component = load::admit_component(
            digest,
            &compiled,
            &inner.instance_pool,
            &inner.linker,
            &inner.config,
        )?;
        self.keep_loaded(&component);
        Ok(component)
    }

    /// Returns the component with this digest if it is in memory, and marks it as most recently
    /// used.
    pub fn find_loaded(&self, digest: ComponentDigest) -> Option<LoadedComponent> {
        let mut loaded = self.lock_loaded();
        let place = loaded
            .iter()
            .position(|component| component.digest() == digest)?;
        let component = loaded.remove(place)?;
        loaded.push_front(component.clone());
        Some(component)
    }

    /// Number of workflows that can be instantiated: of the free pool slots, or 0 if memory is low.
    /// The engine evicts idle workflows when this number gets low.
    pub fn free_workflow_slots(&self) -> usize {
        if self.0.instance_pool.memory_budget.is_low() {
            return 0;
        }
        self.0.instance_pool.workflows.available_permits()
    }

    /// Whether there is room for a workflow of this tenant. If there is not, warm instances of
    /// tasks are dropped, and there may be room soon.
    pub fn has_room_for_workflow(&self, tenant: &str) -> bool {
        let pool = &self.0.instance_pool;
        if !pool.memory_budget.admits(tenant) {
            pool.warm_pool.clear();
        }
        pool.workflows.available_permits() > 0 && pool.memory_budget.admits(tenant)
    }

    fn keep_loaded(&self, component: &LoadedComponent) {
        let mut loaded = self.lock_loaded();
        loaded.push_front(component.clone());
        loaded.truncate(self.0.config.loaded_max.max(1));
    }

    fn lock_loaded(&self) -> MutexGuard<'_, VecDeque<LoadedComponent>> {
        self.0.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InstancePool {
    /// Reserves `weight` slots for a workflow; `None` if fewer are free.
    pub(crate) fn try_reserve_workflow(&self, weight: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.workflows)
            .try_acquire_many_owned(weight)
            .ok()
    }

    /// Reserves `weight` slots for a task and waits until they are free. `None` only if the pool is
    /// closed, which never happens.
    pub(crate) async fn reserve_task(&self, weight: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.tasks)
            .acquire_many_owned(weight)
            .await
            .ok()
    }

    pub(crate) fn new_store(
        &self,
        data: GuestState,
        fuel: u64,
        fuel_slice: Option<u64>,
    ) -> wasmtime::Result<Store<GuestState>> {
        let mut store = Store::new(&self.engine, data);
        store.limiter(|data| &mut data.limiter);
        store.fuel_async_yield_interval(fuel_slice)?;
        store.set_fuel(fuel)?;
        store.set_hostcall_fuel(HOST_CALL_BYTES_MAX);
        slice_clock::guard_store(&mut store);
        Ok(store)
    }

    /// A clock for one instance.
    pub(crate) fn slice_clock(&self) -> SliceClock {
        SliceClock::new(&self.ticks)
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }
}

/// Engine settings for deterministic execution: the same instructions, floating-point results and
/// limits on every machine, and no data races.
fn deterministic_settings(config: &Config) -> wasmtime::Config {
    let mut settings = wasmtime::Config::new();
    settings
        .cranelift_nan_canonicalization(true)
        .wasm_relaxed_simd(false)
        .consume_fuel(true)
        .epoch_interruption(true)
        .max_wasm_stack(config.stack_bytes_max)
        .async_stack_size(config.stack_bytes_max + HOST_STACK_BYTES)
        .memory_init_cow(true)
        .wasm_backtrace_max_frames(None);
    let places = pool_slot_count(config);
    if u64::from(places) * FULL_MEMORY_RANGE > ADDRESS_SPACE_MAX {
        settings.memory_reservation(config.memory_bytes_max as u64);
    }
    settings.allocation_strategy(pool_settings(config, places));
    settings
}

fn compile_timeout(timeout: Duration) -> LoadError {
    LoadError::CompileTimeout {
        ms: timeout.as_millis(),
    }
}

/// Stack reserved for host functions, which run on the guest's stack.
const HOST_STACK_BYTES: usize = 512 << 10;

/// Number of slots in the pool: for workflows, for running tasks, for warm instances of tasks, and
/// for the components that are executing `describe`.
fn pool_slot_count(config: &Config) -> u32 {
    let loading = u32::try_from(config.compile_threads.max(1)).unwrap_or(u32::MAX);
    let running = at_least_one_component(config.workflows_max)
        .saturating_add(at_least_one_component(config.tasks_max));
    running
        .saturating_add(WARM_TASK_SLOTS)
        .saturating_add(load::COMPONENT_WEIGHT_MAX.saturating_mul(loading))
}

/// Slots for warm instances: instances of tasks between two calls.
const WARM_TASK_SLOTS: u32 = 64;

/// Raises a limit so that at least one component of maximum weight fits. Otherwise such a component
/// would wait forever.
fn at_least_one_component(places: u32) -> u32 {
    places.max(load::COMPONENT_WEIGHT_MAX)
}

fn pool_settings(config: &Config, places: u32) -> PoolingAllocationConfig {
    // If the kernel reports which pages were touched, resetting a few pages in place is cheaper
    // than returning them to the kernel. Without that report, all kept pages would be reset.
    let kept = if PoolingAllocationConfig::is_pagemap_scan_available() {
        KEEP_RESIDENT_BYTES
    } else {
        0
    };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(places)
        .total_core_instances(places.saturating_mul(CORE_INSTANCES_PER_COMPONENT))
        .total_memories(places)
        .total_tables(places.saturating_mul(TABLES_PER_SLOT))
        .total_stacks(places)
        .max_core_instances_per_component(CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(load::COMPONENT_WEIGHT_MAX)
        .max_tables_per_component(load::COMPONENT_WEIGHT_MAX * TABLES_PER_SLOT)
        .max_memory_size(config.memory_bytes_max)
        .table_elements(config.table_elements_max)
        .max_unused_warm_slots(WARM_SLOTS_MAX)
        .linear_memory_keep_resident(kept)
        .pagemap_scan(Enabled::Auto)
        .table_keep_resident(kept)
        .async_stack_keep_resident(0);
    pool
}

/// Maximum number of unused slots that stay prepared for the component that used them last.
const WARM_SLOTS_MAX: u32 = 64;
/// Bytes of used memory that an unused slot may keep resident.
const KEEP_RESIDENT_BYTES: usize = 512 << 10;
