//! Decides which migrations a database needs, and rejects a database that this program must not
//! change. The adapters only run the SQL.

use onward_base::hex;
use sha2::{Digest as _, Sha256};

use crate::Error;

/// A schema migration that this program contains.
#[derive(Debug, Clone, Copy)]
pub struct Migration {
    /// Position in the sequence of migrations: 1, 2, 3 …
    pub number: u32,
    /// Short description of what the migration does.
    pub name: &'static str,
    /// The SQL statements to run.
    pub sql: &'static str,
}

impl Migration {
    /// Returns the SHA-256 of the statements, in hex.
    pub fn checksum(&self) -> String {
        hex::encode_hex(&Sha256::digest(self.sql.as_bytes()))
    }
}

/// A migration that the database has recorded as applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedMigration {
    /// Position in the sequence of migrations, from 1.
    pub number: u32,
    /// Description of the migration at the time it was applied.
    pub name: String,
    /// SHA-256 of the statements that were run, in hex.
    pub checksum: String,
}

/// Returns the migrations that are not applied yet, in order. Fails if the database has a newer
/// migration than `known`, or one whose number or checksum differs.
pub fn pending_migrations<'a>(
    known: &'a [Migration],
    applied: &[AppliedMigration],
) -> Result<&'a [Migration], Error> {
    let newest = known.last().map_or(0, |migration| migration.number);
    if let Some(newer) = applied.iter().find(|applied| applied.number > newest) {
        return Err(Error::Unusable(format!(
            "the database is newer than this program: its schema is {} ({}), this program supports up to {newest}. \
             Use a newer version of onward, or restore a backup made before the upgrade",
            newer.number, newer.name
        )));
    }
    for (known, applied) in known.iter().zip(applied) {
        if known.number != applied.number || known.checksum() != applied.checksum {
            return Err(Error::Unusable(format!(
                "the schema of the database differs from the one of this program: migration {} ({}) was applied with checksum \
                 {}, expected {} ({}). The migration was changed after its release: use the version of onward that created the store",
                applied.number,
                applied.name,
                applied.checksum,
                known.checksum(),
                known.name
            )));
        }
    }
    Ok(&known[applied.len().min(known.len())..])
}

/// The error for a database that has the tables of a store and no record of its migrations.
pub fn missing_migration_record() -> Error {
    Error::Unusable(
        "the database has the tables of a store, but its table onward_migrations is empty: \
         restore a backup"
            .to_owned(),
    )
}

/// Fails if the database still needs migrations, for a process that opens the store read-only.
pub fn ensure_no_pending_migrations(
    known: &[Migration],
    applied: &[AppliedMigration],
) -> Result<(), Error> {
    let missing = pending_migrations(known, applied)?;
    let Some(newest) = missing.last() else {
        return Ok(());
    };
    Err(Error::SchemaOutdated {
        number: newest.number,
        name: newest.name,
    })
}

#[cfg(test)]
mod tests {
    use super::{AppliedMigration, Migration, ensure_no_pending_migrations, pending_migrations};
    use crate::StoreErrorKind;

    const KNOWN: [Migration; 2] = [
        Migration {
            number: 1,
            name: "initial",
            sql: "first",
        },
        Migration {
            number: 2,
            name: "more",
            sql: "second",
        },
    ];

    fn applied(migration: &Migration) -> AppliedMigration {
        AppliedMigration {
            number: migration.number,
            name: migration.name.to_owned(),
            checksum: migration.checksum(),
        }
    }

    #[test]
    fn applied_migrations_are_not_applied_again() {
        let numbers = |applied: &[AppliedMigration]| {
            pending_migrations(&KNOWN, applied)
                .unwrap()
                .iter()
                .map(|it| it.number)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[]), [1, 2]);
        assert_eq!(numbers(&[applied(&KNOWN[0])]), [2]);
        assert!(numbers(&[applied(&KNOWN[0]), applied(&KNOWN[1])]).is_empty());
    }

    #[test]
    fn a_read_only_open_requires_all_migrations() {
        let both = [applied(&KNOWN[0]), applied(&KNOWN[1])];
        assert_eq!(ensure_no_pending_migrations(&KNOWN, &both), Ok(()));
        let error = ensure_no_pending_migrations(&KNOWN, &both[..1]).unwrap_err();
        assert!(
            error.to_string().contains("migration 2 (more) is missing"),
            "{error}"
        );
    }

    #[test]
    fn a_newer_database_is_rejected() {
        let both = [applied(&KNOWN[0]), applied(&KNOWN[1])];
        let error = pending_migrations(&KNOWN[..1], &both).unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Fatal);
        assert!(
            error
                .to_string()
                .contains("its schema is 2 (more), this program supports up to 1"),
            "{error}"
        );
    }

    #[test]
    fn a_changed_migration_is_rejected() {
        let changed = Migration {
            sql: "first, changed",
            ..KNOWN[0]
        };
        assert_eq!(
            pending_migrations(&KNOWN, &[applied(&changed)])
                .unwrap_err()
                .kind(),
            StoreErrorKind::Fatal
        );
    }
}
