//! Whom the runs of a campaign have reached. Deploying asks before it makes another run, so that nobody is reached twice who was
//! not to be; an audience of a million is sixteen bytes for each of them here, and is read part by part.

use std::collections::HashSet;

use onward_base::SharedText;
use onward_campaign_core::{CampaignRunControl, ItemReason, ItemState, hash_parts};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, TableScan};

use crate::audience::{self, AudienceWriter, StoredAudience};
use crate::entropy::EntropySource;
use crate::row_mapping;
use crate::scoped_campaigns::{CampaignError, CampaignScope};

/// Runs that are read together: each has a document of up to some megabytes.
const RUNS_PAGE: usize = 10;

/// What is to happen with those whom earlier runs of the same campaign have reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RepeatSendPolicy {
    /// Nothing is deployed if there is one.
    #[default]
    Refuse,
    /// The others are reached.
    Exclude,
    /// They are reached again.
    Resend,
}

/// The runs of a campaign, in their order.
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

    /// The next runs of a scan, if there are any.
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

    /// The ordinal of the last one; 0 if there is none.
    pub(crate) async fn last_ordinal(&self) -> Result<u32, Error> {
        let found: Vec<(CampaignRunRow, u64)> = self
            .store
            .list_records(self.newest_first_scan().with_limit(1))
            .await?;
        Ok(found.first().map_or(0, |(run, _)| run.ordinal))
    }

    /// Takes those out whom runs have reached, or are to: the runs until an ordinal, the last first.
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

    /// Takes those out for whom a run was made after this ordinal, whatever became of them there: the last run that was made for
    /// somebody is the one by which they can be tried again, so that no two are.
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

/// Somebody, in little memory.
type RecipientHash = [u8; 16];

fn hash_recipient(recipient: &str) -> RecipientHash {
    let mut id = [0; 16];
    id.copy_from_slice(&hash_parts(&[recipient])[..16]);
    id
}

/// Those whom no run has reached that was looked at.
#[derive(Debug, Default)]
pub(crate) struct UnreachedRecipients {
    hashes: HashSet<RecipientHash>,
    /// How many there were before anything was looked at.
    initial_count: usize,
    /// The last run that has reached one of them, or is to.
    last_run: Option<SharedText>,
    /// Runs that are over, and in which one of them failed whom a job that is redriven would try again.
    redrivable_runs: Vec<(CampaignRunRow, u64)>,
}

impl UnreachedRecipients {
    /// All of an audience.
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

    /// These.
    pub(crate) fn from_recipients(recipients: impl Iterator<Item = SharedText>) -> Self {
        let ids: HashSet<RecipientHash> = recipients.map(|it| hash_recipient(&it)).collect();
        Self {
            initial_count: ids.len(),
            hashes: ids,
            ..Self::default()
        }
    }

    /// The last run by which somebody was taken out.
    pub(crate) const fn last_run(&self) -> Option<&SharedText> {
        self.last_run.as_ref()
    }

    /// Whether somebody is one of them.
    pub(crate) fn contains_recipient(&self, recipient: &str) -> bool {
        self.hashes.contains(&hash_recipient(recipient))
    }

    /// Whether there is nobody.
    pub(crate) fn is_empty(&self) -> bool {
        self.hashes.is_empty()
    }

    /// How many were reached, or are to be.
    pub(crate) fn reached_count(&self) -> usize {
        self.initial_count - self.hashes.len()
    }

    /// Nothing is deployed if somebody was reached.
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

    /// The audience without those who were reached: stored anew, in parts of the same size.
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

    /// A commit that is refused if a job was redriven since, and after which nobody redrives one without having looked again.
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

    /// Takes those out whom a job is for.
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

    /// Takes those out whom a job of a run has reached, or may reach, that is not over. What becomes of them is not known yet; but
    /// of a run that is cancelled, nobody is reached any more by a job that is over.
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

    /// Takes those out whom a run that is over has reached.
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
