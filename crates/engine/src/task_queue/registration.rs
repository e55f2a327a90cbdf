//! Registration of the functions that workers perform: a function that no component has is resolved
//! to a worker once a worker has asked for it.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_base::{Scope, SharedText, Timestamp};
use onward_store::tables::{FunctionRow, TaskRow, WorkerFunctionRow};
use onward_store::{ColumnCodec as _, Commit, Error, RecordReader as _, RowChange, RowKey, Store};
use tokio::time::Instant;

use super::{CONFLICT_RETRIES_MAX, ClaimRequest};
use crate::client::{ClientError, EngineClient};

/// How long a process skips registering a function again after a worker asked for it.
const REGISTRATION_TTL: Duration = Duration::from_secs(60);

impl EngineClient {
    /// Registers that workers perform these functions. Of functions that a component has, a worker
    /// gets only the tasks that were queued before the deployment. Fails if every requested
    /// function is deployed in a component.
    pub(super) async fn register_worker_functions(
        &self,
        request: &ClaimRequest,
    ) -> Result<(), ClientError> {
        let mut deployed = None;
        let mut is_any_ours = false;
        for function in &request.functions {
            if self.is_recently_registered(function)
                || self
                    .register_worker_function(function, &request.worker)
                    .await?
            {
                is_any_ours = true;
            } else {
                deployed = Some(function);
            }
        }
        match deployed {
            Some(function) if !is_any_ours => {
                Err(ClientError::FunctionDeployed(function.to_string()))
            }
            _ => Ok(()),
        }
    }

    fn is_recently_registered(&self, function: &SharedText) -> bool {
        let Some(hub) = self.local_hub() else {
            return false;
        };
        let asked = hub
            .registered_functions
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        asked
            .get(&(self.owner_key(), function.clone()))
            .is_some_and(|at| at.elapsed() < REGISTRATION_TTL)
    }

    /// Registers one function for workers. Returns `false` if a component has the function.
    async fn register_worker_function(
        &self,
        function: &SharedText,
        worker: &SharedText,
    ) -> Result<bool, ClientError> {
        let Scope {
            tenant,
            project,
            environment,
        } = self.scope();
        let key = RowKey(vec![
            tenant.to_value(),
            project.to_value(),
            environment.to_value(),
            function.to_value(),
        ]);
        let deployed: Option<(FunctionRow, u64)> = self.store().read_record(key.clone()).await?;
        if deployed.is_some() {
            return Ok(false);
        }
        for _ in 0..CONFLICT_RETRIES_MAX {
            let known: Option<(WorkerFunctionRow, u64)> =
                self.store().read_record(key.clone()).await?;
            let row = WorkerFunctionRow {
                tenant_id: tenant.clone(),
                project_id: project.clone(),
                environment_id: environment.clone(),
                name: function.clone(),
                worker: worker.clone(),
                asked_at: self.store().now().await?,
            };
            let change = known.map_or_else(
                || RowChange::insert(&row),
                |(_, version)| RowChange::update(&row, version),
            );
            let mut commit = Commit::new();
            commit.changes.push(change);
            match self.store().commit(commit).await {
                Ok(_) => break,
                Err(Error::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if let Some(hub) = self.local_hub() {
            let mut asked = hub
                .registered_functions
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            asked.retain(|_, at| at.elapsed() < REGISTRATION_TTL);
            asked.insert((self.owner_key(), function.clone()), Instant::now());
        }
        Ok(true)
    }
}

/// For each function of these tasks, the worker that asked for it last, and when.
pub async fn worker_registrations(
    store: &dyn Store,
    tasks: &[TaskRow],
) -> Result<BTreeMap<SharedText, (SharedText, Timestamp)>, Error> {
    let mut asked = BTreeMap::new();
    for TaskRow {
        tenant_id,
        project_id,
        environment_id,
        function,
        ..
    } in tasks
    {
        let key = [
            tenant_id.to_value(),
            project_id.to_value(),
            environment_id.to_value(),
            function.to_value(),
        ];
        let row: Option<(WorkerFunctionRow, u64)> = store.read_record(RowKey(key.into())).await?;
        asked.extend(row.map(|(row, _)| (row.name, (row.worker, row.asked_at))));
    }
    Ok(asked)
}
