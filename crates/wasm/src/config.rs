//! Resource limits of guests, for the whole runtime and for each guest.

use std::path::PathBuf;
use std::time::Duration;

/// Limits on the number and size of guests, and the location of the cache of compiled components.
#[derive(Debug, Clone)]
pub struct Config {
    /// Folder in which compiled components are cached between starts; `None` disables the cache;
    /// default: `None`. This crate owns the folder: no other files may be kept there.
    pub cache_folder: Option<PathBuf>,
    /// Maximum size of the cache folder in bytes; above it the oldest compiled components are
    /// removed; default: 1 GiB.
    pub cache_bytes_max: u64,
    /// Maximum number of compiled components kept in memory, at least 1; default: 128.
    pub loaded_max: usize,
    /// Maximum size of a component in bytes; a larger component is refused; default: 64 MiB.
    pub component_bytes_max: usize,
    /// Maximum size of the code in a component in bytes, without its data; a component with more
    /// code is refused. Compiling takes about 8 s and 760 MiB for each MiB of code in the worst
    /// case; default: 10 MiB.
    pub code_bytes_max: usize,
    /// Maximum size of one function in bytes; a component with a larger function is refused;
    /// default: 1 MiB.
    pub function_bytes_max: usize,
    /// Number of threads that compile components; further components wait; default: the number of
    /// processors.
    pub compile_threads: usize,
    /// How long a caller waits until a component is compiled; default: 60 s. The compiler cannot be
    /// interrupted: it goes on, and a later call may find the component ready.
    pub compile_timeout: Duration,
    /// How long `describe` may take, when a component is loaded; default: 1 s.
    pub describe_timeout: Duration,
    /// Maximum number of functions of a component; a component with more functions is refused;
    /// default: 1000.
    pub functions_max: usize,
    /// Maximum number of workflows that are instantiated at the same time; further workflows wait;
    /// default: 4096.
    pub workflows_max: u32,
    /// Maximum number of tasks that run at the same time; further tasks wait; default: 256.
    pub tasks_max: u32,
    /// Maximum number of task calls that one instance serves, one after the other and for one
    /// owner. With 1, every call gets a new instance; default: 1000.
    pub calls_per_instance_max: u32,
    /// Interval of the clock that makes guests yield: a guest keeps its thread for at most about
    /// two intervals; default: 5 ms.
    pub tick_interval: Duration,
    /// Upper bound of the linear memory of any guest in bytes: the limit of a single guest cannot
    /// exceed it; default: 256 MiB.
    pub memory_bytes_max: usize,
    /// Upper bound of the linear memory of all guests together in bytes. No tenant can use more
    /// than three quarters of it; above the bound, idle workflows are evicted, further guests wait,
    /// and attempts of tasks fail and are retried; default: 2 GiB.
    pub guest_memory_bytes_max: u64,
    /// Maximum number of elements in all tables of a guest together; default: 100 000.
    pub table_elements_max: usize,
    /// Stack size of a guest in bytes; default: 512 KiB.
    pub stack_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache_folder: None,
            cache_bytes_max: 1 << 30,
            loaded_max: 128,
            component_bytes_max: 64 << 20,
            code_bytes_max: 10 << 20,
            function_bytes_max: 1 << 20,
            compile_threads: processor_count(),
            compile_timeout: Duration::from_secs(60),
            describe_timeout: Duration::from_secs(1),
            functions_max: 1_000,
            workflows_max: 4_096,
            tasks_max: 256,
            calls_per_instance_max: 1_000,
            tick_interval: Duration::from_millis(5),
            memory_bytes_max: 256 << 20,
            guest_memory_bytes_max: 2 << 30,
            table_elements_max: 100_000,
            stack_bytes_max: 512 << 10,
        }
    }
}

/// Resource limits of one workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkflowLimits {
    /// Maximum linear memory in bytes; default: 64 MiB.
    pub memory_bytes_max: usize,
    /// Maximum size in bytes of each input, result and response; default: 1 MiB.
    pub payload_bytes_max: usize,
    /// Fuel (roughly, instructions) that the workflow uses before it yields to other guests;
    /// default: 1 000 000, about a millisecond.
    pub fuel_slice: u64,
    /// Maximum fuel that the workflow may use between two requests to the engine, counted in whole
    /// slices; default: 10 000 000 000.
    pub fuel_max: u64,
    /// Maximum time that the workflow may compute between two requests to the engine, without the
    /// time that it waits; default: 60 s.
    pub compute_time_max: Duration,
}

impl Default for WorkflowLimits {
    /// 64 MiB of memory, payloads of 1 MiB, slices of about a millisecond, ten billion instructions
    /// between two requests.
    fn default() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            payload_bytes_max: 1 << 20,
            fuel_slice: FUEL_SLICE,
            fuel_max: 10_000_000_000,
            compute_time_max: Duration::from_secs(60),
        }
    }
}

/// Resource limits of one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLimits {
    /// Maximum linear memory in bytes; default: 64 MiB.
    pub memory_bytes_max: usize,
    /// Maximum size in bytes of the input and of the result; default: 1 MiB.
    pub payload_bytes_max: usize,
    /// Timeout of the call, measured from its start and including the time it waits for responses;
    /// default: 60 s.
    pub timeout: Duration,
}

impl Default for TaskLimits {
    /// 64 MiB of memory, payloads of 1 MiB, a timeout of 60 s.
    fn default() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            payload_bytes_max: 1 << 20,
            timeout: Duration::from_secs(60),
        }
    }
}

/// Fuel of one slice: about a millisecond of execution.
pub(crate) const FUEL_SLICE: u64 = 1_000_000;

/// Bytes that a guest may pass to the host in one call: a payload, its escaped form, and some room.
pub(crate) const HOST_CALL_BYTES_MAX: usize = 4 << 20;

fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}
