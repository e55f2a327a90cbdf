//! A store with workflows that wait for every kind of thing, and a node that runs them. Time is
//! virtual.

use std::sync::Arc;
use std::time::Duration;

use onward_api::explanation::ExecutionExplanation;
use onward_api::finding::{DoctorFinding, FindingCode as Found};
use onward_base::Payload;
use onward_diagnostics::{doctor, explain};
use onward_engine::client::EngineClient;
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_engine::shard::TaskAttempt;
use onward_execution::{JoinSetNext, ScriptedGuest};
use onward_journal::{Event, ExecutionError, ExecutionId, JournalEvent, codec};
use onward_store::tables::ExecutionRow;
use onward_store::{ColumnCodec as _, Commit, JournalAppend, RecordReader as _, RowKey, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script_runtime::{Scripts, deployed, json};

const FUNCTIONS: &[&str] = &[
    "echo", "approve", "hurry", "sleep", "work", "try", "chain", "family", "again", "fail",
];

/// The script of each function.
pub(crate) fn script(function: &str, input: Payload) -> ScriptedGuest {
    match function {
        "echo" => ScriptedGuest::new(|_| async move { Ok(input) }),
        "approve" => ScriptedGuest::new(|host| async move {
            Ok(host.await_signal("approval", None).await?.unwrap())
        }),
        "hurry" => ScriptedGuest::new(|host| async move {
            Ok(host
                .await_signal("approval", Some(7_200_000))
                .await?
                .unwrap_or_else(Payload::null))
        }),
        "sleep" => ScriptedGuest::new(|host| async move {
            host.sleep(3_600_000).await.map(|()| Payload::null())
        }),
        "work" => {
            ScriptedGuest::new(|host| async move { host.invoke_function("slow", json("1")).await })
        }
        "try" => {
            ScriptedGuest::new(
                |host| async move { host.invoke_function("broken", json("1")).await },
            )
        }
        "chain" => ScriptedGuest::new(|host| async move {
            for _ in 0..input.as_str().parse::<u32>().unwrap() {
                host.invoke_function("quick", json("1")).await?;
            }
            Ok(input)
        }),
        "family" => ScriptedGuest::new(|host| async move {
            let set = host.create_join_set().await?;
            for _ in 0..2 {
                let child = host.schedule_function("approve", json("1")).await?;
                host.submit_to_join_set(set, child).await?;
            }
            while let JoinSetNext::Result(_, result) = host.next_result(set, None).await? {
                result?;
            }
            Ok(json("\"all approved\""))
        }),
        "again" => ScriptedGuest::new(|host| async move {
            match input.as_str() {
                "0" => host.await_signal("approval", None).await.map(|_| json("0")),
                _ => host
                    .continue_as_new(json("0"))
                    .await
                    .map(|()| Payload::null()),
            }
        }),
        "fail" => ScriptedGuest::new(|_| async move {
            Err(ExecutionError::from_kind_name("card_declined", "no"))
        }),
        other => panic!("{other}"),
    }
}

pub(crate) struct WorkflowFixture {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) client: EngineClient,
}

/// A running node; dropping it kills the node.
pub(crate) struct Running {
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), onward_store::Error>>,
}

impl Running {
    /// Stops the node gracefully: it releases its shards.
    pub(crate) async fn stop(self) {
        self.stop.send(true).unwrap();
        self.node.await.unwrap().unwrap();
    }

    /// Kills the node: its leases stay until they expire.
    pub(crate) async fn kill(self) {
        self.node.abort();
        assert!(self.node.await.is_err());
    }
}

impl WorkflowFixture {
    pub(crate) async fn new() -> Self {
        let client = deployed(FUNCTIONS).await;
        Self {
            store: Arc::clone(client.store()),
            client,
        }
    }

    pub(crate) fn node(&self) -> Running {
        let slow = |_: TaskAttempt| std::future::pending();
        let broken =
            |_: TaskAttempt| async { Err(ExecutionError::from_kind_name("busy", "no answer")) };
        let quick = |_: TaskAttempt| async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(json("1"))
        };
        let native = NativeTaskRegistry::default()
            .with_task("slow", slow)
            .with_task("broken", broken)
            .with_task("quick", quick);
        // A test that stops the node inspects the waits as they are.
        let options = NodeOptions {
            name: "node a".into(),
            drain_timeout: Duration::ZERO,
            ..NodeOptions::default()
        };
        let node = Node::new(
            Arc::clone(&self.store),
            FunctionRegistry::new(
                Arc::new(Scripts {
                    functions: FUNCTIONS,
                    script,
                }),
                native,
            ),
            options,
        );
        let (stop, stopped) = watch::channel(false);
        Running {
            stop,
            node: tokio::spawn(Arc::new(node).run(stopped)),
        }
    }

    pub(crate) async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client
            .start_execution(function, json(input), None)
            .await
            .unwrap()
            .execution
    }

    /// Starts a function and lets a node run it until it waits.
    pub(crate) async fn waiting(&self, function: &str, input: &str) -> ExecutionId {
        let node = self.node();
        let id = self.start(function, input).await;
        tokio::time::sleep(Duration::from_millis(900)).await;
        node.stop().await;
        id
    }

    pub(crate) async fn explain(&self, id: ExecutionId) -> ExecutionExplanation {
        explain::explain_execution(&self.client, id).await.unwrap()
    }

    pub(crate) async fn findings(&self) -> Vec<DoctorFinding> {
        let mut found = Vec::new();
        let mut report = |finding: &DoctorFinding| {
            found.push(finding.clone());
            Ok(())
        };
        doctor::examine_store(&*self.store, None, &mut report, |_| ())
            .await
            .unwrap();
        found
    }

    pub(crate) async fn codes(&self) -> Vec<Found> {
        self.findings()
            .await
            .into_iter()
            .map(|finding| finding.code)
            .collect()
    }

    /// Changes the row of an execution without the engine.
    pub(crate) async fn tamper(&self, id: ExecutionId, change: impl FnOnce(&mut ExecutionRow)) {
        let (mut row, version) = self.row(id).await;
        change(&mut row);
        self.store
            .commit(Commit::new().update(&row, version))
            .await
            .unwrap();
    }

    pub(crate) async fn row(&self, id: ExecutionId) -> (ExecutionRow, u64) {
        self.store
            .read_record(RowKey(vec![id.to_value()]))
            .await
            .unwrap()
            .unwrap()
    }

    /// Appends to a journal without the engine.
    pub(crate) async fn append(&self, id: ExecutionId, events: &[Event]) {
        let expected = self.client.read_journal(id).await.unwrap().len() as u64;
        let timestamp = self.store.now().await.unwrap();
        let numbered: Vec<JournalEvent> = (expected..)
            .zip(events)
            .map(|(sequence, event)| JournalEvent {
                sequence,
                timestamp,
                event: event.clone(),
            })
            .collect();
        let records = codec::encode_record(id, &numbered).unwrap().into();
        let count = u32::try_from(events.len()).unwrap();
        self.store
            .commit(Commit::new().append_journal(JournalAppend {
                execution: id,
                expected_length: expected,
                count,
                records,
            }))
            .await
            .unwrap();
    }

    /// The children that an execution waits for.
    pub(crate) async fn children(&self, id: ExecutionId) -> Vec<ExecutionId> {
        let child = |recorded: JournalEvent| match recorded.event {
            Event::InvokeStarted { performer, .. } => performer.child_execution(),
            _ => None,
        };
        self.client
            .read_journal(id)
            .await
            .unwrap()
            .into_iter()
            .filter_map(child)
            .collect()
    }
}
