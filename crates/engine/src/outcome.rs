//! Waiting for the end of an execution, wherever it runs.

use std::time::Duration;

use onward_execution::Ending;
use onward_journal::{ExecutionId, InvokeResult, Payload};
use onward_store::Shard;
use tokio::sync::mpsc;

use crate::client::{Client, Refused, Started, shard_of};
use crate::node::Word;

/// How often to look for the end of an execution that another process may run.
const LOOK: Duration = Duration::from_millis(100);

/// After how many looks whoever runs it is told again that somebody waits.
const REMIND: u32 = 50;

impl Client {
    /// Starts a workflow, unless `key` has started one already, and waits for its end, but not for longer than `patience`.
    /// Whoever listens from the beginning hears of the end, and need not look for it.
    pub async fn start_and_wait(
        &self,
        function: &str,
        input: Payload,
        key: Option<&str>,
        patience: impl Future<Output = ()>,
    ) -> Result<(Started, Option<InvokeResult>), Refused> {
        let (id, deployed) = self.to_start(function, &input, key).await?;
        let here = self.nearby().map(|nearby| nearby.ending(id));
        let started = self.start_as(id, &deployed, input, key).await?;
        let over = async {
            let is_new = !started.existed && started.execution == id;
            match here.filter(|_| is_new) {
                Some(mut here) => match self.hear(id, shard_of(&id), &mut here.told, true).await? {
                    Ending::Result(result) => Ok(result),
                    Ending::Continued(next) => self.outcome(next).await,
                },
                None => self.outcome(started.execution).await,
            }
        };
        let result = tokio::select! {
            over = over => Some(over?),
            () = patience => None,
        };
        Ok((started, result))
    }

    /// Waits until an execution, and whoever takes its place, is over.
    pub async fn outcome(&self, execution: ExecutionId) -> Result<InvokeResult, Refused> {
        let mut id = execution;
        loop {
            match self.wait_for(id).await? {
                Ending::Result(result) => return Ok(result),
                Ending::Continued(next) => id = next,
            }
        }
    }

    async fn wait_for(&self, id: ExecutionId) -> Result<Ending, Refused> {
        if let Some(nearby) = self.nearby() {
            let mut here = nearby.ending(id);
            // Children and successors are where their first ancestor is.
            let row = self.execution(id).await?.ok_or(Refused::NoExecution(id))?;
            return self.hear(id, row.shard, &mut here.told, nearby.is_fresh(id)).await;
        }
        loop {
            if let Some(ending) = self.ending(id).await? {
                return Ok(ending);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// What is told here, or found in the store. One that `is_fresh` is not looked for at once.
    async fn hear(
        &self,
        id: ExecutionId,
        shard: Shard,
        told: &mut mpsc::UnboundedReceiver<Option<Ending>>,
        mut is_fresh: bool,
    ) -> Result<Ending, Refused> {
        let mut looks = 0;
        loop {
            // Whoever runs it says when it is over.
            if looks % REMIND == 0 && !self.nearby().is_some_and(|nearby| nearby.owns(shard)) {
                self.store().tell(Word::Awaited(id).to_string());
            }
            if !std::mem::take(&mut is_fresh)
                && let Some(ending) = self.ending(id).await?
            {
                return Ok(ending);
            }
            // Another process may run it; then what is heard here, if anything, is that there is something to look at.
            if let Ok(Some(Some(ending))) = tokio::time::timeout(LOOK, told.recv()).await {
                return Ok(ending);
            }
            looks += 1;
        }
    }
}
