//! Notifications between the processes that use a database: NOTIFY and LISTEN.
//!
//! A NOTIFY inside a transaction makes its commit wait for all other commits that notify. So
//! notifications are sent separately from commits, batched, and at most every few milliseconds:
//! they are hints, and the data they refer to is stored already.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use deadpool_postgres::Pool;
use futures_util::stream::{self, StreamExt as _};
use onward_store::{Error, NotificationHandler, RegistrationGuard};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::{AsyncMessage, Client, Connection, NoTls};

use crate::address::{PostgresAddress, PostgresTransport};
use crate::error::StatementFailure;
use crate::{connection, error, tls};

/// Maximum number of notifications waiting to be sent. Further ones are dropped.
const QUEUE_CAPACITY: usize = 4_096;

/// Maximum size of one payload in bytes; the server accepts up to 8,000.
const PAYLOAD_BYTES_MAX: usize = 7_500;

/// Time to collect notifications after a send.
const SEND_INTERVAL: Duration = Duration::from_millis(4);

/// Delay before a lost connection is opened again.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Separates the notifications in a payload. No notification contains it.
const SEPARATOR: char = '\n';

/// Sends notifications and subscribes to those of other processes.
pub(crate) struct PostgresNotifier {
    outgoing: mpsc::Sender<String>,
    address: PostgresAddress,
    channel: String,
    call_timeout: Duration,
}

impl PostgresNotifier {
    /// Starts the sender for the channel of the schema that the pool's connections use.
    pub(crate) async fn start_sender(
        pool: &Pool,
        address: &PostgresAddress,
        deadline: Duration,
    ) -> Result<Self, Error> {
        let client = connection::acquire_connection(pool)
            .await
            .map_err(StatementFailure::into_error)?;
        let name = "SELECT 'onward_' || left(md5(current_schema()), 16)";
        let channel: String = client
            .query_one(name, &[])
            .await
            .map_err(error::from_postgres_error)?
            .get(0);
        let (outgoing, waiting) = mpsc::channel(QUEUE_CAPACITY);
        tokio::spawn(run_sender(pool.clone(), channel.clone(), waiting));
        let mut address = address.clone();
        address
            .config
            .tcp_user_timeout(deadline)
            .keepalives_idle(deadline);
        Ok(Self {
            outgoing,
            address,
            channel,
            call_timeout: deadline,
        })
    }

    /// Queues a notification for the next send.
    pub(crate) fn enqueue_notification(&self, notification: String) {
        if self.outgoing.try_send(notification).is_err() {
            tracing::debug!("the notification queue is full: a notification was dropped");
        }
    }

    /// Subscribes until the returned guard is dropped.
    pub(crate) fn spawn_listener(&self, handler: NotificationHandler) -> RegistrationGuard {
        let (address, channel, deadline) = (
            self.address.clone(),
            self.channel.clone(),
            self.call_timeout,
        );
        let listening = tokio::spawn(async move {
            loop {
                if let Err(error) =
                    listen_until_disconnected(&address, &channel, deadline, &handler).await
                {
                    tracing::debug!(%error, "lost the connection that listens for notifications; reconnecting");
                }
                tokio::time::sleep(RECONNECT_DELAY).await;
            }
        });
        Box::new(ListenerGuard(listening.abort_handle()))
    }
}

/// Stops the listener when it is dropped.
struct ListenerGuard(AbortHandle);

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Sends queued notifications until all senders of the queue are dropped.
async fn run_sender(pool: Pool, channel: String, mut waiting: mpsc::Receiver<String>) {
    while let Some(first) = waiting.recv().await {
        let mut notifications = BTreeSet::from([first]);
        notifications.extend(std::iter::from_fn(|| waiting.try_recv().ok()));
        for payload in batch_payloads(&notifications) {
            if let Err(error) = send_notification(&pool, &channel, &payload).await {
                tracing::debug!(%error, "sending notifications failed");
            }
        }
        tokio::time::sleep(SEND_INTERVAL).await;
    }
}

