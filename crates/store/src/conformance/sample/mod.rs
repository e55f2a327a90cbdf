//! Things to store. Small numbers and short names make different ones, and the same number always makes the same thing.

mod rows;

use std::fmt::Debug;
use std::str::FromStr;
use std::sync::Arc;

use onward_journal::{ComponentDigest, ExecutionId, Payload, Timestamp};
use onward_runs::{Attempt, EmittedAt, EventId, Extra, IdempotencyKey, RunEventWrite, RunSeq};

pub(super) use rows::{distinct, drawn_row, row};

use crate::tables::{Alert, Execution, Job, Message, OutboxItem, ShardLease, Snapshot, Task, Timer};
use crate::{Epoch, JournalAppend, Key, Move, Reader, Record, Serial, Shard};

/// The executions of the suite have numbers up to this one.
pub(super) const EXECUTION_MAX: u8 = 24;

/// `ms` milliseconds after the instant at which every check begins; that one is odd to the microsecond, so that a store
/// that rounds is noticed.
pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp::from_micros(1_767_225_600_123_457).unwrap_or(Timestamp::EPOCH).plus_ms(ms)
}

/// An id.
pub(super) fn id<T: FromStr<Err: Debug>>(text: &str) -> T {
    text.parse().expect("the suite's names are well formed")
}

/// A place in a run.
pub(super) fn seq(number: u64) -> RunSeq {
    RunSeq::new(number).unwrap_or(RunSeq::MAX)
}

/// An event about step `number` of a run, with the right key and an id of its own.
pub(super) fn event(run: &str, number: u32) -> RunEventWrite {
    keyed(RunEventWrite {
        event_id: event_id(run, number),
        event_type: id("StepStarted"),
        emitted_at: EmittedAt::from(at(0)),
        run_id: id(run),
        tenant_id: id("acme"),
        project_id: id("shop"),
        environment_id: id("prod"),
        plan_id: id("nightly"),
        plan_version: id("1.0.0"),
        engine_attempt_id: Attempt::FIRST,
        logical_attempt_id: Attempt::FIRST,
        idempotency_key: IdempotencyKey::from_bytes([0; 32]),
        step_id: Some(id(&format!("step-{number}"))),
        payload: None,
        extra: Extra::NONE,
    })
}

/// Events about steps `from` to `to` of a run.
pub(super) fn events(run: &str, from: u32, to: u32) -> Vec<RunEventWrite> {
    (from..=to).map(|number| event(run, number)).collect()
}

/// The event with this payload, and the key that it then has.
pub(super) fn carrying(event: RunEventWrite, payload: &str) -> RunEventWrite {
    keyed(RunEventWrite { payload: Some(json(payload)), ..event })
}

/// The event with the key that its parts make.
pub(super) fn keyed(event: RunEventWrite) -> RunEventWrite {
    let idempotency_key = IdempotencyKey::of(&event).expect("the suite's signals are named in full");
    RunEventWrite { idempotency_key, ..event }
}

/// JSON.
pub(super) fn json(text: &str) -> Payload {
    Payload::parse(text).expect("the suite's JSON is well formed")
}

/// An event id.
pub(super) fn event_id(run: &str, number: u32) -> EventId {
    let spread = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = run.bytes().fold(0xcbf2_9ce4_8422_2325, spread);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&hash.to_be_bytes());
    bytes[12..].copy_from_slice(&number.to_be_bytes());
    (bytes[6], bytes[8]) = (0x40, 0x80);
    EventId::from_bytes(bytes).expect("the bits of a random UUID are set")
}

/// An execution.
pub(super) fn execution(number: u8) -> ExecutionId {
    ExecutionId::from_bytes([number; 32])
}

/// `count` events for the journal of an execution that has `expected` already.
pub(super) fn append(number: u8, expected: u64, count: u32) -> JournalAppend {
    let records: Arc<[u8]> = Arc::from(format!("{expected}+{count} of {number}").as_bytes());
    JournalAppend { execution: execution(number), expected, count, records }
}

/// A reader's step in a run.
pub(super) fn step(run: &str, reader: Reader, from: u64, to: u64) -> Move {
    Move { run: id(run), reader, from: seq(from), to: seq(to) }
}

