//! Demo of an order workflow whose process is killed halfway: another process completes it, and
//! each result is recorded once.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use onward_base::{Payload, Scope, Timestamp};
use onward_embed::WasmComponentRuntime;
use onward_engine::client::{EngineClient, TakeoverPolicy};
use onward_journal::{AwaitKind, Event, ExecutionId, JournalEvent};
use onward_store_sqlite::{Options, SqliteStore};

use super::{DemoProcess, STEP_TIMEOUT, print_step};
use crate::console;

/// The compiled order workflow of `examples/workflows/orders`.
const ORDERS_COMPONENT: &[u8] =
    include_bytes!("../../../../../examples/workflows/built/orders.wasm");

const ORDER_INPUT: &str = r#"{"customer":"Ada","item":"lamp","quantity":2}"#;
const APPROVAL_PAYLOAD: &str = r#"{"approved":true,"by":"Grace"}"#;

/// Lease: how soon another process takes over from a dead one. The default in production is five
/// seconds.
const LEASE_MS: u64 = 1_000;

/// Number of journal events after which the first process is killed: the warehouse task has not
/// completed yet.
const KILL_AFTER: usize = 6;

/// Plays the order demo with a store in `folder`.
pub(super) async fn play_order(folder: &Path) -> anyhow::Result<()> {
    let demo = OrderDemo::new(&folder.join("onward.db")).await?;
    demo.run_script().await?;
    demo.print_next_steps()?;
    Ok(())
}

struct OrderDemo {
    client: EngineClient,
    url: String,
    execution: ExecutionId,
}

impl OrderDemo {
    async fn new(file: &Path) -> anyhow::Result<Self> {
        let store = SqliteStore::open(file, Options::default())?;
        let scope = Scope {
            tenant: "default".parse()?,
            project: "default".parse()?,
            environment: "default".parse()?,
        };
        let client = EngineClient::new(Arc::new(store), scope);
        client
            .deploy_component(
                ORDERS_COMPONENT,
                &WasmComponentRuntime::with_defaults()?.read_functions(ORDERS_COMPONENT, &[])?,
                &[],
                TakeoverPolicy::Refuse,
            )
            .await?;
        let started = client
            .start_execution("order", Payload::parse(ORDER_INPUT)?, Some("demo"))
            .await?;
        if started.already_existed {
            bail!(
                "{} already contains an order: use --folder with another folder",
                file.display()
            );
        }
        Ok(Self {
            client,
            url: format!("sqlite:{}", file.display()),
            execution: started.execution,
        })
    }

    async fn run_script(&self) -> anyhow::Result<()> {
        print_step("started an order: two lamps for Ada")?;
        let first = spawn_node(&self.url)?;
        print_step(&format!("process {} runs it", first.pid()))?;
        self.wait_until(|events| events.len() >= KILL_AFTER).await?;
        let killed = first.pid();
        first.kill()?;
        let before = self.read_events().await?.len();
        print_step(&format!(
            "process {killed} killed with SIGKILL after {before} events"
        ))?;
        let second = spawn_node(&self.url)?;
        print_step(&format!("process {} takes over", second.pid()))?;
        self.wait_until(waits_for_approval).await?;
        print_step("the order waits for an approval; the demo sends it")?;
        self.client
            .send_signal(
                self.execution,
                "approval".parse()?,
                Payload::parse(APPROVAL_PAYLOAD)?,
                Some("demo"),
            )
            .await?;
        let events = self
            .wait_until(|events| events.last().is_some_and(is_terminal_event))
            .await?;
        let taken_over = second.pid();
        second.kill()?;
        self.print_timeline(&events, before, killed, taken_over)?;
        print_summary(&events)
    }

    async fn read_events(&self) -> anyhow::Result<Vec<JournalEvent>> {
        Ok(self.client.read_journal(self.execution).await?)
    }

