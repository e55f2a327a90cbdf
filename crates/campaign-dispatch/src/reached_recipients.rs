//! Determines which recipients the earlier runs of a campaign reached. A deployment checks this
//! before it creates another run, so that no recipient is sent to twice by mistake. Each recipient
//! takes 16 bytes of memory here, and audiences are read part by part, so that an audience of a
//! million fits.

use std::collections::HashSet;

use onward_base::SharedText;
use onward_campaign_core::{CampaignRunControl, ItemReason, ItemState, hash_parts};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, TableScan};

use crate::audience::{self, AudienceWriter, StoredAudience};
use crate::campaign_error::CampaignError;
use crate::entropy::EntropySource;
use crate::row_mapping;
use crate::scope_columns::ScopeColumns;

/// Number of runs read at a time; small, because each has a document of up to several megabytes.
const RUNS_PAGE: usize = 10;

/// How a deployment treats recipients that earlier runs of the same campaign reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RepeatSendPolicy {
    /// The deployment fails if there is such a recipient.
    #[default]
    Refuse,
    /// The deployment excludes these recipients and sends to the others.
    Exclude,
    /// The deployment sends to these recipients again.
    Resend,
}

/// The runs of a campaign, ordered by ordinal.
pub(crate) struct CampaignRunHistory<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) scope: &'a ScopeColumns,
    pub(crate) campaign_id: &'a SharedText,
}

impl CampaignRunHistory<'_> {
    fn newest_first_scan(&self) -> TableScan {
        let scan = TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_ORDINAL)
            .where_equal(&self.scope.tenant_id)
            .where_equal(&self.scope.workspace_id);
        scan.where_equal(self.campaign_id)
            .with_limit(RUNS_PAGE)
            .reversed()
    }

    /// Reads the next page of runs, or `None` at the end, and advances the scan.
    async fn next_page(
        &self,
        scan: &mut TableScan,
    ) -> Result<Option<Vec<(CampaignRunRow, u64)>>, Error> {
        let page: Vec<(CampaignRunRow, u64)> = self.store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else {
            return Ok(None);
        };
        *scan = scan.clone().starting_after(last);
        Ok(Some(page))
    }

    /// The ordinal of the last run, or 0 if the campaign has no run.
    pub(crate) async fn last_ordinal(&self) -> Result<u32, Error> {
        let newest: Vec<(CampaignRunRow, u64)> = self
            .store
            .list_records(self.newest_first_scan().with_limit(1))
            .await?;
        Ok(newest.first().map_or(0, |(run, _)| run.ordinal))
    }

    /// Removes the recipients that runs up to the ordinal `until` reached or may still reach; the
    /// last run is read first.
    pub(crate) async fn remove_reached(
        &self,
        unreached: &mut UnreachedRecipients,
        until: u32,
    ) -> Result<(), Error> {
        let mut scan = self.newest_first_scan().where_at_most(&until);
        while let Some(page) = self.next_page(&mut scan).await? {
            for (run, version) in &page {
                if unreached.hashes.is_empty() {
                    return Ok(());
                }
                unreached
                    .remove_reached_by(self.store, run, *version)
                    .await?;
            }
        }
        Ok(())
    }

    /// Removes the recipients of every run after the ordinal `after`, whatever their outcome: only
    /// the last run of a recipient may be used to retry them, so that no two runs do.
    pub(crate) async fn remove_targeted(
        &self,
        unreached: &mut UnreachedRecipients,
        after: u32,
    ) -> Result<(), Error> {
        let mut scan = self.newest_first_scan();
        while let Some(page) = self.next_page(&mut scan).await? {
            for (run, _) in &page {
                if run.ordinal <= after || unreached.hashes.is_empty() {
                    return Ok(());
                }
                let before = unreached.hashes.len();
                for number in 0..run.jobs {
                    unreached.remove_part(self.store, run, number).await?;
                }
                unreached.record_last_run(before, run);
            }
        }
        Ok(())
    }
}

/// A truncated hash of a recipient id, to save memory.
type RecipientHash = [u8; 16];

fn hash_recipient(recipient: &str) -> RecipientHash {
    let mut hash = [0; 16];
    hash.copy_from_slice(&hash_parts(&[recipient])[..16]);
    hash
}

/// The recipients that none of the runs checked so far reached.
#[derive(Debug, Default)]
pub(crate) struct UnreachedRecipients {
    hashes: HashSet<RecipientHash>,
    /// Number of recipients before any run was checked.
    initial_count: usize,
    /// The most recent run that reached one of the recipients or may still reach one.
    last_run: Option<SharedText>,
    /// Runs that have ended and have an exhausted item of one of the recipients, which a redrive of
    /// its job would send again.
    redrivable_runs: Vec<(CampaignRunRow, u64)>,
}

impl UnreachedRecipients {
    /// Starts with all recipients of an audience.
    pub(crate) async fn from_audience(
        store: &dyn Store,
        audience: &StoredAudience,
    ) -> Result<Self, Error> {
        let mut hashes = HashSet::new();
        for number in audience.part_numbers() {
            hashes.extend(
                audience::read_audience_part(store, &audience.id, number)
                    .await?
                    .iter()
                    .map(|recipient| hash_recipient(&recipient.id)),
            );
        }
        Ok(Self {
            initial_count: hashes.len(),
            hashes,
            ..Self::default()
        })
    }

    /// Starts with these recipient ids.
    pub(crate) fn from_recipients(recipients: impl Iterator<Item = SharedText>) -> Self {
        let hashes: HashSet<RecipientHash> = recipients.map(|id| hash_recipient(&id)).collect();
        Self {
            initial_count: hashes.len(),
            hashes,
            ..Self::default()
        }
    }

