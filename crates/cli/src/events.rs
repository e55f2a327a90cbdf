//! Journals as they are asked for: JSON Lines in, events out.

use anyhow::Context as _;
use onward_api::Onward;
use onward_journal::jsonl::Reader;
use onward_journal::{ExecutionId, JournalEvent};

use crate::waiting::persist;

/// The journal of an execution, from the event with sequence `from` on. Where there is none yet, one is waited for.
pub(crate) async fn of(
    onward: &dyn Onward,
    id: ExecutionId,
    from: u64,
    wait_ms: u64,
) -> anyhow::Result<Vec<JournalEvent>> {
    let lines = persist(async || onward.journal(&id.to_string(), from, wait_ms).await).await?;
    let mut reader = Reader::of(id);
    lines.lines().map(|line| reader.read(line).context("its journal cannot be read")).collect()
}
