//! The audit trail of a campaign run: each entry is written in the transaction of the change that
//! it records.

use onward_base::Timestamp;
use onward_store::tables::{AuditEntryRow, CampaignRunRow};
use onward_store::{Commit, SerialId};
use serde_json::Value;

/// Adds an entry about a campaign run to a commit.
pub(crate) fn append_entry(
    commit: Commit,
    run: &CampaignRunRow,
    event: &str,
    detail: &Value,
    now: Timestamp,
) -> Commit {
    commit.insert(&AuditEntryRow {
        entry_id: SerialId::default(),
        run_id: run.id.clone(),
        tenant_id: run.tenant_id.clone(),
        workspace_id: run.workspace_id.clone(),
        event: event.into(),
        detail: (!detail.is_null()).then(|| detail.to_string().into()),
        created_at: now,
    })
}
