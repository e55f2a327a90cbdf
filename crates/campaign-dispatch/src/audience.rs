//! The stored audience of a campaign run, in parts: each job processes one part.

use onward_base::{SharedText, hex};
use onward_campaign_core::{AudienceRecipient, hash_parts};
use onward_store::tables::AudiencePartRow;
use onward_store::{
    ChangeOutcome, ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, TableScan,
};

use crate::audience_sweep::AUDIENCE_DEPLOYABLE_MS;
use crate::campaign_error::CampaignError;
use crate::entropy::EntropySource;
use crate::scope_columns::ScopeColumns;
use crate::scoped_campaigns::ScopedCampaigns;

/// Maximum number of recipients of a part: an item's id has four digits for its position.
pub const PART_ITEMS_MAX: u32 = 1_000;

/// Number of parts read from the store at a time.
const PARTS_PAGE: usize = 100;

/// A completely stored audience, ready to be deployed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAudience {
    /// The id of the audience in the store, which includes its tenant and workspace.
    pub id: SharedText,
    /// Number of recipients of each part.
    pub part_sizes: Vec<u32>,
    /// A digest of all parts; different audiences have different digests.
    pub digest: SharedText,
}

impl StoredAudience {
    /// Number of recipients of all parts together.
    pub fn recipient_count(&self) -> u32 {
        self.part_sizes.iter().sum()
    }

    /// The numbers of its parts, from 0.
    pub fn part_numbers(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.part_sizes.len()).unwrap_or(u32::MAX)
    }

    /// Reads an audience of this scope, one page of parts at a time. Fails if it does not exist,
    /// has expired or lacks a part.
    pub(crate) async fn read_stored(
        store: &dyn Store,
        scope: &ScopeColumns,
        name: &str,
    ) -> Result<Self, CampaignError> {
        let id = scope.audience_id(name);
        let mut scan = TableScan::all_rows::<AudiencePartRow>()
            .where_equal(&id)
            .with_limit(PARTS_PAGE);
        let (mut parts, mut digest) = (Vec::new(), SharedText::from(""));
        let now = store.now().await?;
        loop {
            let page: Vec<(AudiencePartRow, u64)> = store.list_records(scan.clone()).await?;
            for (part, _) in &page {
                if !scope.match_row(&part.tenant_id, &part.workspace_id) {
                    return Err(CampaignError::AudienceNotFound(name.to_owned()));
                }
                if part.created_at.plus_ms(AUDIENCE_DEPLOYABLE_MS) < now {
                    return Err(CampaignError::AudienceExpired(name.to_owned()));
                }
                if part.number as usize != parts.len() {
                    return Err(CampaignError::AudiencePartMissing(
                        name.to_owned(),
                        parts.len(),
                    ));
                }
                parts.push(part.items);
                digest = extend_digest(&digest, &part.recipients);
            }
            match page.last() {
                Some((last, _)) if page.len() == PARTS_PAGE => scan = scan.starting_after(last),
                _ if parts.is_empty() => {
                    return Err(CampaignError::AudienceNotFound(name.to_owned()));
                }
                _ => {
                    return Ok(Self {
                        id,
                        part_sizes: parts,
                        digest,
                    });
                }
            }
        }
    }
}

impl ScopedCampaigns {
    /// Reads the recipients of one part of an audience.
    pub async fn read_recipients(
        &self,
        audience: &StoredAudience,
        number: u32,
    ) -> Result<Vec<AudienceRecipient>, CampaignError> {
        Ok(read_audience_part(&*self.store, &audience.id, number).await?)
    }
}

/// Extends the digest of the preceding parts by one part.
fn extend_digest(before: &str, recipients: &[u8]) -> SharedText {
    hex::encode_hex(&hash_parts(&[before, &String::from_utf8_lossy(recipients)])).into()
}

