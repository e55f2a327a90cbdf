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
use crate::entropy::EntropySource;
use crate::row_mapping;
use crate::scoped_campaigns::{CampaignError, CampaignScope};

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
    pub(crate) scope: &'a CampaignScope,
    pub(crate) campaign_id: &'a SharedText,
}

impl CampaignRunHistory<'_> {
    fn newest_first_scan(&self) -> TableScan {
        let CampaignScope { tenant, workspace } = self.scope;
        let scan = TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_ORDINAL)
            .where_equal(tenant)
            .where_equal(workspace);
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
        let found: Vec<(CampaignRunRow, u64)> = self
            .store
            .list_records(self.newest_first_scan().with_limit(1))
            .await?;
        Ok(found.first().map_or(0, |(run, _)| run.ordinal))
    }

    /// Removes the recipients that runs up to the ordinal `until` reached or may still reach; the
    /// last run is read first.
    pub(crate) async fn remove_reached(
        &self,
        from: &mut UnreachedRecipients,
        until: u32,
    ) -> Result<(), Error> {
        let mut scan = self.newest_first_scan().where_at_most(&until);
        while let Some(page) = self.next_page(&mut scan).await? {
            for (run, version) in &page {
                if from.hashes.is_empty() {
                    return Ok(());
                }
                from.remove_reached_by(self.store, run, *version).await?;
            }
        }
        Ok(())
    }

    /// Removes the recipients of every run after the ordinal `after`, whatever their outcome: only
    /// the last run of a recipient may be used to retry them, so that no two runs do.
    pub(crate) async fn remove_targeted(
        &self,
        from: &mut UnreachedRecipients,
        after: u32,
    ) -> Result<(), Error> {
        let mut scan = self.newest_first_scan();
        while let Some(page) = self.next_page(&mut scan).await? {
            for (run, _) in &page {
                if run.ordinal <= after || from.hashes.is_empty() {
                    return Ok(());
                }
                let before = from.hashes.len();
                for number in 0..run.jobs {
                    from.remove_part(self.store, run, number).await?;
                }
                from.record_last_run(before, run);
            }
        }
        Ok(())
    }
}

/// A truncated hash of a recipient id, to save memory.
type RecipientHash = [u8; 16];

fn hash_recipient(recipient: &str) -> RecipientHash {
    let mut id = [0; 16];
    id.copy_from_slice(&hash_parts(&[recipient])[..16]);
    id
}

/// The recipients that none of the runs checked so far reached.
#[derive(Debug, Default)]
pub(crate) struct UnreachedRecipients {
    hashes: HashSet<RecipientHash>,
    /// Number of recipients before any run was checked.
    initial_count: usize,
    /// The most recent run that reached one of the recipients or may still reach one.
    last_run: Option<SharedText>,
    /// Runs that are over and have an exhausted item of one of the recipients, which a redrive of
    /// its job would send again.
    redrivable_runs: Vec<(CampaignRunRow, u64)>,
}

impl UnreachedRecipients {
    /// Starts with all recipients of an audience.
    pub(crate) async fn from_audience(
        store: &dyn Store,
        audience: &StoredAudience,
    ) -> Result<Self, Error> {
        let mut ids = HashSet::new();
        for number in audience.part_numbers() {
            ids.extend(
                audience::read_audience_part(store, &audience.id, number)
                    .await?
                    .iter()
                    .map(|it| hash_recipient(&it.id)),
            );
        }
        Ok(Self {
            initial_count: ids.len(),
            hashes: ids,
            ..Self::default()
        })
    }

    /// Starts with these recipient ids.
    pub(crate) fn from_recipients(recipients: impl Iterator<Item = SharedText>) -> Self {
        let ids: HashSet<RecipientHash> = recipients.map(|it| hash_recipient(&it)).collect();
        Self {
            initial_count: ids.len(),
            hashes: ids,
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
        scope: &CampaignScope,
        audience: &StoredAudience,
        entropy: &EntropySource,
    ) -> Result<StoredAudience, CampaignError> {
        if self.reached_count() == 0 {
            return Ok(audience.clone());
        }
        let part_items = audience.part_sizes.iter().copied().max().unwrap_or(1);
        let mut gathering = AudienceWriter::new(store, scope.clone(), part_items, entropy);
        for number in audience.part_numbers() {
            for recipient in audience::read_audience_part(store, &audience.id, number).await? {
                if self.contains_recipient(&recipient.id) {
                    gathering.add_recipient(recipient).await?;
                }
            }
        }
        gathering.finish().await
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
        if row_mapping::run_status(run).is_terminal() {
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
    /// outcome is unknown as yet, except in a cancelled run: a job of it that is over sends to no
    /// more recipients.
    async fn remove_unfinished(
        &mut self,
        store: &dyn Store,
        run: &CampaignRunRow,
        number: u32,
    ) -> Result<(), Error> {
        let id_of_job = row_mapping::job_id(&run.id, number);
        let job: Option<(JobRow, u64)> = store
            .read_record(RowKey(vec![id_of_job.to_value()]))
            .await?;
        let is_over = job.is_some_and(|(job, _)| row_mapping::job_status(&job).is_terminal());
        if !is_over
            || CampaignRunControl::parse(&run.control) != Some(CampaignRunControl::Cancelled)
        {
            return self.remove_part(store, run, number).await;
        }
        for (row, _) in row_mapping::read_job_items(store, &id_of_job).await? {
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
        let mut is_reopenable = false;
        loop {
            let page: Vec<(OutboxItemRow, u64)> = store.list_records(scan.clone()).await?;
            for (row, _) in &page {
                match row_mapping::item_state(row) {
                    ItemState::Skipped => {}
                    ItemState::Failed => {
                        let is_exhausted =
                            row.reason.as_deref() == Some(ItemReason::Exhausted.as_str());
                        is_reopenable |= is_exhausted && self.contains_recipient(&row.recipient_id);
                    }
                    _ => drop(self.hashes.remove(&hash_recipient(&row.recipient_id))),
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == scan.limit => scan = scan.starting_after(last),
                _ => break,
            }
        }
        if is_reopenable {
            self.redrivable_runs.push((run.clone(), version));
        }
        Ok(())
    }
}