/// The key of a record.
pub(super) fn key_of<R: Record>(record: &R) -> Key {
    R::TABLE.key_of(&record.to_row())
}

/// A lease as a row.
pub(super) fn lease(shard: u32, epoch: u64) -> ShardLease {
    ShardLease {
        shard: Shard(shard),
        node: "node".into(),
        node_id: "node".into(),
        epoch: Epoch(epoch),
        lease_until: at(1_000),
    }
}

/// An execution's row.
pub(super) fn started(number: u8, start_key: Option<&str>) -> Execution {
    Execution {
        execution_id: execution(number),
        tenant_id: id("acme"),
        project_id: id("shop"),
        environment_id: id("prod"),
        shard: Shard(1),
        function: "charge".into(),
        component_digest: ComponentDigest::from_bytes([7; 32]),
        start_key: start_key.map(Into::into),
        state: "Running".into(),
        wake_at: at(0),
        created_at: at(0),
        body: Arc::from([0, number].as_slice()),
    }
}

/// A timer.
pub(super) fn timer(number: u8, promise: u32) -> Timer {
    Timer { execution_id: execution(number), promise, shard: Shard(1), fire_at: at(5) }
}

/// A task that waits for a worker.
pub(super) fn task(number: u8, promise: u32) -> Task {
    Task {
        execution_id: execution(number),
        promise,
        attempt: 1,
        shard: Shard(1),
        tenant_id: id("acme"),
        project_id: id("shop"),
        environment_id: id("prod"),
        function: "charge".into(),
        state: "queued".into(),
        queued_at: at(1),
        leased_until: Timestamp::MAX,
        lease_ms: 0,
        worker: None,
        claim: None,
        input: "[1]".into(),
        delivery: "at_least_once".into(),
        timeout_ms: None,
        is_last: false,
    }
}

/// A message.
pub(super) fn message(number: u8, dedup_key: Option<&str>) -> Message {
    Message {
        message_id: Serial(None),
        execution_id: execution(number),
        shard: Shard(1),
        dedup_key: dedup_key.map(Into::into),
        kind: "signal".into(),
        body: Arc::from(b"go".as_slice()),
        sent_at: at(0),
    }
}

/// A job that waits.
pub(super) fn job(name: &str) -> Job {
    Job {
        id: name.into(),
        run_id: "campaign-run".into(),
        tenant_id: "acme".into(),
        workspace_id: "main".into(),
        job_type: "email_send_batch".into(),
        status: "queued".into(),
        attempts: 0,
        run_after: at(0),
        locked_until: None,
        lock_token: None,
        lock_epoch: 0,
        number: 0,
        items: 1,
        served: 0,
        failed: 0,
        skipped: 0,
        in_doubt: 0,
        doubt_since: Timestamp::MAX,
        error: None,
        created_at: at(0),
    }
}

/// A reserved outbox item.
pub(super) fn item(name: &str, idempotency_key: &str) -> OutboxItem {
    OutboxItem {
        id: name.into(),
        run_id: "campaign-run".into(),
        job_id: "job".into(),
        tenant_id: "acme".into(),
        workspace_id: "main".into(),
        channel: "email".into(),
        provider: "smtp".into(),
        recipient_id: "ada".into(),
        recipient_address: "ada@example.org".into(),
        idempotency_key: idempotency_key.into(),
        status: "queued".into(),
        skipped: false,
        calls: 1,
        held_since: None,
        doubt_since: None,
        provider_message_id: None,
        reason: None,
        error: None,
        payload: None,
        created_at: at(0),
        settled_at: None,
    }
}

/// An alert.
pub(super) fn alert(occasion: &str) -> Alert {
    Alert {
        alert_id: Serial(None),
        code: "PROJECTOR_GAP_DETECTED".into(),
        severity: "P2".into(),
        subject: "r".into(),
        occasion: occasion.into(),
        message: "look".into(),
        raised_at: at(0),
    }
}

/// A snapshot's row.
pub(super) fn snapshot(run: &str, last: u64, text: &str) -> Snapshot {
    Snapshot {
        run_id: id(run),
        last_event_seq: seq(last),
        condition: "CURRENT".into(),
        is_whole: true,
        holes: None,
        snapshot: text.into(),
        projected_at: at(0),
    }
}
