//! Deployment of components: stores the code and binds the names of its functions to it.

use onward_base::{Scope, SharedText};
use onward_execution::{GuestFunction, GuestFunctionKind};
use onward_journal::ComponentDigest;
use onward_store::tables::{ComponentRow, DeployedFunctionKind, FunctionRow};
use onward_store::{ColumnCodec as _, Commit, Error, RecordReader as _, RowChange, RowKey};

use serde_json::value::RawValue;

use super::{ClientError, EngineClient};

/// Maximum number of retries of a deployment whose commit conflicts with another commit.
const DEPLOY_RETRIES_MAX: u32 = 20;

impl EngineClient {
    /// Stores a component and binds the names of its functions to it from now on. The functions may
    /// send requests to `hosts`, as far as the process that runs them allows it.
    pub async fn deploy_component(
        &self,
        code: &[u8],
        functions: &[GuestFunction],
        hosts: &[String],
    ) -> Result<ComponentDigest, ClientError> {
        let mut tries = 0;
        loop {
            // A concurrent deployment is ordered before or after this one.
            match self.try_deploy_component(code, functions, hosts).await {
                Err(ClientError::Store(Error::Conflict(_))) if tries < DEPLOY_RETRIES_MAX => {
                    tries += 1
                }
                outcome => return outcome,
            }
        }
    }

    async fn try_deploy_component(
        &self,
        code: &[u8],
        functions: &[GuestFunction],
        hosts: &[String],
    ) -> Result<ComponentDigest, ClientError> {
        let component_digest = ComponentDigest::from_component(code);
        let now = self.store.now().await?;
        let text = stored_functions(functions)?;
        let hosts = SharedText::from(serde_json::to_string(hosts).map_err(Error::corrupt)?);
        let component = ComponentRow {
            component_digest,
            code: code.into(),
            functions: text,
            created_at: now,
        };
        let mut commit = Commit::new().insert_or_keep(&component);
        for function in functions {
            let row = FunctionRow {
                tenant_id: self.scope.tenant.clone(),
                project_id: self.scope.project.clone(),
                environment_id: self.scope.environment.clone(),
                name: (&*function.name).into(),
                kind: deployed_function_kind(function.kind),
                component_digest,
                hosts: hosts.clone(),
                deployed_at: now,
            };
            commit
                .changes
                .push(match self.function_row(&function.name).await? {
                    Some((_, version)) => RowChange::update(&row, version),
                    None => RowChange::insert(&row),
                });
        }
        self.store.commit(commit).await?;
        Ok(component_digest)
    }

    pub(super) async fn function_row(
        &self,
        name: &str,
    ) -> Result<Option<(FunctionRow, u64)>, Error> {
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        let key = [
            tenant.to_value(),
            project.to_value(),
            environment.to_value(),
            SharedText::from(name).to_value(),
        ];
        self.store.read_record(RowKey(key.into())).await
    }
}

const fn deployed_function_kind(kind: GuestFunctionKind) -> DeployedFunctionKind {
    match kind {
        GuestFunctionKind::Workflow => DeployedFunctionKind::Workflow,
        GuestFunctionKind::Task => DeployedFunctionKind::Task,
    }
}

/// The stored form of a function of a component.
#[derive(serde::Serialize)]
struct StoredFunction<'a> {
    name: &'a str,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<&'a RawValue>,
}

fn stored_functions(functions: &[GuestFunction]) -> Result<SharedText, Error> {
    let stored: Vec<StoredFunction<'_>> = functions
        .iter()
        .map(|function| StoredFunction {
            name: &function.name,
            kind: function.kind.as_str(),
            schema: function
                .schema
                .as_ref()
                .and_then(|schema| serde_json::from_str(schema.as_str()).ok()),
        })
        .collect();
    let text = serde_json::to_string(&stored).map_err(Error::corrupt)?;
    Ok(text.into())
}
