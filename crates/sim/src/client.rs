//! Whoever starts executions and sends them messages. It knows the store alone.

use onward_engine::shard::{cancel, signal};
use onward_execution::{Execution as InMemory, Limits, Start};
use onward_journal::{ExecutionId, Text, Timestamp, codec};
use onward_store::memory::Memory;
use onward_store::tables::Execution;
use onward_store::{Commit, Error, JournalAppend, Shard, Store as _};

use crate::now::now;
use crate::scripts::{digest, number};

pub(crate) const SHARD: Shard = Shard(0);

/// An execution that is to be started, and its row.
pub(crate) fn beginning(function: &str, input: u64, key: &str, at: Timestamp) -> Result<(Execution, InMemory), Error> {
    let id = ExecutionId::derive(&digest(), None, key);
    let start = Start {
        component_digest: digest(),
        input: number(input),
        parent: None,
        key: Some(Text::from(key)),
        signals: Vec::new(),
    };
    let execution = InMemory::start(id, start, at, Limits::default()).map_err(Error::corrupt)?;
    let row = Execution {
        execution_id: id,
        tenant_id: "acme".parse().map_err(Error::corrupt)?,
        project_id: "shop".parse().map_err(Error::corrupt)?,
        environment_id: "prod".parse().map_err(Error::corrupt)?,
        shard: SHARD,
        function: function.into(),
        component_digest: digest(),
        start_key: Some(key.into()),
        state: "Running".into(),
        wake_at: at,
        created_at: at,
        body: [].into(),
    };
    Ok((row, execution))
}

/// Starts an execution, unless the key has started one already.
pub(crate) fn start(
    store: &Memory,
    function: &str,
    input: u64,
    key: &str,
    at: Timestamp,
) -> Result<ExecutionId, Error> {
    let (row, mut execution) = beginning(function, input, key, at)?;
    let id = row.execution_id;
    let records = codec::encode(id, execution.take_events()).map_err(Error::corrupt)?;
    let append = JournalAppend { execution: id, expected: 0, count: 1, records: records.into() };
    now(store.commit(Commit::new().insert(&row).journal(append)))?;
    Ok(id)
}

/// Sends the signal that waiters wait for, twice: the second time it does nothing.
pub(crate) fn send_go(store: &Memory, to: ExecutionId, at: Timestamp) -> Result<(), Error> {
    for _ in 0..2 {
        let name = "go".parse().map_err(Error::corrupt)?;
        let message = signal(to, SHARD, name, number(7), Some("go-1".into()), at)?;
        now(store.commit(Commit::new().insert_or_keep(&message)))?;
    }
    Ok(())
}

/// Asks for cancellation.
pub(crate) fn send_cancel(store: &Memory, to: ExecutionId, at: Timestamp) -> Result<(), Error> {
    let message = cancel(to, SHARD, "enough".into(), at)?;
    now(store.commit(Commit::new().insert_or_keep(&message))).map(drop)
}
