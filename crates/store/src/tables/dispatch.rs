//! Campaign runs, jobs, outbox items and their audit trail. The database itself refuses statuses that do not exist.

use onward_journal::{Text, Timestamp};

use crate::{Serial, record};

record! {
    /// One execution of a campaign.
    "campaign_runs", key 1,
    index BY_CAMPAIGN ["campaign_id", "created_at"];
    pub struct CampaignRun {
        /// The campaign run.
        pub id: Text = "id",
        /// The campaign.
        pub campaign_id: Text = "campaign_id",
        /// Whose it is.
        pub tenant_id: Text = "tenant_id",
        /// In which workspace.
        pub workspace_id: Text = "workspace_id",
        /// `email`, `voice` or `social`.
        pub channel: Text = "channel",
        /// `queued`, `running`, `completed`, `partial` or `failed`.
        pub status: Text = "status",
        /// When it was deployed.
        pub created_at: Timestamp = "created_at",
    }
}

record! {
    /// A batch of items of a campaign run, for one worker.
    "job_queue", key 1,
    index BY_TURN ["status", "run_after", "created_at"];
    pub struct Job {
        /// The job.
        pub id: Text = "id",
        /// The campaign run.
        pub run_id: Text = "run_id",
        /// Whose it is.
        pub tenant_id: Text = "tenant_id",
        /// In which workspace.
        pub workspace_id: Text = "workspace_id",
        /// `email_send_batch`, `voice_call_batch` or `social_post_batch`.
        pub job_type: Text = "job_type",
        /// `queued`, `locked`, `completed`, `failed` or `dead`.
        pub status: Text = "status",
        /// How often it was tried.
        pub attempts: u32 = "attempts",
        /// Not before.
        pub run_after: Timestamp = "run_after",
        /// Until when a worker holds it.
        pub locked_until: Option<Timestamp> = "locked_until",
        /// What that worker shows to finish it.
        pub lock_token: Option<Text> = "lock_token",
        /// When it was made.
        pub created_at: Timestamp = "created_at",
    }
}

record! {
    /// One call of a provider: reserved before, settled after.
    "channel_outbox", key 1,
    unique ["tenant_id", "workspace_id", "idempotency_key"],
    index BY_RUN ["run_id", "id"] BY_JOB ["job_id", "id"];
    pub struct OutboxItem {
        /// The item.
        pub id: Text = "id",
        /// The campaign run.
        pub run_id: Text = "run_id",
        /// The job.
        pub job_id: Text = "job_id",
        /// Whose it is.
        pub tenant_id: Text = "tenant_id",
        /// In which workspace.
        pub workspace_id: Text = "workspace_id",
        /// `email`, `voice` or `social`.
        pub channel: Text = "channel",
        /// Who really sends.
        pub provider: Text = "provider",
        /// To whom.
        pub recipient_id: Text = "recipient_id",
        /// What makes calling the provider again a repetition.
        pub idempotency_key: Text = "idempotency_key",
        /// `queued`, `sent`, `called`, `posted`, `failed` or `skipped`.
        pub status: Text = "status",
        /// Whether it was skipped, which its status says as well.
        pub skipped: bool = "skipped",
        /// Since when nobody knows whether the provider was reached.
        pub doubt_since: Option<Timestamp> = "doubt_since",
        /// What the provider calls it.
        pub provider_message_id: Option<Text> = "provider_message_id",
        /// Why it failed.
        pub error: Option<Text> = "error",
        /// What is sent, as JSON.
        pub payload: Option<Text> = "payload",
        /// When it was reserved.
        pub created_at: Timestamp = "created_at",
    }
}

record! {
    /// What happened to a campaign run, for the record.
    "campaign_audit_log", key 1,
    index BY_RUN ["run_id", "entry_id"];
    pub struct AuditEntry {
        /// Its place.
        pub entry_id: Serial = "entry_id",
        /// The campaign run.
        pub run_id: Text = "run_id",
        /// Whose it is.
        pub tenant_id: Text = "tenant_id",
        /// In which workspace.
        pub workspace_id: Text = "workspace_id",
        /// What happened.
        pub event: Text = "event",
        /// The particulars, as JSON.
        pub detail: Option<Text> = "detail",
        /// When.
        pub created_at: Timestamp = "created_at",
    }
}