/// Stores a part. Storing the same part again has no effect; fails if the number has other content.
pub(crate) async fn put_audience_part(
    store: &dyn Store,
    scope: &ScopeColumns,
    (name, number): (&str, u32),
    recipients: &[AudienceRecipient],
) -> Result<AudiencePartRow, CampaignError> {
    let items = u32::try_from(recipients.len()).unwrap_or(u32::MAX);
    if !(1..=PART_ITEMS_MAX).contains(&items) {
        return Err(CampaignError::AudiencePartSize(items));
    }
    let part = AudiencePartRow {
        audience_id: scope.audience_id(name),
        number,
        tenant_id: scope.tenant_id.clone(),
        workspace_id: scope.workspace_id.clone(),
        items,
        recipients: serde_json::to_vec(recipients)
            .map_err(Error::corrupt)?
            .into(),
        created_at: store.now().await?,
    };
    let receipt = store.commit(Commit::new().insert_or_keep(&part)).await?;
    if !matches!(receipt.changes.first(), Some(ChangeOutcome::Kept(_))) {
        return Ok(part);
    }
    let stored: Option<(AudiencePartRow, u64)> = store
        .read_record(RowKey(vec![part.audience_id.to_value(), number.to_value()]))
        .await?;
    let is_same = |(stored, _): &(AudiencePartRow, u64)| {
        AudiencePartRow {
            created_at: part.created_at,
            ..stored.clone()
        } == part
    };
    if stored.as_ref().is_some_and(is_same) {
        Ok(part)
    } else {
        Err(CampaignError::AudiencePartConflict(name.to_owned(), number))
    }
}

/// Stores an audience part by part. No worker reads it before a campaign run refers to it.
pub struct AudienceWriter<'a> {
    store: &'a dyn Store,
    scope: ScopeColumns,
    name: SharedText,
    part_size: usize,
    /// Recipients that do not fill a part yet.
    buffer: Vec<AudienceRecipient>,
    part_sizes: Vec<u32>,
    digest: SharedText,
}

impl<'a> AudienceWriter<'a> {
    /// Starts a new audience in parts of `part_items` recipients, clamped to 1 to
    /// [`PART_ITEMS_MAX`].
    pub(crate) fn new(
        store: &'a dyn Store,
        scope: ScopeColumns,
        part_items: u32,
        entropy: &EntropySource,
    ) -> Self {
        let part_items = part_items.clamp(1, PART_ITEMS_MAX) as usize;
        Self {
            store,
            scope,
            name: entropy.random_id(),
            part_size: part_items,
            buffer: Vec::new(),
            part_sizes: Vec::new(),
            digest: "".into(),
        }
    }

    /// Adds a recipient, and stores the current part when it is full.
    pub async fn add_recipient(
        &mut self,
        recipient: AudienceRecipient,
    ) -> Result<(), CampaignError> {
        self.buffer.push(recipient);
        if self.buffer.len() == self.part_size {
            self.flush_part().await
        } else {
            Ok(())
        }
    }

    /// Stores the last part and returns the audience. Fails if it has no recipients.
    pub async fn finish(mut self) -> Result<StoredAudience, CampaignError> {
        if !self.buffer.is_empty() {
            self.flush_part().await?;
        }
        if self.part_sizes.is_empty() {
            return Err(CampaignError::EmptyAudience);
        }
        Ok(StoredAudience {
            id: self.scope.audience_id(&self.name),
            part_sizes: self.part_sizes,
            digest: self.digest,
        })
    }

    async fn flush_part(&mut self) -> Result<(), CampaignError> {
        let number = u32::try_from(self.part_sizes.len()).unwrap_or(u32::MAX);
        let part =
            put_audience_part(self.store, &self.scope, (&self.name, number), &self.buffer).await?;
        self.part_sizes.push(part.items);
        self.digest = extend_digest(&self.digest, &part.recipients);
        self.buffer.clear();
        Ok(())
    }
}

/// Deletes an audience. The caller must make sure that no campaign run refers to it.
pub(crate) async fn delete_audience(store: &dyn Store, id: &SharedText) -> Result<(), Error> {
    loop {
        let parts: Vec<(AudiencePartRow, u64)> = store
            .list_records(
                TableScan::all_rows::<AudiencePartRow>()
                    .where_equal(id)
                    .with_limit(PARTS_PAGE),
            )
            .await?;
        let mut commit = Commit::new();
        for (part, _) in &parts {
            commit = commit.delete_if_exists::<AudiencePartRow>(RowKey(vec![
                id.to_value(),
                part.number.to_value(),
            ]));
        }
        if parts.is_empty() {
            return Ok(());
        }
        store.commit(commit).await?;
    }
}

/// Reads the recipients of a part. Fails if the part does not exist.
pub(crate) async fn read_audience_part(
    store: &dyn Store,
    audience: &SharedText,
    number: u32,
) -> Result<Vec<AudienceRecipient>, Error> {
    let part: Option<(AudiencePartRow, u64)> = store
        .read_record(RowKey(vec![audience.to_value(), number.to_value()]))
        .await?;
    let (part, _) = part.ok_or_else(|| {
        Error::corrupt(format!("part {number} of audience {audience} is missing"))
    })?;
    serde_json::from_slice(&part.recipients).map_err(Error::corrupt)
}
