//! A store, a client in one process, and engines in others that die.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use onward_base::{Payload, Timestamp};
use onward_embed::{ClientError, EngineClient, Scope, WasmComponentRuntime};
use onward_engine::client::{SHARD_COUNT, TakeoverPolicy};
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_journal::{Event, ExecutionId};
use onward_store::tables::InboxMessageRow;
use onward_store::{RecordReader as _, Store, StoreClock, SystemClock, TableScan};
use onward_store_postgres::PostgresStore;
use onward_store_sqlite::SqliteStore;
use onward_testing::PostgresCluster;
use onward_wasm::{Config, HttpConfig};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use crate::account::Account;
use crate::faults::{Echo, Faults, Faulty, Ledger, Performing, Point};
use crate::scenario::{Act, Scenario};

/// Lease duration of the tests. They move the clock of the store, so that no test waits for a lease
/// to expire.
const LEASE: Duration = Duration::from_secs(3_600);

/// Poll interval of an engine.
const POLL: Duration = Duration::from_millis(100);

/// Far longer than any step of a test.
const HANGS: Duration = Duration::from_secs(60);

/// A clock that tests can move forward.
pub(crate) struct Moved(AtomicU64);

impl StoreClock for Moved {
    fn now(&self) -> Timestamp {
        SystemClock.now().plus_ms(self.0.load(Ordering::SeqCst))
    }
}

/// Location of a store.
#[derive(Clone)]
pub(crate) enum Place {
    /// A file in a folder.
    Sqlite(Arc<TempDir>),
    /// A database of a server.
    Postgres(String),
}

impl Place {
    pub(crate) fn sqlite() -> Self {
        Self::Sqlite(Arc::new(tempfile::tempdir().unwrap()))
    }

    pub(crate) fn postgres(cluster: &PostgresCluster) -> Self {
        Self::Postgres(cluster.create_database().unwrap())
    }

    /// A handle of its own, as another process would have.
    async fn open(&self, clock: Arc<Moved>) -> Arc<dyn Store> {
        match self {
            Self::Sqlite(folder) => {
                let options = onward_store_sqlite::Options {
                    clock,
                    ..Default::default()
                };
                Arc::new(SqliteStore::open(&folder.path().join("store.db"), options).unwrap())
            }
            Self::Postgres(url) => {
                let few = onward_store_postgres::Options {
                    readers: 2,
                    bulk_writers: 1,
                    ..Default::default()
                };
                let options = onward_store_postgres::Options {
                    clock: Some(clock),
                    ..few
                };
                Arc::new(PostgresStore::open(url, options).await.unwrap())
            }
        }
    }
}

/// The code of the examples.
pub(crate) fn built(name: &str) -> Vec<u8> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows/built");
    std::fs::read(folder.join(name)).unwrap()
}

/// The cache of compiled code, shared with other tests.
pub(crate) fn cache() -> PathBuf {
    std::env::temp_dir().join("onward-test-cache")
}

pub(crate) fn scope() -> Scope {
    Scope {
        tenant: "default".parse().unwrap(),
        project: "default".parse().unwrap(),
        environment: "default".parse().unwrap(),
    }
}

/// The WASM runtime, shared by all engines.
fn shared_wasm() -> Arc<WasmComponentRuntime> {
    static WASM: OnceLock<Arc<WasmComponentRuntime>> = OnceLock::new();
    let make = || {
        Arc::new(
            WasmComponentRuntime::new(
                Config {
                    cache_folder: Some(cache()),
                    ..Config::default()
                },
                HttpConfig::default(),
            )
            .unwrap(),
        )
    };
    Arc::clone(WASM.get_or_init(make))
}

/// An engine with its own threads.
struct Process {
    runtime: Runtime,
    faults: Arc<Faults>,
    _stop: watch::Sender<bool>,
}

impl Process {
    fn start(place: Place, clock: Arc<Moved>, faults: Faults) -> Self {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let faults = Arc::new(faults);
        let (stop, stopped) = watch::channel(false);
        runtime.spawn({
            let faults = Arc::clone(&faults);
            async move {
                let inner = place.open(clock).await;
                let store = Arc::new(Faulty {
                    inner,
                    faults: Arc::clone(&faults),
                });
                let code = Performing {
                    inner: shared_wasm(),
                    faults: Arc::clone(&faults),
                };
                let native = NativeTaskRegistry::default().with_task("native_echo", Echo(faults));
                let options = NodeOptions {
                    lease_duration: LEASE,
                    poll_interval: POLL,
                    ..NodeOptions::default()
                };
                let node = Node::new(
                    store,
                    FunctionRegistry::new(Arc::new(code), native),
                    options,
                );
                Arc::new(node).run(stopped).await.unwrap();
            }
        });
        Self {
            runtime,
            faults,
            _stop: stop,
        }
    }

    /// Kills the process: its threads stop wherever they are.
    fn kill(self) {
        self.runtime.shutdown_background();
    }
}

/// The outcome of a scenario.
pub(crate) struct Outcome {
    pub(crate) account: Account,
    pub(crate) ledger: Arc<Ledger>,
    /// Number of crashes that took place.
    pub(crate) crashes: usize,
    /// Steps that the last process committed, and tasks that it performed.
    pub(crate) last: (usize, usize),
}

/// A store that scenarios are run on, one after the other.
pub(crate) struct World {
    place: Place,
    clock: Arc<Moved>,
    runtime: Runtime,
    client: EngineClient,
    runs: AtomicU64,
}

