//! Waiting for the end of an execution, wherever it runs.

use std::time::Duration;

use onward_execution::Ending;
use onward_journal::{ExecutionId, InvokeResult};

use crate::client::{Client, Refused};

/// How often to look for the end of an execution that another process may run.
const LOOK: Duration = Duration::from_millis(100);

impl Client {
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
        let Some(nearby) = self.nearby() else {
            loop {
                if let Some(ending) = self.ending(id).await? {
                    return Ok(ending);
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let mut here = nearby.ending(id);
        let mut is_fresh = nearby.is_fresh(id);
        loop {
            if !std::mem::take(&mut is_fresh)
                && let Some(ending) = self.ending(id).await?
            {
                return Ok(ending);
            }
            // Another process may run it; then nothing is heard here.
            if let Ok(Ok(ending)) = tokio::time::timeout(LOOK, &mut here.told).await {
                return Ok(ending);
            }
        }
    }
}
