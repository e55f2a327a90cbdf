//! A schema of its own in a database, for what is to be thrown away: a benchmark touches nothing else that is there.

use onward_store::Error;

use crate::Options;
use crate::address::Address;
use crate::connect::{self, Access};
use crate::error::{self, Trouble};

/// A schema that was made for somebody.
#[derive(Debug)]
pub struct Scratch {
    database: String,
    name: String,
}

impl Scratch {
    /// Makes a schema of this name, which nobody has yet.
    pub async fn create(database: &str, name: &str) -> Result<Self, Error> {
        let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
        if !is_plain || name.is_empty() {
            return Err(Error::Unusable(format!("{name} cannot be the name of a schema")));
        }
        if database.contains("options=") {
            return Err(Error::Unusable("the URL of the store has options: leave them out here".to_owned()));
        }
        execute(database, &format!("CREATE SCHEMA {name}")).await?;
        Ok(Self { database: database.to_owned(), name: name.to_owned() })
    }

    /// The URL of a store that is in this schema alone.
    pub fn url(&self) -> String {
        let separator = if self.database.contains('?') { '&' } else { '?' };
        format!("{}{separator}options=-csearch_path%3D{}", self.database, self.name)
    }

    /// Removes the schema and everything in it.
    pub async fn remove(self) -> Result<(), Error> {
        execute(&self.database, &format!("DROP SCHEMA {} CASCADE", self.name)).await
    }
}

async fn execute(url: &str, sql: &str) -> Result<(), Error> {
    let pool = connect::pool(&Address::parse(url)?, 1, Options::default().deadline, Access::Write)?;
    let client = connect::take(&pool).await.map_err(Trouble::into_error)?;
    client.batch_execute(sql).await.map_err(error::from)
}
