//! What the server itself can do: one-row inserts of one client, prepared, each a commit of its own. Rates of the store
//! mean something beside this one only.

use deadpool_postgres::Client;
use onward_store::Error;

use crate::Options;
use crate::address::Address;
use crate::connect::{self, Access};
use crate::error::{self, Trouble};

/// A connection, and a narrow table.
pub struct Yardstick(Client);

impl Yardstick {
    /// Connects, and makes the table if need be.
    pub async fn open(url: &str) -> Result<Self, Error> {
        let pool = connect::pool(&Address::parse(url)?, 1, Options::default().deadline, Access::Write)?;
        let client = connect::take(&pool).await.map_err(Trouble::into_error)?;
        let table = "CREATE TABLE IF NOT EXISTS yardstick (id BIGINT GENERATED ALWAYS AS IDENTITY, body BYTEA NOT \
                     NULL, CONSTRAINT yardstick_pkey PRIMARY KEY (id))";
        client.batch_execute(table).await.map_err(error::from)?;
        Ok(Self(client))
    }

    /// Inserts one row of 100 bytes and makes it durable.
    pub async fn commit_row(&self) -> Result<(), Error> {
        let insert = self.0.prepare_cached("INSERT INTO yardstick (body) VALUES ($1)").await.map_err(error::from)?;
        let row = [0_u8; 100].as_slice();
        self.0.execute(&insert, &[&row]).await.map(drop).map_err(error::from)
    }
}
