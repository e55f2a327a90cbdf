//! Start of an execution: once per idempotency key, through the shard owner if it is in this
//! process, otherwise through the store.

use onward_base::{Payload, Scope, SharedText};
use onward_execution::{Execution as InMemory, ExecutionStart};
use onward_journal::{Event, ExecutionId, ExecutionState, codec};
use onward_store::tables::{DeployedFunctionKind, ExecutionRow, FunctionRow};
use onward_store::{
    ColumnCodec as _, Commit, CommitConflict, Error, JournalAppend, TableRecord as _,
};

use super::{ClientError, EngineClient, StartedExecution, random_key, shard_of};
use crate::node::ShardHint;

impl EngineClient {
    /// Starts a workflow. If the idempotency key `key` has already started one, returns that
    /// execution.
    pub async fn start_execution(
        &self,
        function: &str,
        input: Payload,
        key: Option<&str>,
    ) -> Result<StartedExecution, ClientError> {
        let (id, deployed) = self.prepare_start(function, &input, key).await?;
        self.start_with_id(id, &deployed, input, key).await
    }

    /// Returns the execution id and the deployed function that a start with these arguments would
    /// use. Fails if the payload is too large or the function is missing or not a workflow.
    pub(crate) async fn prepare_start(
        &self,
        function: &str,
        input: &Payload,
        key: Option<&str>,
    ) -> Result<(ExecutionId, FunctionRow), ClientError> {
        self.check_payload_size(input)?;
        let Some((deployed, _)) = self.function_row(function).await? else {
            return Err(ClientError::FunctionNotFound(function.to_owned()));
        };
        match deployed.kind {
            DeployedFunctionKind::Workflow => {}
            DeployedFunctionKind::Task => {
                return Err(ClientError::NotAWorkflow(function.to_owned()));
            }
        }
        let made = key.map_or_else(random_key, str::to_owned);
        let Scope {
            tenant,
            project,
            environment,
        } = &self.scope;
        // Idempotency keys are unique within a scope and a function, execution ids are globally
        // unique.
        let owner = [&**tenant, &**project, &**environment, function];
        let id = ExecutionId::derive_start(&deployed.component_digest, owner, &made);
        Ok((id, deployed))
    }

    pub(crate) async fn start_with_id(
        &self,
        id: ExecutionId,
        deployed: &FunctionRow,
        input: Payload,
        key: Option<&str>,
    ) -> Result<StartedExecution, ClientError> {
        let conflict = match self
            .insert_execution(id, deployed, input.clone(), key)
            .await
        {
            Ok(()) => {
                return Ok(StartedExecution {
                    execution: id,
                    already_existed: false,
                });
            }
            Err(Error::Conflict(conflict)) => conflict,
            Err(error) => return Err(error.into()),
        };
        let existing = match &conflict {
            // The same key with the same component.
            CommitConflict::JournalLength { execution, .. } => {
                Some(*execution).filter(|it| *it == id)
            }
            // The same key with the same component, or with a component that was deployed before.
            CommitConflict::RowExists { table, key }
            | CommitConflict::NotUnique { table, key, .. } => key
                .0
                .first()
                .filter(|_| *table == ExecutionRow::TABLE.name)
                .and_then(ExecutionId::from_value),
            _ => None,
        };
        let begun_with = match existing {
            Some(execution) => self
                .execution_input(execution)
                .await?
                .map(|first| (execution, first)),
            None => None,
        };
        match begun_with {
            Some((execution, first)) if is_same_json(first.as_str(), input.as_str()) => {
                Ok(StartedExecution {
                    execution,
                    already_existed: key.is_some(),
                })
            }
            Some((execution, _)) => Err(ClientError::IdempotencyKeyConflict(execution)),
            None => Err(Error::from(conflict).into()),
        }
    }

    /// Returns the input that an execution was started with.
    async fn execution_input(&self, execution: ExecutionId) -> Result<Option<Payload>, Error> {
        let Some(chunk) = self
            .store
            .read_journal(execution, 0, 1)
            .await?
            .into_iter()
            .next()
        else {
            return Ok(None);
        };
        let events = codec::decode_record(execution, &chunk.records).map_err(Error::corrupt)?;
        Ok(events
            .into_iter()
            .next()
            .and_then(|first| match first.event {
                Event::ExecutionStarted { input, .. } => Some(input),
                _ => None,
            }))
    }

    async fn insert_execution(
        &self,
        id: ExecutionId,
        deployed: &FunctionRow,
        input: Payload,
        key: Option<&str>,
    ) -> Result<(), Error> {
        let now = self.store.now().await?;
        let component_digest = deployed.component_digest;
        let key = key.map(SharedText::from);
        let start = ExecutionStart {
            component_digest,
            input,
            parent: None,
            key: key.clone(),
            signals: Vec::new(),
        };
        let mut execution = InMemory::start(id, start, now, self.limits).map_err(Error::corrupt)?;
        let row = ExecutionRow {
            execution_id: id,
            tenant_id: self.scope.tenant.clone(),
            project_id: self.scope.project.clone(),
            environment_id: self.scope.environment.clone(),
            shard: shard_of(&id),
            function: deployed.name.clone(),
            component_digest,
            start_key: key,
            state: ExecutionState::Running,
            wake_at: now,
            created_at: now,
            body: [].into(),
        };
        if let Some(hub) = &self.hub
            && let Some(started) = hub.request_start(&row, &execution).await
        {
            return started;
        }
        let events = execution.take_events().to_vec();
        let records = codec::encode_record(id, &events).map_err(Error::corrupt)?;
        let append = JournalAppend {
            execution: id,
            expected_length: 0,
            count: 1,
            records: records.into(),
        };
        self.store
            .commit(Commit::new().insert(&row).append_journal(append))
            .await?;
        self.notify_shard(
            row.shard,
            ShardHint::ExecutionStarted(Box::new(row), events),
        );
        Ok(())
    }
}

/// Whether two JSON texts are equal apart from white space between tokens.
fn is_same_json(one: &str, other: &str) -> bool {
    strip_json_whitespace(one).eq(strip_json_whitespace(other))
}

/// The bytes of a JSON text without the white space between tokens.
fn strip_json_whitespace(text: &str) -> impl Iterator<Item = u8> {
    let (mut in_string, mut is_escaped) = (false, false);
    text.bytes().filter(move |byte| {
        let is_part = in_string || !byte.is_ascii_whitespace();
        if *byte == b'"' && !is_escaped {
            in_string = !in_string;
        }
        is_escaped = in_string && *byte == b'\\' && !is_escaped;
        is_part
    })
}

#[cfg(test)]
mod tests {
    use super::is_same_json;

    #[test]
    fn white_space_counts_inside_of_strings_only() {
        assert!(is_same_json(
            r#"{"a": [1, "x y"]}"#,
            "{ \"a\":[1,\"x y\"] }\n"
        ));
        assert!(is_same_json(r#""\\" "#, r#""\\""#));
        for (one, other) in [
            (r#""x y""#, r#""xy""#),
            (r#""\" ""#, r#""\"""#),
            ("[1,2]", "[2,1]"),
            ("1", "1.0"),
            ("[1]", "[1"),
        ] {
            assert!(!is_same_json(one, other), "{one} {other}");
        }
    }
}