    /// The most recent run that removed a recipient.
    pub(crate) const fn last_run(&self) -> Option<&SharedText> {
        self.last_run.as_ref()
    }

    /// Whether this recipient has not been removed.
    pub(crate) fn contains_recipient(&self, recipient: &str) -> bool {
        self.hashes.contains(&hash_recipient(recipient))
    }

    /// Whether all recipients have been removed.
    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// Number of recipients that were reached or may still be.
    pub(crate) fn reached_count(&self) -> usize {
        self.initial_count - self.hashes.len()
    }

    /// Fails if any recipient was reached or may still be.
    pub(crate) fn refuse_if_reached(&self, campaign: &SharedText) -> Result<(), CampaignError> {
        let (campaign, reached, of) = (
            campaign.to_string(),
            self.reached_count(),
            self.initial_count,
        );
        match &self.last_run {
            Some(last) => Err(CampaignError::AlreadyReached {
                campaign,
                reached,
                of,
                last: last.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// Stores the audience without the removed recipients as a new one, in parts of the same size.
    /// Returns the original if no recipient was removed.
    pub(crate) async fn store_audience(
        &self,
        store: &dyn Store,
        scope: &ScopeColumns,
        audience: &StoredAudience,
        entropy: &EntropySource,
    ) -> Result<StoredAudience, CampaignError> {
        if self.reached_count() == 0 {
            return Ok(audience.clone());
        }
        let part_items = audience.part_sizes.iter().copied().max().unwrap_or(1);
        let mut writer = AudienceWriter::new(store, scope.clone(), part_items, entropy);
        for number in audience.part_numbers() {
            for recipient in audience::read_audience_part(store, &audience.id, number).await? {
                if self.contains_recipient(&recipient.id) {
                    writer.add_recipient(recipient).await?;
                }
            }
        }
        writer.finish().await
    }

    /// Extends a commit so that it conflicts if a job of the redrivable runs was redriven
    /// meanwhile, and so that a concurrent redrive conflicts with it and has to check again.
    pub(crate) fn guard_commit(&self, commit: Commit) -> Commit {
        self.redrivable_runs
            .iter()
            .fold(commit, |commit, (run, version)| {
                commit.update(run, *version)
            })
    }

    async fn remove_reached_by(
        &mut self,
        store: &dyn Store,
        run: &CampaignRunRow,
        version: u64,
    ) -> Result<(), Error> {
        let before = self.hashes.len();
        if run.status.is_terminal() {
            self.remove_settled(store, run, version).await?;
        } else {
            for number in 0..run.jobs {
                self.remove_unfinished(store, run, number).await?;
            }
        }
        self.record_last_run(before, run);
        Ok(())
    }

    fn record_last_run(&mut self, before: usize, run: &CampaignRunRow) {
        if self.hashes.len() < before && self.last_run.is_none() {
            self.last_run = Some(run.id.clone());
        }
    }

    /// Removes all recipients of a job.
    async fn remove_part(
        &mut self,
        store: &dyn Store,
        run: &CampaignRunRow,
        number: u32,
    ) -> Result<(), Error> {
        for recipient in audience::read_audience_part(store, &run.audience_id, number).await? {
            self.hashes.remove(&hash_recipient(&recipient.id));
        }
        Ok(())
    }

    /// Removes the recipients that a job of an unfinished run reached or may still reach. Their
    /// outcome is unknown as yet, except in a cancelled run: a job of it that has ended sends to
    /// no more recipients.
    async fn remove_unfinished(
        &mut self,
        store: &dyn Store,
        run: &CampaignRunRow,
        number: u32,
    ) -> Result<(), Error> {
        let job_id = row_mapping::job_id(&run.id, number);
        let job: Option<(JobRow, u64)> = store.read_record(RowKey(vec![job_id.to_value()])).await?;
        let has_ended = job.is_some_and(|(job, _)| job.status.is_terminal());
        if !has_ended || run.control != CampaignRunControl::Cancelled {
            return self.remove_part(store, run, number).await;
        }
        for (row, _) in row_mapping::read_job_items(store, &job_id).await? {
            if !matches!(
                row_mapping::item_state(&row),
                ItemState::Skipped | ItemState::Failed
            ) {
                self.hashes.remove(&hash_recipient(&row.recipient_id));
            }
        }
        Ok(())
    }

    /// Removes the recipients that a finished run reached.
    async fn remove_settled(
        &mut self,
        store: &dyn Store,
        run: &CampaignRunRow,
        version: u64,
    ) -> Result<(), Error> {
        let mut scan =
            TableScan::by_index::<OutboxItemRow>(OutboxItemRow::BY_RUN).where_equal(&run.id);
        let mut is_redrivable = false;
        loop {
            let page: Vec<(OutboxItemRow, u64)> = store.list_records(scan.clone()).await?;
            for (row, _) in &page {
                match row_mapping::item_state(row) {
                    ItemState::Skipped => {}
                    ItemState::Failed => {
                        is_redrivable |= row.reason == Some(ItemReason::Exhausted)
                            && self.contains_recipient(&row.recipient_id);
                    }
                    _ => drop(self.hashes.remove(&hash_recipient(&row.recipient_id))),
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == scan.limit => scan = scan.starting_after(last),
                _ => break,
            }
        }
        if is_redrivable {
            self.redrivable_runs.push((run.clone(), version));
        }
        Ok(())
    }
}
