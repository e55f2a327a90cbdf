//! Reads the messages that are waiting for an execution, for read-only views of it.

use onward_journal::ExecutionId;
use onward_store::tables::InboxMessageRow;
use onward_store::{Error, RecordReader as _, ShardId, Store, TableScan};

/// Returns the messages to an execution, in the order in which they were sent.
pub async fn messages_to(
    store: &dyn Store,
    shard: ShardId,
    to: ExecutionId,
) -> Result<Vec<InboxMessageRow>, Error> {
    let mut found = Vec::new();
    let mut scan =
        TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD).where_equal(&shard);
    loop {
        let page: Vec<(InboxMessageRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else {
            return Ok(found);
        };
        scan = scan.starting_after(last);
        found.extend(
            page.into_iter()
                .map(|(message, _)| message)
                .filter(|message| message.execution_id == to),
        );
    }
}
