//! The tokio runtimes of the process. A server has three, so that no guest can delay what keeps the
//! server alive: the main one answers requests, sends heartbeats and renews leases; the loops of
//! the shards, with the turns of workflows, have a second one, and tasks a third.

use std::num::NonZero;
use std::time::Duration;

use onward_engine::node::GuestRuntimes;
use tokio::runtime::{Builder, Runtime};

/// How long the end of the process waits for threads that are still busy.
const THREADS_TIMEOUT: Duration = Duration::from_millis(500);

/// Nice value of the threads that run tasks: lower priority than the server itself.
const TASK_THREAD_NICE: i32 = 5;

/// Number of polls after which the runtime of tasks looks for new tasks and timers. The default of
/// 61 is too many where each poll may take milliseconds.
const TASK_POLLS_MAX: u32 = 4;

/// Runs an async command to its end on a new runtime.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = build_runtime(Builder::new_multi_thread().worker_threads(2))?;
    let outcome = runtime.block_on(command);
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    outcome
}

/// Runs a command that executes guests to its end. The process does not wait for guests that are
/// still busy then.
pub(crate) fn block_on_server<T, F>(command: impl FnOnce(GuestRuntimes) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let runtime = build_runtime(
        Builder::new_multi_thread()
            .worker_threads(processor_count())
            .thread_name("onward-main"),
    )?;
    let shards = build_runtime(
        Builder::new_multi_thread()
            .worker_threads(processor_count())
            .thread_name("onward-shards"),
    )?;
    let tasks = build_runtime(
        Builder::new_multi_thread()
            .worker_threads(processor_count())
            .thread_name("onward-tasks")
            .event_interval(TASK_POLLS_MAX)
            .global_queue_interval(TASK_POLLS_MAX)
            .on_thread_start(lower_priority),
    )?;
    let outcome = runtime.block_on(command(GuestRuntimes {
        shards: shards.handle().clone(),
        tasks: tasks.handle().clone(),
    }));
    shards.shutdown_background();
    tasks.shutdown_background();
    runtime.shutdown_timeout(THREADS_TIMEOUT);
    outcome
}

fn build_runtime(builder: &mut Builder) -> std::io::Result<Runtime> {
    builder.enable_all().build()
}

fn processor_count() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Lowers the priority of the current thread, where the system has priorities for threads.
fn lower_priority() {
    if cfg!(target_os = "linux")
        && let Err(error) = rustix::process::setpriority_process(None, TASK_THREAD_NICE)
    {
        tracing::debug!(%error, "cannot lower the priority of a thread");
    }
}
