//! What can be asked of Onward, answered from a store. The server says it over HTTP, the command line without one.

mod audience;
mod campaigns;
mod executions;
mod refused;
mod runs;
mod tasks;
mod told;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_api::Onward;
use onward_api::component::{Deployed, FunctionKind, NamedFunction};
use onward_api::execution::{Cancel, Execution, ExecutionPage, Listing, Outcome, Sent, Signal, Start, Started};
use onward_api::explanation::Explanation;
use onward_api::finding::{Class, Finding, Heard, Verdict};
use onward_api::problem::{Code, Problem};
use onward_api::run::{self, Append, Appended, RunEventPage, RunSnapshot, Verified};
use onward_api::task::{TaskListing, TaskPage};
use onward_dispatcher::Looked;
use onward_engine::client::{Client, Scope};
use onward_engine::node::{self, Node};
use onward_engine::{doctor, explain};
use onward_journal::Text;
use onward_outlets::House;
use onward_store::tables::{Component, Function};
use onward_store::{Field as _, Key, Records as _, Scan};
use tokio::sync::watch;

pub use self::campaigns::previewed;
pub(crate) use self::refused::store;
use self::refused::{fitting, problem};
use crate::Stage;

/// Characters of the reason why an execution is to stop.
const REASON_MAX: usize = 1_024;

/// Access to a store on behalf of somebody.
#[derive(Clone)]
pub struct Service {
    client: Client,
    code: Option<Arc<dyn node::Code>>,
    node: Option<Arc<Node>>,
    /// Whether things of everybody are meant: whoever has the whole store has them anyway.
    has_all: bool,
    /// How campaigns reach people here, if they do.
    house: Option<Arc<House>>,
    /// What the token is called of whoever asks, if there is one.
    asker: Option<Text>,
    /// Says when nobody should wait for anything any more.
    stage: Option<watch::Receiver<Stage>>,
}

impl Service {
    /// Access to what the client sees.
    pub const fn new(client: Client) -> Self {
        Self { client, code: None, node: None, has_all: false, house: None, asker: None, stage: None }
    }

    /// The same, for whoever has the whole store: runs are found, and everything is checked, whoever it belongs to.
    #[must_use]
    pub fn with_all(self) -> Self {
        Self { has_all: true, ..self }
    }

    /// The same, until a server stops: whoever waits for something is answered then, with what is known.
    #[must_use]
    pub fn until(self, stage: watch::Receiver<Stage>) -> Self {
        Self { stage: Some(stage), ..self }
    }

    /// Waits so long, but not for a server that stops.
    async fn patience(&self, wait_ms: u64) {
        let stops = async {
            match &self.stage {
                Some(stage) => drop(stage.clone().wait_for(|stage| *stage >= Stage::Stopping).await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = tokio::time::sleep(Duration::from_millis(wait_ms)) => {}
            () = stops => {}
        }
    }

    /// Whether nobody should wait any more.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stage.as_ref().is_some_and(|stage| *stage.borrow() >= Stage::Stopping)
    }

    /// Whose things are checked; everybody's unless that says.
    fn checked(&self) -> Option<&Scope> {
        (!self.has_all).then(|| self.client.scope())
    }

    /// The same, able to look into components that are to be deployed.
    #[must_use]
    pub fn with_code(self, code: Arc<dyn node::Code>) -> Self {
        Self { code: Some(code), ..self }
    }

    /// The same, able to say whether campaigns can reach people.
    #[must_use]
    pub fn with_house(self, house: Arc<House>) -> Self {
        Self { house: Some(house), ..self }
    }

    /// The same, asked with a token of this name.
    #[must_use]
    pub(crate) fn asked_by(self, asker: Option<Text>) -> Self {
        Self { asker, ..self }
    }

    /// The same, beside a node of this process.
    #[must_use]
    pub fn beside(self, node: &Arc<Node>) -> Self {
        Self { client: self.client.beside(node), node: Some(Arc::clone(node)), ..self }
    }

    /// The same for another owner.
    #[must_use]
    pub fn of(&self, scope: Scope) -> Self {
        Self { client: self.client.of(scope), has_all: false, ..self.clone() }
    }

    /// The node beside it, if there is one.
    pub(crate) fn node(&self) -> Option<&Node> {
        self.node.as_deref()
    }

    /// Access to the store.
    pub const fn client(&self) -> &Client {
        &self.client
    }
}

#[async_trait]
impl Onward for Service {
    async fn deploy(&self, code: Vec<u8>, hosts: Vec<String>) -> Result<Deployed, Problem> {
        let Some(runtime) = &self.code else {
            return Err(Problem::new(Code::Unavailable, "nothing here can run a component"));
        };
        let functions = runtime.functions(&code, &hosts).await;
        let functions = functions.map_err(|reason| Problem::new(Code::BadComponent, reason))?;
        let digest = self.client.deploy(&code, &functions, &hosts).await.map_err(problem)?;
        if let Some(node) = &self.node {
            node.learn().await.map_err(store)?;
        }
        Ok(Deployed { component: digest.to_string(), functions })
    }

