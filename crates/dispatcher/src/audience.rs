//! Those whom a campaign run is to reach, stored part by part: a job has one.

use onward_journal::Text;
use onward_store::tables::AudiencePart;
use onward_store::{Error, Field as _, Key, Records as _, Store};
use serde::{Deserialize, Serialize};

/// Somebody to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipient {
    /// Who it is. Of several with the same id, one is reached.
    pub id: String,
    /// Where: an address of mail, a number, a place to post to.
    #[serde(rename = "to")]
    pub address: String,
    /// What templates can say of them.
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    pub data: serde_json::Map<String, serde_json::Value>,
}

/// As a part stores them.
pub(crate) fn encode(recipients: &[Recipient]) -> Result<Vec<u8>, Error> {
    serde_json::to_vec(recipients).map_err(Error::corrupt)
}

/// The recipients of a part.
pub(crate) async fn read(store: &dyn Store, audience: &Text, number: u32) -> Result<Vec<Recipient>, Error> {
    let part: Option<(AudiencePart, u64)> = store.get(Key(vec![audience.to_value(), number.to_value()])).await?;
    let (part, _) = part.ok_or_else(|| Error::corrupt(format!("part {number} of audience {audience} is not there")))?;
    serde_json::from_slice(&part.recipients).map_err(Error::corrupt)
}
