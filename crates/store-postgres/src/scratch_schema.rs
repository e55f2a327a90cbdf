//! A temporary schema in a database, so that a benchmark touches no other data in it.
//!
//! It is in this crate because only the adapters contain SQL, and not behind a feature, because
//! `onward bench` uses it.

use onward_store::Error;

use crate::Options;
use crate::address::PostgresAddress;
use crate::connection::{self, ConnectionAccess};
use crate::error::{self, StatementFailure};

/// A schema created for temporary use.
#[derive(Debug)]
pub struct ScratchSchema {
    database: String,
    name: String,
}

impl ScratchSchema {
    /// Creates a schema with this name. Fails if it exists already.
    pub async fn create(database: &str, name: &str) -> Result<Self, Error> {
        let is_plain = name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_plain || name.is_empty() {
            return Err(Error::Unusable(format!(
                "{name} is not a valid schema name"
            )));
        }
        if database.contains("options=") {
            return Err(Error::Unusable(
                "the URL of the store has the parameter `options`: remove it".to_owned(),
            ));
        }
        execute_sql(database, &format!("CREATE SCHEMA {name}")).await?;
        Ok(Self {
            database: database.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Returns the URL of a store that uses only this schema.
    pub fn store_url(&self) -> String {
        let separator = if self.database.contains('?') {
            '&'
        } else {
            '?'
        };
        format!(
            "{}{separator}options=-csearch_path%3D{}",
            self.database, self.name
        )
    }

    /// Drops the schema and everything in it.
    pub async fn drop_schema(self) -> Result<(), Error> {
        execute_sql(
            &self.database,
            &format!("DROP SCHEMA {} CASCADE", self.name),
        )
        .await
    }
}

async fn execute_sql(url: &str, sql: &str) -> Result<(), Error> {
    let pool = connection::build_pool(
        &PostgresAddress::parse(url)?,
        1,
        Options::default().call_timeout,
        ConnectionAccess::Write,
    )?;
    let client = connection::acquire_connection(&pool)
        .await
        .map_err(StatementFailure::into_error)?;
    client
        .batch_execute(sql)
        .await
        .map_err(error::from_postgres_error)
}