    async fn component(&self, execution: &str) -> Result<Vec<u8>, Problem> {
        let digest = self.find(execution).await?.component_digest;
        let row: Option<(Component, u64)> =
            self.client.store().get(Key(vec![digest.to_value()])).await.map_err(store)?;
        let absent = || Problem::new(Code::NoComponent, format!("component {digest} is not in the store"));
        row.map(|(component, _)| component.code.to_vec()).ok_or_else(absent)
    }

    async fn functions(&self) -> Result<Vec<NamedFunction>, Problem> {
        let Scope { tenant, project, environment } = self.client.scope();
        let mut scan = Scan::all::<Function>().equal(tenant).equal(project).equal(environment);
        let mut all = Vec::new();
        loop {
            let rows: Vec<(Function, u64)> = self.client.store().list(scan.clone()).await.map_err(store)?;
            let Some((last, _)) = rows.last() else { return Ok(all) };
            scan = scan.after(last);
            for (row, _) in rows {
                let is_workflow = &*row.kind == FunctionKind::Workflow.as_str();
                all.push(NamedFunction {
                    name: row.name.to_string(),
                    kind: if is_workflow { FunctionKind::Workflow } else { FunctionKind::Task },
                    component: row.component_digest.to_string(),
                    hosts: serde_json::from_str(&row.hosts).unwrap_or_default(),
                    deployed_at: row.deployed_at.to_string(),
                });
            }
        }
    }

    async fn start(&self, start: Start) -> Result<Started, Problem> {
        self.start_one(start).await
    }

    async fn outcome(&self, execution: &str, wait_ms: u64) -> Result<Outcome, Problem> {
        let row = self.find(execution).await?;
        self.outcome_of(row.execution_id, wait_ms).await
    }

    async fn executions(&self, listing: Listing) -> Result<ExecutionPage, Problem> {
        self.list(&listing).await
    }

    async fn execution(&self, execution: &str) -> Result<Execution, Problem> {
        let row = self.find(execution).await?;
        self.show(&row).await
    }

    async fn journal(&self, execution: &str, from: u64, wait_ms: u64) -> Result<String, Problem> {
        let row = self.find(execution).await?;
        self.journal_of(&row, from, wait_ms).await
    }

    async fn explain(&self, execution: &str) -> Result<Explanation, Problem> {
        let row = self.find(execution).await?;
        explain::of(&self.client, row.execution_id).await.map_err(problem)
    }

    async fn signal(&self, execution: &str, signal: Signal) -> Result<Sent, Problem> {
        self.send_signal(execution, signal).await
    }

    async fn cancel(&self, execution: &str, cancel: Cancel) -> Result<Sent, Problem> {
        let row = self.find(execution).await?;
        fitting("the reason", &cancel.reason, REASON_MAX)?;
        self.client.cancel(row.execution_id, &cancel.reason).await.map_err(problem)?;
        Ok(Sent { execution: row.execution_id.to_string(), sent: "cancel".to_owned() })
    }

    async fn tasks(&self, listing: TaskListing) -> Result<TaskPage, Problem> {
        self.list_tasks(&listing).await
    }

    async fn doctor(&self, hear: &mut (dyn FnMut(Heard) + Send)) -> Result<Verdict, Problem> {
        let (mut findings, mut warnings) = (0, 0);
        let hear = Mutex::new(hear);
        let say = |heard| (hear.lock().unwrap_or_else(PoisonError::into_inner))(heard);
        let mut report = |finding: &Finding| -> io::Result<()> {
            *(if finding.class == Class::Warning { &mut warnings } else { &mut findings }) += 1;
            say(Heard::Found(finding.clone()));
            Ok(())
        };
        let looked = doctor::all(&**self.client.store(), self.checked(), &mut report, |tally| {
            say(Heard::Looked { executions: tally.executions, events: tally.events });
        });
        let looked = looked.await;
        let doctor::Tally { executions, events, messages } =
            looked.map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
        let looked = self.examine_campaigns(&mut report).await?;
        let Looked { runs: campaign_runs, items } = looked;
        let ok = findings == 0;
        Ok(Verdict { ok, executions, events, messages, campaign_runs, items, findings, warnings })
    }

    async fn append(&self, append: Append) -> Result<Vec<Appended>, Problem> {
        self.append_all(append).await
    }

    async fn run_events(&self, run: &str, after: u64, limit: u32, wait_ms: u64) -> Result<RunEventPage, Problem> {
        self.events_of(run, after, limit, wait_ms).await
    }

    async fn verify(
        &self,
        run: Option<&str>,
        accept_v1_keys: bool,
        hear: &mut (dyn FnMut(run::Heard) + Send),
    ) -> Result<Verified, Problem> {
        self.verify_runs(run, accept_v1_keys, hear).await
    }

    async fn snapshot(&self, run: &str, project: bool) -> Result<RunSnapshot, Problem> {
        self.snapshot_of(run, project).await
    }
}
