//! What is on its way to executions, for whoever only looks.

use onward_journal::ExecutionId;
use onward_store::tables::Message;
use onward_store::{Error, Records as _, Scan, Shard, Store};

/// The messages to an execution, in the order in which they were sent.
pub(crate) async fn messages_to(store: &dyn Store, shard: Shard, to: ExecutionId) -> Result<Vec<Message>, Error> {
    let mut found = Vec::new();
    let mut scan = Scan::by::<Message>(Message::BY_SHARD).equal(&shard);
    loop {
        let page: Vec<(Message, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = page.last() else { return Ok(found) };
        scan = scan.after(last);
        found.extend(page.into_iter().map(|(message, _)| message).filter(|message| message.execution_id == to));
    }
}
