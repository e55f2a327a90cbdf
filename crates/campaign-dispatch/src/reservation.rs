//! Reservations: the only input that a provider accepts, created only from a durable commit.

use onward_base::SharedText;
use onward_campaign_core::{ItemState, RenderedMessage};
use onward_store::tables::{JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, CommitReceipt, Error, RecordReader as _, RowKey, Store,
};

use crate::row_mapping;

/// The right to call a provider for one item, once. It cannot be constructed, copied or kept by
/// callers: a commit creates it, and the call consumes it.
///
/// ```compile_fail
/// use onward_campaign_dispatch::Reservation;
///
/// fn copy_reservation(reservation: Reservation) -> [Reservation; 2] {
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
    /// The id of the item. The provider reports the outcome under this id.
    pub fn item_id(&self) -> &SharedText {
        &self.item_id
    }

    /// The idempotency key to pass to the provider.
    pub fn idempotency_key(&self) -> &SharedText {
        &self.idempotency_key
    }

    /// The email address, phone number or account to send to.
    pub fn address(&self) -> &SharedText {
        &self.address
    }

    /// The id of the recipient.
    pub fn recipient_id(&self) -> &SharedText {
        &self.recipient_id
    }

    /// The rendered message to send.
    pub fn message(&self) -> &RenderedMessage {
        &self.message
    }
}

/// Proof that a commit is durable; only this module can create it.
pub(crate) struct DurableCommit(());

impl DurableCommit {
    /// Creates the reservation of an item whose row the commit stored. Returns `None` if the item
    /// is not reserved.
    pub(crate) fn reserve_item(
        &self,
        row: &OutboxItemRow,
        message: RenderedMessage,
    ) -> Option<Reservation> {
        (row_mapping::item_state(row) == ItemState::Reserved).then(|| Reservation {
            item_id: row.id.clone(),
            idempotency_key: row.idempotency_key.clone(),
            address: row.recipient_address.clone(),
            recipient_id: row.recipient_id.clone(),
            message,
        })
    }
}

/// Checks whether a commit of unknown outcome is durable. `intended` is the job's row as the commit
/// would have written it: with a mark that no other commit writes, or without a mark if it was the
/// worker's last commit, which ends its epoch.
pub(crate) async fn confirm_commit(
    store: &dyn Store,
    intended: &JobRow,
) -> Result<Option<DurableCommit>, Error> {
    let stored: Option<(JobRow, u64)> = store
        .read_record(RowKey(vec![intended.id.to_value()]))
        .await?;
    let is_ours = |(job, _): &(JobRow, u64)| {
        job.lock_epoch == intended.lock_epoch && job.lock_token == intended.lock_token
    };
    Ok(stored.filter(is_ours).map(|_| DurableCommit(())))
}

/// Commits to the store and returns the proof that the commit is durable.
pub(crate) async fn commit_durably(
    store: &dyn Store,
    commit: Commit,
) -> Result<(CommitReceipt, DurableCommit), Error> {
    Ok((store.commit(commit).await?, DurableCommit(())))
}