    /// Polls the journal until `condition` holds. Fails after [`STEP_TIMEOUT`].
    async fn wait_until(
        &self,
        condition: impl Fn(&[JournalEvent]) -> bool,
    ) -> anyhow::Result<Vec<JournalEvent>> {
        let polling = async {
            loop {
                let events = self.read_events().await?;
                if condition(&events) {
                    return Ok(events);
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(STEP_TIMEOUT, polling)
            .await
            .context("the demo made no progress for a minute: this is a defect")?
    }

    fn print_timeline(
        &self,
        events: &[JournalEvent],
        before: usize,
        killed: u32,
        next: u32,
    ) -> anyhow::Result<()> {
        let mut out = console::text_output();
        let started_at = events
            .first()
            .map_or(Timestamp::EPOCH, |first| first.timestamp);
        writeln!(out, "\n   time  event")?;
        for (place, event) in events.iter().enumerate() {
            if place == before {
                writeln!(
                    out,
                    "         ──── process {killed} was killed here; process {next} continues ────"
                )?;
            }
            let ms = (event.timestamp.as_micros() - started_at.as_micros()) / 1_000;
            writeln!(
                out,
                "{:>4}.{:03}  {}",
                ms / 1_000,
                ms % 1_000,
                event.event.describe(self.execution)
            )?;
        }
        Ok(())
    }

    fn print_next_steps(&self) -> anyhow::Result<()> {
        let id = &self.execution.to_string()[..8];
        let mut out = console::text_output();
        writeln!(out, "\nThe store is kept. Try:")?;
        writeln!(out, "  export ONWARD_STORE={}", self.url)?;
        for command in [
            format!("onward show {id}"),
            format!("onward journal show {id} | onward journal check -"),
            format!("onward journal replay {id}"),
            "onward start order '{\"customer\":\"Linus\",\"item\":\"desk\",\"quantity\":1}' --key mine --wait"
                .to_owned(),
            "onward signal ID approval '{\"approved\":true,\"by\":\"Grace\"}'   # from another terminal, with the id that start prints"
                .to_owned(),
        ] {
            writeln!(out, "  {command}")?;
        }
        Ok(())
    }
}

/// Spawns a node process that runs executions.
fn spawn_node(url: &str) -> anyhow::Result<DemoProcess> {
    DemoProcess::spawn_self(&["node", "--store", url, "--lease-ms", &LEASE_MS.to_string()])
}

fn waits_for_approval(events: &[JournalEvent]) -> bool {
    let is_wait = |event: &Event| {
        matches!(
            event,
            Event::ExecutionAwaiting {
                kind: AwaitKind::Signal(_),
                ..
            }
        )
    };
    events.last().is_some_and(|last| is_wait(&last.event))
}

fn is_terminal_event(last: &JournalEvent) -> bool {
    matches!(
        last.event,
        Event::ExecutionCompleted { .. }
            | Event::ExecutionFailed { .. }
            | Event::ExecutionCancelled { .. }
    )
}

/// Prints how often the result of each task is recorded. Fails unless each is recorded exactly
/// once.
fn print_summary(events: &[JournalEvent]) -> anyhow::Result<()> {
    let mut names = BTreeMap::new();
    let mut results: BTreeMap<String, usize> = BTreeMap::new();
    for recorded in events {
        match &recorded.event {
            Event::InvokeScheduled {
                promise_id,
                function_name,
                ..
            } => {
                names.insert(promise_id.clone(), function_name.to_string());
                results.entry(function_name.to_string()).or_default();
            }
            Event::InvokeCompleted { promise_id, .. } => {
                let name = names.get(promise_id).cloned().unwrap_or_default();
                *results.entry(name).or_default() += 1;
            }
            _ => {}
        }
    }
    let all: Vec<String> = results
        .iter()
        .map(|(name, count)| format!("{name} {count}×"))
        .collect();
    let is_once = results.values().all(|count| *count == 1);
    let outcome = if is_once {
        console::style_success("recorded once each").to_string()
    } else {
        console::style_error("NOT recorded once each").to_string()
    };
    writeln!(
        console::text_output(),
        "\nresults {outcome}: {}",
        all.join(", ")
    )?;
    if is_once {
        Ok(())
    } else {
        bail!("a task result is not recorded exactly once: this is a defect")
    }
}
