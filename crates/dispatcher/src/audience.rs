//! Those whom a campaign run is to reach, stored part by part: a job has one.

use onward_dispatch::digest;
use onward_journal::Text;
use onward_store::tables::AudiencePart;
use onward_store::{Commit, Error, Field as _, Key, Outcome, Records as _, Scan, Store};
use serde::{Deserialize, Serialize};

use crate::campaigns::{Campaigns, Refused, Scope};
use crate::entropy::Entropy;
use crate::sweep::FRESH_MS;

/// Recipients of a part, at most: an item's id has four digits for its position.
pub const PART_ITEMS_MAX: u32 = 1_000;

/// Parts that are read together.
const PARTS: usize = 100;

/// Somebody to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// An audience that is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audience {
    /// Its id.
    pub id: Text,
    /// How many recipients each part has.
    pub parts: Vec<u32>,
    /// Of all its parts: no other audience has the same.
    pub digest: Text,
}

impl Audience {
    /// How many recipients it has.
    pub fn items(&self) -> u32 {
        self.parts.iter().sum()
    }

    /// The numbers of its parts.
    pub fn numbers(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.parts.len()).unwrap_or(u32::MAX)
    }

    /// An audience of this scope, part after part.
    pub(crate) async fn stored(store: &dyn Store, scope: &Scope, name: &str) -> Result<Self, Refused> {
        let id = scoped(scope, name);
        let mut scan = Scan::all::<AudiencePart>().equal(&id).limit(PARTS);
        let (mut parts, mut digest) = (Vec::new(), Text::from(""));
        let now = store.now().await?;
        loop {
            let page: Vec<(AudiencePart, u64)> = store.list(scan.clone()).await?;
            for (part, _) in &page {
                if !scope.has(&part.tenant_id, &part.workspace_id) {
                    return Err(Refused::NoAudience(name.to_owned()));
                }
                if part.created_at.plus_ms(FRESH_MS) < now {
                    return Err(Refused::AudienceOld(name.to_owned()));
                }
                if part.number as usize != parts.len() {
                    return Err(Refused::PartMissing(name.to_owned(), parts.len()));
                }
                parts.push(part.items);
                digest = digest_with(&digest, &part.recipients);
            }
            match page.last() {
                Some((last, _)) if page.len() == PARTS => scan = scan.after(last),
                _ if parts.is_empty() => return Err(Refused::NoAudience(name.to_owned())),
                _ => return Ok(Self { id, parts, digest }),
            }
        }
    }
}

impl Campaigns {
    /// The recipients of a part of an audience.
    pub async fn recipients(&self, audience: &Audience, number: u32) -> Result<Vec<Recipient>, Refused> {
        Ok(read(&*self.store, &audience.id, number).await?)
    }
}

/// The digest of some parts and one more.
fn digest_with(before: &str, recipients: &[u8]) -> Text {
    let digest = digest(&[before, &String::from_utf8_lossy(recipients)]);
    digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// What an audience is called in the store: names of one workspace are not those of another.
pub(crate) fn scoped(scope: &Scope, name: &str) -> Text {
    format!("{}/{}/{name}", scope.tenant, scope.workspace).into()
}

/// What people call it.
fn named(id: &str) -> String {
    id.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Stores a part. Storing it again does nothing; another cannot take its place.
pub(crate) async fn put(
    store: &dyn Store,
    scope: &Scope,
    (audience, number): (&Text, u32),
    recipients: &[Recipient],
) -> Result<AudiencePart, Refused> {
    let items = u32::try_from(recipients.len()).unwrap_or(u32::MAX);
    if !(1..=PART_ITEMS_MAX).contains(&items) {
        return Err(Refused::PartSize(items));
    }
    let part = AudiencePart {
        audience_id: audience.clone(),
        number,
        tenant_id: scope.tenant.clone(),
        workspace_id: scope.workspace.clone(),
        items,
        recipients: serde_json::to_vec(recipients).map_err(Error::corrupt)?.into(),
        created_at: store.now().await?,
    };
    let receipt = store.commit(Commit::new().insert_or_keep(&part)).await?;
    if !matches!(receipt.changes.first(), Some(Outcome::Kept(_))) {
        return Ok(part);
    }
    let stored: Option<(AudiencePart, u64)> = store.get(Key(vec![audience.to_value(), number.to_value()])).await?;
    let is_same =
        |(stored, _): &(AudiencePart, u64)| AudiencePart { created_at: part.created_at, ..stored.clone() } == part;
    if stored.as_ref().is_some_and(is_same) { Ok(part) } else { Err(Refused::PartTaken(named(audience), number)) }
}

/// An audience that is being stored. Nobody looks for it before a campaign run names it.
pub struct Gathering<'a> {
    store: &'a dyn Store,
    scope: Scope,
    id: Text,
    part_items: usize,
    /// Recipients that do not fill a part yet.
    rest: Vec<Recipient>,
    parts: Vec<u32>,
    digest: Text,
}

impl<'a> Gathering<'a> {
    /// Begins, in parts of so many.
    pub fn begin(store: &'a dyn Store, scope: Scope, part_items: u32, entropy: &Entropy) -> Self {
        let part_items = part_items.clamp(1, PART_ITEMS_MAX) as usize;
        let id = scoped(&scope, &entropy.id());
        Self { store, scope, id, part_items, rest: Vec::new(), parts: Vec::new(), digest: "".into() }
    }

    /// Adds somebody to reach.
    pub async fn add(&mut self, recipient: Recipient) -> Result<(), Refused> {
        self.rest.push(recipient);
        if self.rest.len() == self.part_items { self.store_part().await } else { Ok(()) }
    }

    /// All of it is there. Without anybody, it is no audience.
    pub async fn finish(mut self) -> Result<Audience, Refused> {
        if !self.rest.is_empty() {
            self.store_part().await?;
        }
        if self.parts.is_empty() {
            return Err(Refused::NobodyToReach);
        }
        Ok(Audience { id: self.id, parts: self.parts, digest: self.digest })
    }

    async fn store_part(&mut self) -> Result<(), Refused> {
        let number = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let part = put(self.store, &self.scope, (&self.id, number), &self.rest).await?;
        self.parts.push(part.items);
        self.digest = digest_with(&self.digest, &part.recipients);
        self.rest.clear();
        Ok(())
    }
}

/// Removes an audience that no campaign run names.
pub(crate) async fn discard(store: &dyn Store, id: &Text) -> Result<(), Error> {
    loop {
        let parts: Vec<(AudiencePart, u64)> = store.list(Scan::all::<AudiencePart>().equal(id).limit(PARTS)).await?;
        let mut commit = Commit::new();
        for (part, _) in &parts {
            commit = commit.remove::<AudiencePart>(Key(vec![id.to_value(), part.number.to_value()]));
        }
        if parts.is_empty() {
            return Ok(());
        }
        store.commit(commit).await?;
    }
}

/// The recipients of a part.
pub(crate) async fn read(store: &dyn Store, audience: &Text, number: u32) -> Result<Vec<Recipient>, Error> {
    let part: Option<(AudiencePart, u64)> = store.get(Key(vec![audience.to_value(), number.to_value()])).await?;
    let (part, _) = part.ok_or_else(|| Error::corrupt(format!("part {number} of audience {audience} is not there")))?;
    serde_json::from_slice(&part.recipients).map_err(Error::corrupt)
}
