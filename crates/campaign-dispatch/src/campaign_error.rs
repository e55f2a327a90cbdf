//! The reasons why an operation on campaigns fails, with what the caller can do about each.

use onward_base::Timestamp;
use onward_store::Error;

/// Maximum number of jobs of a campaign run: one commit creates them all.
pub(crate) const JOBS_MAX: usize = 99_000;

/// The reason why an operation on campaigns failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CampaignError {
    /// The scope has no campaign run with this id.
    #[error("campaign run {0} not found")]
    RunNotFound(String),
    /// Several campaign runs have an id with this prefix.
    #[error("several campaign run ids start with {0}: specify more characters of the id")]
    AmbiguousRunId(String),
    /// The id prefix is too short to identify a run.
    #[error("campaign run id {0} is too short: specify at least the first 4 characters")]
    RunIdTooShort(String),
    /// The outbox has no item with this id.
    #[error("outbox item {0} not found")]
    ItemNotFound(String),
    /// The scope has no job with this id.
    #[error("job {0} not found")]
    JobNotFound(String),
    /// The item is not in doubt, so it cannot be resolved.
    #[error("outbox item {0} is not in doubt: there is nothing to settle")]
    ItemNotInDoubt(String),
    /// The job is neither dead nor waiting, so it cannot be redriven.
    #[error("job {0} cannot be redriven: it is neither dead nor waiting")]
    JobNotRedrivable(String),
    /// Another client or worker changed the same run or job concurrently.
    #[error("{0} was changed concurrently: send the request again")]
    ConcurrentChange(String),
    /// A worker holds the job's lease, or crashed and the lease has not expired yet.
    #[error(
        "job {0} is locked until {1}: a worker may be calling the provider, or has crashed; send the request again when the lease has expired"
    )]
    JobLocked(String, Timestamp),
    /// The scope has no stored audience with this name.
    #[error("audience {0} not found")]
    AudienceNotFound(String),
    /// The audience was stored too long ago to be deployed.
    #[error("audience {0} was uploaded more than 6 days ago: upload it again")]
    AudienceExpired(String),
    /// A part of the audience is missing although later parts exist.
    #[error("audience {0} is incomplete: upload part {1}, which is missing")]
    AudiencePartMissing(String, usize),
    /// A part of an audience has no recipients or too many.
    #[error("an audience part must have 1 to 1000 recipients, not {0}")]
    AudiencePartSize(u32),
    /// The audience already has a part with this number and other content.
    #[error("audience {0} already has a part {1} with other content")]
    AudiencePartConflict(String, u32),
    /// The campaign run has not ended, so it cannot be retried.
    #[error("campaign run {0} has not ended: cancel it, or retry it when it has ended")]
    RunNotFinished(String),
    /// The campaign run has not ended because an operator has to resolve this many items in doubt.
    #[error(
        "campaign run {0} has not ended: {1} items are in doubt; list them with `onward outbox in-doubt`, settle them, and then retry the run"
    )]
    RunInDoubt(String, u64),
    /// A later run already retries the recipients that the campaign run did not reach.
    #[error("campaign run {0} was already retried by run {1}: retry that one instead")]
    AlreadyRetried(String, String),
    /// The campaign run has ended, so it cannot be paused, resumed or cancelled.
    #[error("campaign run {0} has ended")]
    RunFinished(String),
    /// The campaign run is cancelled: it cannot be resumed, and its jobs and items cannot be
    /// redriven.
    #[error(
        "campaign run {0} is cancelled: settle its items in doubt as sent or failed; `onward campaign retry` then sends to the recipients that it did not reach"
    )]
    RunCancelled(String),
    /// The audience has no recipients.
    #[error("the audience has no recipients")]
    EmptyAudience,
    /// The run has no recipient left to retry.
    #[error("all recipients were reached: there is nothing to retry")]
    NothingToRetry,
    /// Earlier runs of the campaign reached some of the audience, or still will.
    #[error(
        "{reached} of {of} recipients were already reached by earlier runs of campaign `{campaign}`, or will be (most recent run: {last})"
    )]
    AlreadyReached {
        /// The id of the campaign.
        campaign: String,
        /// Number of recipients that earlier runs reached or will reach.
        reached: usize,
        /// Number of recipients of the audience.
        of: usize,
        /// The id of the most recent of those runs.
        last: String,
    },
    /// The campaign would have more jobs than one commit can create.
    #[error(
        "the campaign would have {0} jobs, but at most {JOBS_MAX} are allowed: increase job_size"
    )]
    TooManyJobs(usize),
    /// The idempotency key was already used for another campaign document or audience.
    #[error(
        "idempotency key was already used by run {0} for another campaign or audience: use another key"
    )]
    DeploymentKeyReused(String),
    /// The store reported an error.
    #[error(transparent)]
    Store(#[from] Error),
}
