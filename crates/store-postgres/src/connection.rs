//! Connection pools, and the settings that every session gets before it is used.

use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, RecyclingMethod, Runtime, Timeouts,
};
use onward_base::ExponentialBackoff;
use onward_store::Error;
use tokio_postgres::{Client, NoTls};

use crate::address::{PostgresAddress, PostgresTransport};
use crate::error::{self, StatementFailure};
use crate::tls;

/// Minimum server version (14): older servers lack features that the statements use.
const SERVER_VERSION_MIN: i32 = 140_000;

/// Purpose of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionAccess {
    Read,
    Write,
}

/// Builds a pool whose connections have the session settings applied.
pub(crate) fn build_pool(
    address: &PostgresAddress,
    size: usize,
    deadline: Duration,
    access: ConnectionAccess,
) -> Result<Pool, Error> {
    let config = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let mut target = address.config.clone();
    // Detects a server that disappeared without closing the connection, even while the client only
    // waits.
    target.tcp_user_timeout(deadline).keepalives_idle(deadline);
    let manager = match address.transport {
        PostgresTransport::Plain => Manager::from_config(target, NoTls, config),
        PostgresTransport::Tls => Manager::from_config(target, tls::tls_connector()?, config),
    };
    let settings = session_settings(deadline, access);
    let prepare = Hook::async_fn(move |client: &mut deadpool_postgres::ClientWrapper, _| {
        let settings = settings.clone();
        Box::pin(async move {
            client
                .batch_execute(&settings)
                .await
                .map_err(HookError::Backend)
        })
    });
    let timeouts = Timeouts {
        wait: Some(deadline),
        create: Some(deadline),
        recycle: Some(deadline),
    };
    let pool = Pool::builder(manager)
        .max_size(size.max(1))
        .timeouts(timeouts)
        .post_create(prepare);
    pool.runtime(Runtime::Tokio1)
        .build()
        .map_err(|cause| Error::Unusable(cause.to_string()))
}

/// Settings of every session, independent of the defaults of the server and the role:
/// - wait for the disk before a commit is acknowledged;
/// - time out when no caller can be waiting any more, and time out on a lock early enough that the
///   commits of a group that do not need it can still be performed;
/// - plan a statement once, and use an index even if a table seems small enough for a sequential
///   scan: plans are cached, and tables grow.
fn session_settings(deadline: Duration, access: ConnectionAccess) -> String {
    // A server, database or role that an operator made read-only stays so.
    let read_only = if access == ConnectionAccess::Read {
        "SET default_transaction_read_only = on;"
    } else {
        ""
    };
    let ms = deadline.as_millis().clamp(3, 2_147_483_647);
    let lock_ms = ms / 3;
    format!(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off';
         SET statement_timeout = {ms};
         SET lock_timeout = {lock_ms};
         SET idle_in_transaction_session_timeout = {ms};
         SET default_transaction_isolation = 'read committed';
         {read_only}
         SET plan_cache_mode = force_generic_plan;
         SET enable_seqscan = off;
         SET enable_memoize = off;
         SET enable_bitmapscan = off"
    )
}

/// Rejects a server that cannot give the store's guarantees.
pub(crate) async fn check_server(client: &Client, access: ConnectionAccess) -> Result<(), Error> {
    let row = client
        .query_one(
            "SELECT current_setting('server_version_num')::int, current_setting('server_version'), \
             current_setting('server_encoding'), pg_is_in_recovery(), current_setting('fsync') = 'on', \
             current_setting('default_transaction_read_only') = 'on'",
            &[],
        )
        .await
        .map_err(error::from_postgres_error)?;
    let (number, version, encoding): (i32, String, String) = (row.get(0), row.get(1), row.get(2));
    if number < SERVER_VERSION_MIN {
        return Err(Error::Unusable(format!(
            "the server is Postgres {version}: version 14 or later is needed"
        )));
    }
    if encoding != "UTF8" {
        return Err(Error::Unusable(format!(
            "the encoding of the database is {encoding}: create one with UTF8"
        )));
    }
    if access == ConnectionAccess::Read {
        return Ok(());
    }
    if row.get::<_, bool>(3) {
        return Err(Error::Unusable(
            "the server is a standby, which cannot be written to: use the primary".to_owned(),
        ));
    }
    if row.get::<_, bool>(5) {
        return Err(Error::Unusable(
            "the server refuses writes: default_transaction_read_only is on for the server, the \
             database or the role"
                .to_owned(),
        ));
    }
    if !row.get::<_, bool>(4) {
        tracing::warn!("fsync is off on the server: commits do not survive a crash of its machine");
    }
    Ok(())
}

/// Takes a connection from the pool, or opens one.
pub(crate) async fn acquire_connection(
    pool: &Pool,
) -> Result<deadpool_postgres::Client, StatementFailure> {
    pool.get().await.map_err(StatementFailure::from)
}

/// Maximum number of attempts to get a working connection.
pub(crate) const CONNECTION_ATTEMPTS_MAX: u32 = 5;

/// The delay before the next attempt after a lost connection.
const RECONNECT_BACKOFF: ExponentialBackoff = ExponentialBackoff {
    initial_ms: 20,
    max_ms: 320,
};

/// Sleeps before the next attempt, after `losses` connections were lost in a row.
pub(crate) async fn sleep_backoff(losses: u32) {
    let entropy = getrandom::u64().unwrap_or_default();
    let delay_ms = RECONNECT_BACKOFF.delay_ms(losses, entropy);
    tokio::time::sleep(Duration::from_millis(delay_ms)).await;
}
