//! Schema migrations: opening a file brings its schema to the version that this program requires.

use onward_base::Timestamp;
use onward_store::Error;
use onward_store::migration::{self, AppliedMigration, Migration};
use rusqlite::{Connection, TransactionBehavior, params};

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

/// Applies all pending migrations in one transaction. A second process waits for the transaction
/// and then finds nothing to do.
pub(crate) fn apply_migrations(connection: &mut Connection, now: Timestamp) -> Result<(), Error> {
    let transaction = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .map_err(error::from_sqlite_error)?;
    transaction
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS onward_migrations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, \
             checksum TEXT NOT NULL, applied_at INTEGER NOT NULL) STRICT",
        )
        .map_err(error::from_sqlite_error)?;
    let applied = applied_migrations(&transaction)?;
    if applied.is_empty() && has_table(&transaction, "run_events")? {
        return Err(migration::missing_migration_record());
    }
    for migration in migration::pending_migrations(MIGRATIONS, &applied)? {
        transaction
            .execute_batch(migration.sql)
            .map_err(error::from_sqlite_error)?;
        transaction
            .execute(
                "INSERT INTO onward_migrations (number, name, checksum, applied_at) VALUES (?1, ?2, ?3, ?4)",
                params![migration.number, migration.name, migration.checksum(), now.as_micros()],
            )
            .map_err(error::from_sqlite_error)?;
    }
    transaction.commit().map_err(error::from_sqlite_error)
}

/// Fails if the file cannot be read as it is: it does not contain the store's tables, or its schema
/// is older and must be migrated first.
pub(crate) fn require_current_schema(connection: &Connection) -> Result<(), Error> {
    reject_foreign_database(connection)?;
    if !has_table(connection, "onward_migrations")? {
        return Err(Error::Unusable("the file contains no store".to_owned()));
    }
    migration::ensure_no_pending_migrations(MIGRATIONS, &applied_migrations(connection)?)
}

fn has_table(connection: &Connection, name: &str) -> Result<bool, Error> {
    let sql = "SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    connection
        .query_row(sql, [name], |row| row.get(0))
        .map_err(error::from_sqlite_error)
}

fn applied_migrations(connection: &Connection) -> Result<Vec<AppliedMigration>, Error> {
    let mut statement = connection
        .prepare("SELECT number, name, checksum FROM onward_migrations ORDER BY number")
        .map_err(error::from_sqlite_error)?;
    let rows = statement
        .query_map([], |row| {
            Ok(AppliedMigration {
                number: row.get(0)?,
                name: row.get(1)?,
                checksum: row.get(2)?,
            })
        })
        .map_err(error::from_sqlite_error)?;
    rows.collect::<rusqlite::Result<Vec<AppliedMigration>>>()
        .map_err(error::from_sqlite_error)
}

/// Fails if the file contains tables but not the store's: then it belongs to another program.
pub(crate) fn reject_foreign_database(connection: &Connection) -> Result<(), Error> {
    let sql = "SELECT count(*) > 0 AND NOT max(name = 'onward_migrations') FROM sqlite_schema WHERE type = 'table'";
    let is_foreign: Option<bool> = connection
        .query_row(sql, [], |row| row.get(0))
        .map_err(error::from_sqlite_error)?;
    if is_foreign == Some(true) {
        return Err(Error::Unusable(
            "the file is a database of another program".to_owned(),
        ));
    }
    Ok(())
}
