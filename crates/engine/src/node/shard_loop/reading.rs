//! What a shard reads: executions that are due, and its inbox.

use std::sync::Arc;
use std::time::Duration;

use onward_journal::{ExecutionId, Timestamp};
use onward_store::tables::{Execution, Message};
use onward_store::{Error, Field as _, Key, Kind, Records as _, Scan};

use super::Owner;
use crate::client::read_journal;
use crate::node::Node;
use crate::shard::Input;

/// Messages that are read at a time.
const INBOX_PAGE: usize = 200;

impl Owner<'_> {
    /// Executions that are busy, then those that are due by now.
    pub(super) fn due(&self) -> Scan {
        Scan::by::<Execution>(Execution::BY_WAKE).equal(&self.shard).until(&self.time.now())
    }

    /// Begins to read what a scan finds. Returns where to go on if that is too much at a time.
    pub(super) async fn load_due(&mut self, mut scan: Scan) -> Result<Option<Scan>, Error> {
        while self.loading.len() < self.node.options.loading_max.max(1) {
            let rows: Vec<(Execution, u64)> = self.node.store.list(scan.clone()).await?;
            let Some((last, _)) = rows.last() else { return Ok(None) };
            scan = scan.after(last);
            for (row, _) in &rows {
                if !self.core.knows(&row.execution_id) {
                    self.load(row.execution_id, Duration::ZERO);
                }
            }
        }
        Ok(Some(scan))
    }

    pub(super) async fn inbox(&mut self) -> Result<(), Error> {
        let mut scan = Scan::by::<Message>(Message::BY_SHARD).equal(&self.shard).limit(INBOX_PAGE);
        scan.after = self.inbox_place.take();
        let messages: Vec<(Message, u64)> = self.node.store.list(scan.clone()).await?;
        self.read_inbox = false;
        // Some may have to stay for long, and must not hide those behind them.
        if messages.len() == INBOX_PAGE
            && let Some((last, _)) = messages.last()
        {
            self.inbox_place = scan.after(last).after;
            self.read_inbox = true;
        }
        if !messages.is_empty() {
            self.tell(Input::Messages(messages));
        }
        Ok(())
    }

    pub(super) fn load(&mut self, execution: ExecutionId, after: Duration) {
        if !self.loading.insert(execution) {
            return;
        }
        let node = Arc::clone(self.node);
        // In a task of its own: this loop also waits for other things, and must not hold a connection meanwhile.
        let reading = tokio::spawn(async move {
            tokio::time::sleep(after).await;
            match load(&node, execution).await {
                Ok(input) => Ok(input),
                Err(error) if error.kind() == Kind::Fatal => Err(error),
                Err(error) => {
                    tracing::warn!(%execution, %error, "an execution could not be read; it will be tried again");
                    Ok(Input::NotLoaded { execution, error })
                }
            }
        });
        self.waiting.push(Box::pin(async move {
            reading.await.unwrap_or_else(|panic| {
                let error = Error::Unavailable(format!("reading it has stopped: {panic}"));
                Ok(Input::NotLoaded { execution, error })
            })
        }));
    }

    /// Loads what is due by then, but for what is busy: that is in memory, or left behind.
    pub(super) async fn load_waking(&mut self, by: Timestamp) -> Result<(), Error> {
        let mut due = Scan::by::<Execution>(Execution::BY_WAKE).equal(&self.shard).until(&by);
        let never = ExecutionId::from_bytes([255; 32]);
        due.after = Some(vec![self.shard.to_value(), Timestamp::MIN.to_value(), never.to_value()]);
        self.load_due(due).await.map(drop)
    }
}

async fn load(node: &Node, execution: ExecutionId) -> Result<Input, Error> {
    let stored: Option<(Execution, u64)> = node.store.get(Key(vec![execution.to_value()])).await?;
    let Some((row, version)) = stored else { return Ok(Input::Absent(execution)) };
    if !node.library.ensure(&*node.store, row.component_digest).await? {
        return Err(Error::Corrupt(format!("component {} is not there", row.component_digest)));
    }
    let events = read_journal(&*node.store, execution).await?;
    Ok(Input::Loaded { row: Box::new(row), version, events })
}
