//! Journals as they are asked for: JSON Lines in, events out.

use anyhow::Context as _;
use onward_api::OnwardApi;
use onward_journal::jsonl::JournalLineReader;
use onward_journal::{ExecutionId, JournalEvent};

use crate::retry::retry_transient;

/// The journal of an execution, from the event with sequence `from` on. Where there is none yet, one is waited for.
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
        .map(|line| reader.read_line(line).context("its journal cannot be read"))
        .collect()
}
