//! What bounds guests: all of them together, and each one.

use std::path::PathBuf;
use std::time::Duration;

/// How many guests there may be, how large, and where compiled code is kept.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where compiled components are kept between starts; nowhere when absent. The folder belongs to this crate.
    pub cache_folder: Option<PathBuf>,
    /// The oldest compiled components go when they take more than this.
    pub cache_bytes_max: u64,
    /// How many compiled components stay in memory.
    pub loaded_max: usize,
    /// A larger component is refused.
    pub component_bytes_max: usize,
    /// A component with more functions is refused.
    pub functions_max: usize,
    /// Workflows that are instantiated at once; more of them wait.
    pub workflows_max: u32,
    /// Tasks that run at once; more of them wait.
    pub tasks_max: u32,
    /// How many calls of tasks an instance serves, one after the other, for one owner. With 1 every call has a new one.
    pub calls_per_instance_max: u32,
    /// No limit of a single guest is higher than this.
    pub memory_bytes_max: usize,
    /// Elements of all tables of a guest.
    pub table_elements_max: usize,
    /// How much stack a guest has.
    pub stack_bytes_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cache_folder: None,
            cache_bytes_max: 1 << 30,
            loaded_max: 128,
            component_bytes_max: 64 << 20,
            functions_max: 1_000,
            workflows_max: 4_096,
            tasks_max: 256,
            calls_per_instance_max: 1_000,
            memory_bytes_max: 256 << 20,
            table_elements_max: 100_000,
            stack_bytes_max: 512 << 10,
        }
    }
}

/// What one workflow may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkflowLimits {
    /// Linear memory.
    pub memory_bytes_max: usize,
    /// Each input, result and answer.
    pub payload_bytes_max: usize,
    /// How long it runs before others have their turn, in instructions, roughly.
    pub fuel_slice: u64,
    /// How long it may run without asking for anything, counted in whole slices.
    pub fuel_max: u64,
}

impl Default for WorkflowLimits {
    /// 64 MiB of memory, payloads of 1 MiB, slices of about a millisecond, ten billion instructions.
    fn default() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            payload_bytes_max: 1 << 20,
            fuel_slice: FUEL_SLICE,
            fuel_max: 10_000_000_000,
        }
    }
}

/// What one task may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskLimits {
    /// Linear memory.
    pub memory_bytes_max: usize,
    /// The input and the result.
    pub payload_bytes_max: usize,
    /// How long it may take from its start, waiting for answers included.
    pub timeout: Duration,
}

impl Default for TaskLimits {
    /// 64 MiB of memory, payloads of 1 MiB, a minute.
    fn default() -> Self {
        Self {
            memory_bytes_max: 64 << 20,
            payload_bytes_max: 1 << 20,
            timeout: Duration::from_secs(60),
        }
    }
}

/// About a millisecond.
pub(crate) const FUEL_SLICE: u64 = 1_000_000;