/// Combines the notifications into as few payloads as possible; a notification that is too large is
/// dropped.
fn batch_payloads(notifications: &BTreeSet<String>) -> Vec<String> {
    let mut payloads: Vec<String> = Vec::new();
    for notification in notifications
        .iter()
        .filter(|notification| notification.len() <= PAYLOAD_BYTES_MAX)
    {
        match payloads.last_mut() {
            Some(last) if last.len() + notification.len() < PAYLOAD_BYTES_MAX => {
                last.push(SEPARATOR);
                last.push_str(notification);
            }
            _ => payloads.push(notification.clone()),
        }
    }
    payloads
}

async fn send_notification(pool: &Pool, channel: &str, payload: &str) -> Result<(), Error> {
    let client = connection::acquire_connection(pool)
        .await
        .map_err(StatementFailure::into_error)?;
    let statement = client
        .prepare_cached("SELECT pg_notify($1, $2)")
        .await
        .map_err(error::from_postgres_error)?;
    client
        .execute(&statement, &[&channel, &payload])
        .await
        .map(drop)
        .map_err(error::from_postgres_error)
}

/// Forwards notifications until the connection is lost.
async fn listen_until_disconnected(
    address: &PostgresAddress,
    channel: &str,
    deadline: Duration,
    handler: &NotificationHandler,
) -> Result<(), Error> {
    let late = |_| Error::Unavailable("cannot connect to the server in time".to_owned());
    match address.transport {
        PostgresTransport::Plain => {
            let connected = tokio::time::timeout(deadline, address.config.connect(NoTls))
                .await
                .map_err(late)?;
            let (client, connection) = connected.map_err(error::from_postgres_error)?;
            forward_notifications(client, connection, channel, handler).await
        }
        PostgresTransport::Tls => {
            let connecting = address.config.connect(tls::tls_connector()?);
            let connected = tokio::time::timeout(deadline, connecting)
                .await
                .map_err(late)?;
            let (client, connection) = connected.map_err(error::from_postgres_error)?;
            forward_notifications(client, connection, channel, handler).await
        }
    }
}

async fn forward_notifications<S, T>(
    client: Client,
    mut connection: Connection<S, T>,
    channel: &str,
    handler: &NotificationHandler,
) -> Result<(), Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    T: AsyncRead + AsyncWrite + Unpin,
{
    let mut messages = pin!(stream::poll_fn(
        move |context| connection.poll_message(context)
    ));
    let listen = format!("LISTEN {channel}");
    let mut listening = pin!(client.batch_execute(&listen));
    let mut is_listening = false;
    loop {
        tokio::select! {
            begun = &mut listening, if !is_listening => {
                begun.map_err(error::from_postgres_error)?;
                is_listening = true;
            }
            message = messages.next() => match message {
                Some(Ok(AsyncMessage::Notification(notice))) => notice.payload().split(SEPARATOR).for_each(|notification| handler(notification)),
                Some(Ok(_)) => {}
                Some(Err(cause)) => return Err(error::from_postgres_error(cause)),
                None => return Ok(()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_are_batched_up_to_the_payload_limit() {
        let notifications: BTreeSet<String> =
            (0..3_000).map(|number| format!("shard {number}")).collect();
        let sent = batch_payloads(&notifications);
        assert!(
            sent.len() < 6
                && sent
                    .iter()
                    .all(|payload| payload.len() <= PAYLOAD_BYTES_MAX),
            "{}",
            sent.len()
        );
        let received: BTreeSet<String> = sent
            .iter()
            .flat_map(|payload| payload.split(SEPARATOR))
            .map(str::to_owned)
            .collect();
        assert_eq!(received, notifications);
    }

    #[test]
    fn a_notification_that_is_too_long_does_not_block_others() {
        let notifications =
            BTreeSet::from(["x".repeat(PAYLOAD_BYTES_MAX + 1), "shard 1".to_owned()]);
        assert_eq!(batch_payloads(&notifications), ["shard 1"]);
    }
}
