//! Fetches journals over the API and parses the JSON Lines into events.

use anyhow::Context as _;
use onward_api::OnwardApi;
use onward_journal::jsonl::JournalLineReader;
use onward_journal::{ExecutionId, JournalEvent};

use crate::retry::retry_transient;

/// Returns the events of an execution with sequence `from` and later. If there are none yet, waits
/// up to `wait_ms` for one.
pub(crate) async fn read_journal_events(
    onward: &dyn OnwardApi,
    id: ExecutionId,
    from: u64,
    wait_ms: u64,
) -> anyhow::Result<Vec<JournalEvent>> {
    let lines = retry_transient(async || {
        onward
            .get_execution_journal(&id.to_string(), from, wait_ms)
            .await
    })
    .await?;
    let mut reader = JournalLineReader::for_execution(id);
    lines
        .lines()
        .map(|line| {
            reader
                .read_line(line)
                .with_context(|| format!("cannot read the journal of execution {id}"))
        })
        .collect()
}
