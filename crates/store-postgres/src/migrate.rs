//! Schema migrations: opening a database brings its schema to the version that this program
//! requires.

use deadpool_postgres::{Client, GenericClient, Transaction};
use onward_store::Error;
use onward_store::migration::{self, AppliedMigration, Migration};

use crate::error;

const MIGRATIONS: &[Migration] = &[
    Migration {
        number: 1,
        name: "initial",
        sql: include_str!("../migrations/0001_initial.sql"),
    },
    Migration {
        number: 2,
        name: "campaign_keys",
        sql: include_str!("../migrations/0002_campaign_keys.sql"),
    },
    Migration {
        number: 3,
        name: "scopes_and_lists",
        sql: include_str!("../migrations/0003_scopes_and_lists.sql"),
    },
];

/// The table of applied migrations.
const MIGRATION_TABLE: &str = "onward_migrations";

/// Advisory lock that a process holds while it migrates. The number spells `onward` in ASCII.
const MIGRATION_LOCK_ID: i64 = 0x6f6e_7761_7264;

/// Applies all pending migrations in one transaction. A second process waits for the lock and then
/// finds nothing to do.
pub(crate) async fn apply_migrations(client: &mut Client) -> Result<(), Error> {
    let transaction = client
        .transaction()
        .await
        .map_err(error::from_postgres_error)?;
    // Migrating a large table may take long; the lock is held for that time.
    transaction
        .batch_execute("SET LOCAL statement_timeout = 0")
        .await
        .map_err(error::from_postgres_error)?;
    transaction
        .execute("SELECT pg_advisory_xact_lock($1)", &[&MIGRATION_LOCK_ID])
        .await
        .map_err(error::from_postgres_error)?;
    let applied = applied_migrations(&transaction).await?;
    if applied.is_empty() && has_table(&transaction, "run_events").await? {
        return Err(migration::missing_migration_record());
    }
    for migration in migration::pending_migrations(MIGRATIONS, &applied)? {
        apply_migration(&transaction, migration).await?;
    }
    transaction
        .commit()
        .await
        .map_err(error::from_postgres_error)
}

/// Fails if the database cannot be read as it is: it does not contain the store's tables, or its
/// schema is older and must be migrated first.
pub(crate) async fn require_current_schema(client: &Client) -> Result<(), Error> {
    if !has_table(client, MIGRATION_TABLE).await? {
        return Err(Error::Unusable("the database contains no store".to_owned()));
    }
    migration::ensure_no_pending_migrations(MIGRATIONS, &read_migration_table(client).await?)
}

/// Returns the applied migrations. Creates the migration table only if it is missing, so that an
/// up-to-date database requires no privilege to create tables.
async fn applied_migrations(transaction: &Transaction<'_>) -> Result<Vec<AppliedMigration>, Error> {
    if !has_table(transaction, MIGRATION_TABLE).await? {
        let table = "CREATE TABLE onward_migrations (number BIGINT NOT NULL, name TEXT NOT NULL, checksum TEXT NOT \
                     NULL, applied_at TIMESTAMPTZ NOT NULL, CONSTRAINT onward_migrations_pkey PRIMARY KEY (number))";
        transaction
            .batch_execute(table)
            .await
            .map_err(error::from_postgres_error)?;
    }
    read_migration_table(transaction).await
}

/// Returns `true` if the current schema has this table.
async fn has_table(client: &impl GenericClient, name: &str) -> Result<bool, Error> {
    let found = client
        .query_one(
            "SELECT count(*) > 0 FROM pg_class WHERE relname = $1::text AND relnamespace = to_regnamespace(current_schema())",
            &[&name],
        )
        .await;
    Ok(found.map_err(error::from_postgres_error)?.get(0))
}

async fn read_migration_table(client: &impl GenericClient) -> Result<Vec<AppliedMigration>, Error> {
    let rows = client
        .query(
            "SELECT number, name, checksum FROM onward_migrations ORDER BY number",
            &[],
        )
        .await;
    let applied = rows
        .map_err(error::from_postgres_error)?
        .into_iter()
        .map(|row| {
            let number = u32::try_from(row.try_get::<_, i64>(0)?).unwrap_or(u32::MAX);
            Ok(AppliedMigration {
                number,
                name: row.try_get(1)?,
                checksum: row.try_get(2)?,
            })
        });
    applied
        .collect::<Result<_, tokio_postgres::Error>>()
        .map_err(error::from_postgres_error)
}

async fn apply_migration(
    transaction: &Transaction<'_>,
    migration: &Migration,
) -> Result<(), Error> {
    const INSERT_MIGRATION: &str = "INSERT INTO onward_migrations (number, name, checksum, applied_at) VALUES ($1, $2, $3, now())";
    tracing::info!(
        number = migration.number,
        name = migration.name,
        "migrating the database"
    );
    transaction
        .batch_execute(migration.sql)
        .await
        .map_err(error::from_postgres_error)?;
    let number = i64::from(migration.number);
    transaction
        .execute(
            INSERT_MIGRATION,
            &[&number, &migration.name, &migration.checksum()],
        )
        .await
        .map_err(error::from_postgres_error)?;
    Ok(())
}
