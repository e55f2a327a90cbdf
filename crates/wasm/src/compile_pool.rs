//! Compiles components on threads of its own, so that a component that takes long to compile holds
//! up no thread of the async runtime, and no component with another digest. Also checks the size of
//! the code before it is compiled, because that bounds the time and the memory it takes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onward_journal::ComponentDigest;
use rayon::{ThreadPool, ThreadPoolBuilder};
use wasmparser::{Parser, Payload};

use crate::component::LoadedComponent;
use crate::config::Config;
use crate::load::LoadError;

/// Receives the result of a load.
pub(crate) type LoadReply = Box<dyn FnOnce(Result<LoadedComponent, LoadError>) + Send>;

/// The threads that compile, and the callers that wait for each component.
pub(crate) struct CompilePool {
    threads: ThreadPool,
    waiting: Arc<Mutex<WaitingCallers>>,
}

/// Callers that wait for a component that is being compiled, by its digest.
type WaitingCallers = BTreeMap<ComponentDigest, Vec<LoadReply>>;

impl CompilePool {
    pub(crate) fn new(threads: usize) -> Result<Self, rayon::ThreadPoolBuildError> {
        let threads = ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .thread_name(|number| format!("onward-compile-{number}"))
            .build()?;
        Ok(Self {
            threads,
            waiting: Arc::default(),
        })
    }

    /// Runs `load` on a thread of the pool and passes its result to `reply`. A component that is
    /// being loaded already is not loaded twice.
    pub(crate) fn spawn_load(
        &self,
        bytes: Arc<[u8]>,
        reply: LoadReply,
        load: impl FnOnce(ComponentDigest, &[u8]) -> Result<LoadedComponent, LoadError> + Send + 'static,
    ) {
        let waiting = Arc::clone(&self.waiting);
        self.threads.spawn(move || {
            let digest = ComponentDigest::from_component(&bytes);
            {
                let mut waiting = lock_waiting(&waiting);
                let callers = waiting.entry(digest).or_default();
                callers.push(reply);
                if callers.len() > 1 {
                    return;
                }
            }
            // The callers must receive an answer even if the compiler panics.
            let loading = std::panic::AssertUnwindSafe(|| load(digest, &bytes));
            let result = std::panic::catch_unwind(loading)
                .unwrap_or_else(|_| Err(LoadError::Invalid("the compiler panicked".to_owned())));
            let callers = lock_waiting(&waiting).remove(&digest).unwrap_or_default();
            for reply in callers {
                reply(result.clone());
            }
        });
    }
}

fn lock_waiting(waiting: &Mutex<WaitingCallers>) -> MutexGuard<'_, WaitingCallers> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fails if the component has more code, or a larger function, than the configuration allows.
/// Malformed components are left to the compiler.
pub(crate) fn check_code_size(bytes: &[u8], config: &Config) -> Result<(), LoadError> {
    let mut code_bytes = 0_usize;
    for payload in Parser::new(0).parse_all(bytes) {
        let Ok(Payload::CodeSectionEntry(body)) = payload else {
            if payload.is_err() {
                return Ok(());
            }
            continue;
        };
        let function_bytes = body.range().len();
        if function_bytes > config.function_bytes_max {
            return Err(LoadError::TooMuchCode {
                what: "a function",
                bytes: function_bytes,
                max: config.function_bytes_max,
            });
        }
        code_bytes = code_bytes.saturating_add(function_bytes);
        if code_bytes > config.code_bytes_max {
            return Err(LoadError::TooMuchCode {
                what: "all code",
                bytes: code_bytes,
                max: config.code_bytes_max,
            });
        }
    }
    Ok(())
}
