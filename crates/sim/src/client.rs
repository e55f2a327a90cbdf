//! The simulated client: starts executions and sends them messages. It uses the store only.

use onward_base::{SharedText, Timestamp};
use onward_engine::shard::{cancel_message, signal_message};
use onward_execution::{Execution, ExecutionLimits, ExecutionStart};
use onward_journal::{ExecutionId, ExecutionState, codec};
use onward_store::memory::MemoryStore;
use onward_store::tables::ExecutionRow;
use onward_store::{Commit, Error, JournalAppend, ShardId, Store as _};

use crate::ready_future::poll_ready;
use crate::scripts::{component_digest, number_payload};

pub(crate) const SHARD: ShardId = ShardId(0);

/// Creates a new execution and its row.
pub(crate) fn new_execution(
    function: &str,
    input: u64,
    key: &str,
    at: Timestamp,
) -> Result<(ExecutionRow, Execution), Error> {
    let id = ExecutionId::derive(&component_digest(), None, key);
    let start = ExecutionStart {
        component_digest: component_digest(),
        input: number_payload(input),
        parent: None,
        key: Some(SharedText::from(key)),
        signals: Vec::new(),
    };
    let execution =
        Execution::start(id, start, at, ExecutionLimits::default()).map_err(Error::corrupt)?;
    let row = ExecutionRow {
        execution_id: id,
        tenant_id: "acme".parse().map_err(Error::corrupt)?,
        project_id: "shop".parse().map_err(Error::corrupt)?,
        environment_id: "prod".parse().map_err(Error::corrupt)?,
        shard: SHARD,
        function: function.into(),
        component_digest: component_digest(),
        start_key: Some(key.into()),
        state: ExecutionState::Running,
        wake_at: at,
        created_at: at,
        body: [].into(),
    };
    Ok((row, execution))
}

/// Starts an execution. Fails if the key has already started one.
pub(crate) fn start_execution(
    store: &MemoryStore,
    function: &str,
    input: u64,
    key: &str,
    at: Timestamp,
) -> Result<ExecutionId, Error> {
    let (row, mut execution) = new_execution(function, input, key, at)?;
    let id = row.execution_id;
    let records = codec::encode_record(id, execution.take_events()).map_err(Error::corrupt)?;
    let append = JournalAppend {
        execution: id,
        expected_length: 0,
        count: 1,
        records: records.into(),
    };
    poll_ready(store.commit(Commit::new().insert(&row).append_journal(append)))?;
    Ok(id)
}

/// Sends the signal that the workflow `waiter` waits for, twice: the second one has no effect.
pub(crate) fn send_go_signal(
    store: &MemoryStore,
    to: ExecutionId,
    at: Timestamp,
) -> Result<(), Error> {
    for _ in 0..2 {
        let name = "go".parse().map_err(Error::corrupt)?;
        let message = signal_message(to, SHARD, name, number_payload(7), Some("go-1".into()), at)?;
        poll_ready(store.commit(Commit::new().insert_or_keep(&message)))?;
    }
    Ok(())
}

/// Requests cancellation of an execution.
pub(crate) fn send_cancel(
    store: &MemoryStore,
    to: ExecutionId,
    at: Timestamp,
) -> Result<(), Error> {
    let message = cancel_message(to, SHARD, "cancelled by the simulation".into(), at)?;
    poll_ready(store.commit(Commit::new().insert_or_keep(&message))).map(drop)
}
