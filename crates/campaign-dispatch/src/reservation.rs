//! Reservations. Nothing else can be given to a provider, and only what is durable makes one.

use onward_base::SharedText;
use onward_campaign_core::{ItemState, RenderedMessage};
use onward_store::tables::{JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, CommitReceipt, Error, RecordReader as _, RowKey, Store,
};

use crate::row_mapping;

/// The right to call a provider for one item, once. It cannot be made, copied or kept: a commit makes it, the call uses it up.
///
/// ```compile_fail
/// fn twice(reservation: onward_campaign_dispatch::Reservation) -> [onward_campaign_dispatch::Reservation; 2] {
///     [reservation.clone(), reservation]
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    item_id: SharedText,
    idempotency_key: SharedText,
    address: SharedText,
    recipient_id: SharedText,
    message: RenderedMessage,
}

impl Reservation {
    /// The item. Answers are told by it.
    pub fn item_id(&self) -> &SharedText {
        &self.item_id
    }

    /// What the provider should take once.
    pub fn idempotency_key(&self) -> &SharedText {
        &self.idempotency_key
    }

    /// Where it goes.
    pub fn address(&self) -> &SharedText {
        &self.address
    }

    /// Whom it is for.
    pub fn recipient_id(&self) -> &SharedText {
        &self.recipient_id
    }

    /// What is sent.
    pub fn message(&self) -> &RenderedMessage {
        &self.message
    }
}

/// That a commit is durable.
pub(crate) struct DurableCommit(());

impl DurableCommit {
    /// The reservation of an item whose row the commit has stored.
    pub(crate) fn reserve_item(
        &self,
        row: &OutboxItemRow,
        message: RenderedMessage,
    ) -> Option<Reservation> {
        (row_mapping::item_state(row) == ItemState::Held).then(|| Reservation {
            item_id: row.id.clone(),
            idempotency_key: row.idempotency_key.clone(),
            address: row.recipient_address.clone(),
            recipient_id: row.recipient_id.clone(),
            message,
        })
    }
}

/// Whether a commit is durable after all that was not heard of. It would have made this of the job: with a mark that no other
/// commit leaves, or without one if it was the last of a worker, which ends its epoch.
pub(crate) async fn confirm_commit(
    store: &dyn Store,
    meant: &JobRow,
) -> Result<Option<DurableCommit>, Error> {
    let stored: Option<(JobRow, u64)> =
        store.read_record(RowKey(vec![meant.id.to_value()])).await?;
    let is_ours = |(job, _): &(JobRow, u64)| {
        job.lock_epoch == meant.lock_epoch && job.lock_token == meant.lock_token
    };
    Ok(stored.filter(is_ours).map(|_| DurableCommit(())))
}

/// Makes a commit durable.
pub(crate) async fn commit_durably(
    store: &dyn Store,
    commit: Commit,
) -> Result<(CommitReceipt, DurableCommit), Error> {
    Ok((store.commit(commit).await?, DurableCommit(())))
}
