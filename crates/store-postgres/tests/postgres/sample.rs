//! Sample records and events for tests.

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunStatus, DeliveryChannel, JobStatus, JobType,
};
use onward_journal::{ComponentDigest, ExecutionId, ExecutionState};
use onward_runs::{
    AttemptNumber, ExtraFields, IdempotencyKey, IdempotencyKeyParts, RunEventId, RunEventWrite,
    RunId,
};
use onward_store::tables::{
    CampaignRunRow, ExecutionRow, InboxMessageKind, InboxMessageRow, JobRow,
};
use onward_store::{
    ColumnValue, JournalAppend, RowChange, SerialId, ShardId, TableRecord, TableRow,
};

fn valid<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().unwrap()
}

pub(crate) fn run(name: &str) -> RunId {
    valid(name)
}

/// The event of a run that completes step `step`. The same run and step give the same event.
pub(crate) fn event(run: &str, step: usize) -> RunEventWrite {
    let mut event = RunEventWrite {
        event_id: event_id(run, step),
        event_type: valid("StepCompleted"),
        emitted_at: valid("2026-03-01T12:00:00Z"),
        run_id: valid(run),
        tenant_id: valid("tenant"),
        project_id: valid("project"),
        environment_id: valid("production"),
        plan_id: valid("plan"),
        plan_version: valid("1"),
        engine_attempt_id: AttemptNumber::FIRST,
        logical_attempt_id: AttemptNumber::FIRST,
        idempotency_key: IdempotencyKey::from_bytes([0; 32]),
        step_id: Some(valid(&format!("step-{step}"))),
        payload: None,
        extra: ExtraFields::NONE,
    };
    event.idempotency_key = IdempotencyKeyParts::from_event(&event, None)
        .current_preimage()
        .compute_key();
    event
}

/// Derives an event id from run and step.
fn event_id(run: &str, step: usize) -> RunEventId {
    let name = format!("{run}/{step}");
    let mut hash = 0xcbf2_9ce4_8422_2325_u128;
    for byte in name.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0100_0000_0000_0000_013b);
    }
    let mut bytes = hash.to_be_bytes();
    bytes[6] = 0x40 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    RunEventId::from_bytes(bytes).unwrap()
}

pub(crate) fn execution(number: u8) -> ExecutionRow {
    ExecutionRow {
        execution_id: ExecutionId::from_bytes([number; 32]),
        tenant_id: valid("tenant"),
        project_id: valid("project"),
        environment_id: valid("production"),
        shard: ShardId(0),
        function: SharedText::from("function"),
        component_digest: ComponentDigest::from_bytes([0; 32]),
        start_key: None,
        state: ExecutionState::Running,
        wake_at: Timestamp::EPOCH,
        created_at: Timestamp::EPOCH,
        body: Arc::from([]),
    }
}

pub(crate) fn append(number: u8, expected: u64) -> JournalAppend {
    let records = Arc::from(format!("event {expected}").as_bytes());
    JournalAppend {
        execution: ExecutionId::from_bytes([number; 32]),
        expected_length: expected,
        count: 1,
        records,
    }
}

pub(crate) fn job(id: &str, attempts: u32) -> JobRow {
    JobRow {
        id: SharedText::from(id),
        run_id: SharedText::from("run"),
        tenant_id: SharedText::from("tenant"),
        workspace_id: SharedText::from("workspace"),
        job_type: JobType::EmailSendBatch,
        status: JobStatus::Queued,
        attempts,
        run_after: Timestamp::EPOCH,
        locked_until: None,
        lock_token: None,
        lock_epoch: 0,
        number: 0,
        items: 1,
        sent: 0,
        failed: 0,
        skipped: 0,
        in_doubt: 0,
        in_doubt_since: Timestamp::MAX,
        error: None,
        created_at: Timestamp::EPOCH,
    }
}

pub(crate) fn message(dedup_key: Option<&str>) -> InboxMessageRow {
    InboxMessageRow {
        message_id: SerialId(None),
        execution_id: ExecutionId::from_bytes([1; 32]),
        shard: ShardId(0),
        dedup_key: dedup_key.map(SharedText::from),
        kind: InboxMessageKind::Signal,
        body: Arc::from([]),
        sent_at: Timestamp::EPOCH,
    }
}

/// Inserts a record with another value in one column, which the types of the record cannot express.
pub(crate) fn insert_with<R: TableRecord>(record: &R, column: &str, value: &str) -> RowChange {
    let position = R::TABLE.column_position(column).unwrap();
    let TableRow(mut values) = record.to_row();
    values[position] = ColumnValue::Text(value.into());
    RowChange::Insert {
        table: R::TABLE,
        row: TableRow(values),
    }
}

/// A campaign run with this ordinal, which is part of its id.
pub(crate) fn campaign_run(ordinal: u32) -> CampaignRunRow {
    CampaignRunRow {
        id: format!("run-{ordinal:04}").into(),
        campaign_id: SharedText::from("campaign"),
        tenant_id: SharedText::from("tenant"),
        workspace_id: SharedText::from("workspace"),
        ordinal,
        channel: DeliveryChannel::Email,
        status: CampaignRunStatus::Queued,
        control: CampaignRunControl::Active,
        document: "{}".into(),
        audience_id: "all-customers".into(),
        audience_digest: "".into(),
        items: 1,
        jobs: 1,
        scheduled_for: Timestamp::EPOCH,
        asset: "spring".into(),
        retry_of: None,
        wake_at: Timestamp::EPOCH,
        created_at: Timestamp::EPOCH,
        ended_at: None,
    }
}