impl World {
    pub(crate) fn new(place: Place) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let clock = Arc::new(Moved(AtomicU64::new(0)));
        let client = runtime.block_on(async {
            let client = EngineClient::new(place.open(Arc::clone(&clock)).await, scope());
            for name in ["journals.wasm", "orders.wasm"] {
                let code = built(name);
                client
                    .deploy_component(
                        &code,
                        &shared_wasm().read_functions(&code, &[]).unwrap(),
                        &[],
                        TakeoverPolicy::Replace,
                    )
                    .await
                    .unwrap();
            }
            client
        });
        Self {
            place,
            clock,
            runtime,
            client,
            runs: AtomicU64::new(0),
        }
    }

    /// Runs a scenario to its end. Each of the crashes ends a process, and the next takes over.
    pub(crate) fn run(&self, scenario: &Scenario, crashes: &[Point]) -> Outcome {
        let key = format!("run {}", self.runs.fetch_add(1, Ordering::SeqCst));
        let ledger = Arc::new(Ledger::default());
        let case = self.runtime.block_on(self.start(scenario, &key));
        let (mut happened, mut last) = (0, (0, 0));
        for point in crashes.iter().map(Some).chain([None]) {
            self.clock.0.fetch_add(
                2 * u64::try_from(LEASE.as_millis()).unwrap(),
                Ordering::SeqCst,
            );
            let faults = Faults::new(point.copied(), Arc::clone(&ledger));
            let process = Process::start(self.place.clone(), Arc::clone(&self.clock), faults);
            if happened > 0 {
                self.runtime.block_on(case.repeat());
            }
            let watch = async { tokio::time::timeout(HANGS, case.watch(&process.faults)).await };
            let ended = self.runtime.block_on(watch);
            last = (process.faults.steps(), process.faults.tasks());
            let is_dead = process.faults.is_dead();
            process.kill();
            if ended.is_err() {
                let events = self
                    .runtime
                    .block_on(self.client.read_journal(case.id))
                    .unwrap();
                panic!(
                    "{} hangs after {crashes:?}, at {point:?}: {events:#?}",
                    scenario.name
                );
            }
            if !is_dead {
                break;
            }
            happened += 1;
        }
        let account = self.runtime.block_on(Account::read(&self.client, case.id));
        Outcome {
            account,
            ledger,
            crashes: happened,
            last,
        }
    }

    async fn start<'a>(&'a self, scenario: &'a Scenario, key: &str) -> Case<'a> {
        let input = Payload::parse(scenario.input).unwrap();
        let started = self
            .client
            .start_execution(scenario.function, input.clone(), Some(key))
            .await
            .unwrap();
        let again = self
            .client
            .start_execution(scenario.function, input, Some(key))
            .await
            .unwrap();
        assert!(
            !started.already_existed
                && again.already_existed
                && started.execution == again.execution
        );
        let case = Case {
            client: &self.client,
            scenario,
            id: started.execution,
            has_acted: Cell::new(false),
        };
        if let Act::SignalFirst(..) = scenario.act {
            case.act().await;
        }
        case
    }
}

/// An execution under observation.
struct Case<'a> {
    client: &'a EngineClient,
    scenario: &'a Scenario,
    id: ExecutionId,
    has_acted: Cell<bool>,
}

impl Case<'_> {
    /// Performs the action of the scenario, until the execution has ended or its process dies.
    async fn watch(&self, faults: &Faults) {
        let mut progress = faults.progress();
        loop {
            progress.borrow_and_update();
            if faults.is_dead() || self.is_settled().await {
                return;
            }
            if matches!(self.scenario.act, Act::Signal(..) | Act::Cancel)
                && self.waits_for_signal().await
            {
                self.act().await;
            }
            // Messages of the previous process may arrive late, without a notification.
            drop(tokio::time::timeout(POLL, progress.changed()).await);
        }
    }

    /// Whether the execution has ended and no message is pending.
    async fn is_settled(&self) -> bool {
        let messages: Vec<(InboxMessageRow, u64)> = self
            .client
            .store()
            .list_records(TableScan::all_rows::<InboxMessageRow>())
            .await
            .unwrap();
        // The keys of consumed signals remain as empty messages.
        let is_left = messages
            .iter()
            .any(|(message, _)| message.shard.0 < SHARD_COUNT);
        !is_left
            && self
                .client
                .execution_result(self.id)
                .await
                .unwrap()
                .is_some()
    }

    async fn waits_for_signal(&self) -> bool {
        let events = self.client.read_journal(self.id).await.unwrap();
        let is_wait = |event: &Event| {
            matches!(
                event,
                Event::ExecutionAwaiting {
                    kind: onward_journal::AwaitKind::Signal(_),
                    ..
                }
            )
        };
        events.last().is_some_and(|last| is_wait(&last.event))
    }

    async fn act(&self) {
        let done = match self.scenario.act {
            Act::Nothing => Ok(()),
            Act::SignalFirst(name, payload) | Act::Signal(name, payload) => {
                let payload = Payload::parse(payload).unwrap();
                self.client
                    .send_signal(self.id, name.parse().unwrap(), payload, Some("once"))
                    .await
            }
            Act::Cancel => self.client.request_cancel(self.id, "enough").await,
        };
        assert!(
            matches!(done, Ok(()) | Err(ClientError::ExecutionEnded(_))),
            "{done:?}"
        );
        self.has_acted.set(true);
    }

    /// Repeats the action under the same key, as a client does that received no answer.
    async fn repeat(&self) {
        if self.has_acted.get() {
            self.act().await;
        }
    }
}
