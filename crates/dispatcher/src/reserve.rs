//! Reservations. Nothing else can be given to a provider, and only what is durable makes one.

use onward_dispatch::Standing;
use onward_journal::Text;
use onward_store::tables::{Job, OutboxItem};
use onward_store::{Commit, Error, Field as _, Key, Receipt, Records as _, Store};

use crate::outlet::Message;
use crate::rows;

/// The right to call a provider for one item, once. It cannot be made, copied or kept: a commit makes it, the call uses it up.
///
/// ```compile_fail
/// fn twice(reservation: onward_dispatcher::Reservation) -> [onward_dispatcher::Reservation; 2] {
///     [reservation.clone(), reservation]
/// }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    item: Text,
    key: Text,
    address: Text,
    recipient: Text,
    message: Message,
}

impl Reservation {
    /// The item. Answers are told by it.
    pub fn item(&self) -> &Text {
        &self.item
    }

    /// What the provider should take once.
    pub fn key(&self) -> &Text {
        &self.key
    }

    /// Where it goes.
    pub fn address(&self) -> &Text {
        &self.address
    }

    /// Whom it is for.
    pub fn recipient(&self) -> &Text {
        &self.recipient
    }

    /// What is sent.
    pub fn message(&self) -> &Message {
        &self.message
    }
}

/// That a commit is durable.
pub(crate) struct Durable(());

impl Durable {
    /// The reservation of an item whose row the commit has stored.
    pub(crate) fn reservation(&self, row: &OutboxItem, message: Message) -> Option<Reservation> {
        (rows::standing(row) == Standing::Held).then(|| Reservation {
            item: row.id.clone(),
            key: row.idempotency_key.clone(),
            address: row.recipient_address.clone(),
            recipient: row.recipient_id.clone(),
            message,
        })
    }
}

/// Whether a commit is durable after all that was not heard of. It would have made this of the job: with a mark that no other
/// commit leaves, or without one if it was the last of a worker, which ends its epoch.
pub(crate) async fn confirm(store: &dyn Store, meant: &Job) -> Result<Option<Durable>, Error> {
    let stored: Option<(Job, u64)> = store.get(Key(vec![meant.id.to_value()])).await?;
    let is_ours = |(job, _): &(Job, u64)| job.lock_epoch == meant.lock_epoch && job.lock_token == meant.lock_token;
    Ok(stored.filter(is_ours).map(|_| Durable(())))
}

/// Makes a commit durable.
pub(crate) async fn store(store: &dyn Store, commit: Commit) -> Result<(Receipt, Durable), Error> {
    Ok((store.commit(commit).await?, Durable(())))
}
