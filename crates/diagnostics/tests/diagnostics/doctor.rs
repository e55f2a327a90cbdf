//! The doctor finds every kind of damage, and nothing in a sound store, even while a node works.

use std::time::Duration;

use onward_api::finding::{FindingClass, FindingCode};
use onward_base::Timestamp;
use onward_engine::shard::signal_message;
use onward_journal::{
    AwaitKind, ComponentDigest, DeliveryGuarantee, Event, ExecutionError, ExecutionId,
    ExecutionState, InvokeKind,
};
use onward_store::tables::{
    AlertCode, AlertRow, AlertSeverity, ComponentRow, InboxMessageKind, InboxMessageRow,
};
use onward_store::{
    ColumnCodec as _, Commit, JournalAppend, RecordReader as _, RowKey, SerialId, ShardEpoch,
    ShardId, TableScan, shard_lease,
};

use crate::script_runtime::json;
use crate::workflow_fixture::WorkflowFixture;

#[tokio::test(start_paused = true)]
async fn a_store_with_every_kind_of_wait_has_no_findings() {
    let fixture = WorkflowFixture::new().await;
    assert_eq!(fixture.codes().await, []);
    fixture.start("approve", "1").await;
    assert_eq!(
        fixture.codes().await,
        [],
        "no node has run it yet, and it wakes at once"
    );
    for function in [
        "echo", "approve", "hurry", "sleep", "work", "try", "chain", "family", "again", "fail",
    ] {
        fixture.waiting(function, "2").await;
        assert_eq!(fixture.findings().await, [], "{function}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_in_use_has_no_findings_at_any_time() {
    let fixture = WorkflowFixture::new().await;
    let _node = fixture.node();
    for round in 0..40 {
        for function in ["chain", "family", "again", "try"] {
            let id = fixture.start(function, &(round % 7).to_string()).await;
            if round % 3 == 0 && function == "family" {
                tokio::time::sleep(Duration::from_millis(220)).await;
                for child in fixture.children(id).await {
                    let sent = fixture
                        .client
                        .send_signal(child, "approval".parse().unwrap(), json("1"), None)
                        .await;
                    assert!(sent.is_ok());
                }
            }
        }
        assert_eq!(fixture.findings().await, [], "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn wake_times_that_differ_from_the_journal_are_found() {
    let fixture = WorkflowFixture::new().await;
    let (sleeper, waiter) = (
        fixture.waiting("sleep", "1").await,
        fixture.waiting("approve", "1").await,
    );
    let (busy, over) = (
        fixture.waiting("work", "1").await,
        fixture.waiting("echo", "1").await,
    );
    for (id, wake_at, code) in [
        (sleeper, Timestamp::MAX, FindingCode::WakeMissing),
        (busy, Timestamp::MAX, FindingCode::WakeMissing),
        (waiter, Timestamp::MIN, FindingCode::WakeEarly),
        (sleeper, Timestamp::EPOCH, FindingCode::WakeEarly),
        (over, Timestamp::EPOCH, FindingCode::WakeAfterEnd),
    ] {
        let (right, _) = fixture.row(id).await;
        fixture.tamper(id, |row| row.wake_at = wake_at).await;
        let found = fixture.findings().await;
        assert_eq!(
            (
                found.len(),
                found[0].code,
                found[0].execution.map(|it| it.0)
            ),
            (1, code, Some(id))
        );
        fixture.tamper(id, |row| row.wake_at = right.wake_at).await;
    }
    assert_eq!(fixture.codes().await, []);
}

#[tokio::test(start_paused = true)]
async fn rows_that_differ_from_their_journal_are_found() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("approve", "1").await;
    fixture
        .tamper(id, |row| row.state = ExecutionState::Running)
        .await;
    assert_eq!(fixture.codes().await, [FindingCode::StateDiffers]);
    fixture
        .tamper(id, |row| row.state = ExecutionState::Blocked)
        .await;
    fixture
        .tamper(id, |row| row.shard = ShardId((row.shard.0 + 1) % 8))
        .await;
    assert_eq!(fixture.codes().await, [FindingCode::ShardWrong]);
    fixture
        .tamper(id, |row| row.shard = ShardId((row.shard.0 + 7) % 8))
        .await;
    let right = fixture.row(id).await.0.component_digest;
    fixture
        .tamper(id, |row| {
            row.component_digest = ComponentDigest::from_component(b"other")
        })
        .await;
    assert_eq!(fixture.codes().await, [FindingCode::ComponentDiffers]);
    fixture.tamper(id, |row| row.component_digest = right).await;
    let (component, version): (ComponentRow, u64) = fixture
        .store
        .read_record(RowKey(vec![right.to_value()]))
        .await
        .unwrap()
        .unwrap();
    fixture
        .store
        .commit(Commit::new().delete(&component, version))
        .await
        .unwrap();
    assert_eq!(fixture.codes().await, [FindingCode::ComponentMissing]);
}

#[tokio::test(start_paused = true)]
async fn invalid_journals_are_found() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("approve", "1").await;
    fixture.append(id, &[Event::ExecutionResumed]).await;
    assert_eq!(fixture.codes().await, [FindingCode::JournalInvalid]);
    let other = fixture.waiting("sleep", "1").await;
    let expected = fixture.client.read_journal(other).await.unwrap().len() as u64;
    let damaged = JournalAppend {
        execution: other,
        expected_length: expected,
        count: 1,
        records: (*b"no record").into(),
    };
    fixture
        .store
        .commit(Commit::new().append_journal(damaged))
        .await
        .unwrap();
    let mut codes = fixture.codes().await;
    codes.sort();
    assert_eq!(
        codes,
        [FindingCode::JournalInvalid, FindingCode::JournalUnreadable]
    );
}

#[tokio::test(start_paused = true)]
async fn waits_that_nothing_ends_are_found() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("approve", "1").await;
    let delivered = Event::SignalDelivered {
        signal_name: "approval".parse().unwrap(),
        payload: json("1"),
        delivery_id: 1,
    };
    fixture.append(id, &[delivered]).await;
    assert_eq!(fixture.codes().await, [FindingCode::SignalNotConsumed]);

    let fixture = WorkflowFixture::new().await;
    let id = fixture.start("work", "1").await;
    let promise_id = id.child_promise(0);
    let scheduled = Event::InvokeScheduled {
        promise_id: promise_id.clone(),
        kind: InvokeKind::Function,
        function_name: "slow".parse().unwrap(),
        input: json("1"),
        retry_policy: None,
        delivery: DeliveryGuarantee::AtLeastOnce,
    };
    let awaiting = Event::ExecutionAwaiting {
        waiting_on: vec![promise_id],
        kind: AwaitKind::Single,
    };
    fixture.append(id, &[scheduled, awaiting]).await;
    fixture
        .tamper(id, |row| {
            (row.state, row.wake_at) = (ExecutionState::Blocked, Timestamp::MAX)
        })
        .await;
    assert_eq!(
        fixture.codes().await,
        [FindingCode::StateDiffers, FindingCode::WakeMissing]
    );
    fixture
        .tamper(id, |row| {
            (row.state, row.wake_at) = (ExecutionState::Running, Timestamp::MIN)
        })
        .await;
    assert_eq!(
        fixture.codes().await,
        [],
        "the next owner of its shard starts it at once"
    );
}

/// Cancels a child without sending the result to its parent.
async fn end_child(fixture: &WorkflowFixture, child: ExecutionId) {
    let reason = onward_base::SharedText::from("lost");
    fixture
        .append(
            child,
            &[Event::CancelRequested {
                reason: reason.clone(),
            }],
        )
        .await;
    fixture
        .append(child, &[Event::ExecutionCancelled { reason }])
        .await;
    fixture
        .tamper(child, |row| {
            (row.state, row.wake_at) = (ExecutionState::Cancelled, Timestamp::MAX)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn lost_children_are_found() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("family", "1").await;
    let children = fixture.children(id).await;
    end_child(&fixture, children[0]).await;
    assert_eq!(fixture.codes().await, [FindingCode::ChildResultLost]);
    // A result in the inbox is not lost.
    let promise = id.child_promise(1);
    let result = Err(ExecutionError::from_kind_name("cancelled", "lost"));
    let event = Event::InvokeCompleted {
        promise_id: promise,
        result,
        attempt: 1,
    };
    send(&fixture, id, InboxMessageKind::Result, event).await;
    assert_eq!(fixture.codes().await, []);
    let (row, version) = fixture.row(children[1]).await;
    fixture
        .store
        .commit(Commit::new().delete(&row, version))
        .await
        .unwrap();
    assert_eq!(fixture.codes().await, [FindingCode::ChildMissing]);
}

#[tokio::test(start_paused = true)]
async fn missing_successors_are_found() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("again", "1").await;
    let events = fixture.client.read_journal(id).await.unwrap();
    let Event::ExecutionCompleted {
        continued_as: Some(next),
        ..
    } = events.last().unwrap().event
    else {
        panic!()
    };
    assert_eq!(fixture.codes().await, []);
    let (row, version) = fixture.row(next).await;
    fixture
        .store
        .commit(Commit::new().delete(&row, version))
        .await
        .unwrap();
    assert_eq!(fixture.codes().await, [FindingCode::SuccessorMissing]);
}

/// Stores a message as the engine would send it.
async fn send(fixture: &WorkflowFixture, to: ExecutionId, kind: InboxMessageKind, event: Event) {
    let (row, _) = fixture.row(to).await;
    let now = fixture.store.now().await.unwrap();
    let mut message =
        signal_message(to, row.shard, "x".parse().unwrap(), json("1"), None, now).unwrap();
    let recorded = onward_journal::JournalEvent {
        sequence: 0,
        timestamp: now,
        event,
    };
    message.body = onward_journal::codec::encode_record(to, &[recorded])
        .unwrap()
        .into();
    message.kind = kind;
    fixture
        .store
        .commit(Commit::new().insert(&message))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn undeliverable_messages_are_found() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("approve", "1").await;
    let now = fixture.store.now().await.unwrap();
    let message = |to: ExecutionId, shard| {
        signal_message(to, shard, "go".parse().unwrap(), json("1"), None, now).unwrap()
    };
    let shard = fixture.row(id).await.0.shard;
    let missing = ExecutionId::from_bytes([7; 32]);
    let mut damaged = message(id, shard);
    damaged.body = (*b"no record").into();
    for (message, code) in [
        (message(missing, ShardId(7)), FindingCode::MessageOrphan),
        (damaged, FindingCode::MessageUnreadable),
        (
            message(id, ShardId((shard.0 + 1) % 8)),
            FindingCode::MessageShard,
        ),
    ] {
        fixture
            .store
            .commit(Commit::new().insert(&message))
            .await
            .unwrap();
        assert_eq!(fixture.codes().await, [code]);
        let rows: Vec<(InboxMessageRow, u64)> = fixture
            .store
            .list_records(TableScan::all_rows::<InboxMessageRow>())
            .await
            .unwrap();
        for (row, version) in rows {
            fixture
                .store
                .commit(Commit::new().delete(&row, version))
                .await
                .unwrap();
        }
    }
    send(
        &fixture,
        id,
        InboxMessageKind::Result,
        Event::ExecutionResumed,
    )
    .await;
    assert_eq!(
        fixture.codes().await,
        [FindingCode::MessageUnreadable],
        "the event is not allowed in a message"
    );
}

#[tokio::test(start_paused = true)]
async fn overdue_work_is_an_error_only_if_its_shard_alone_has_no_owner() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.start("approve", "1").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let found = fixture.findings().await;
    assert_eq!(
        (found.len(), found[0].code, found[0].class),
        (1, FindingCode::NoLiveNode, FindingClass::Warning)
    );
    assert!(
        found[0]
            .message
            .contains("1 execution is due and 0 messages wait"),
        "{}",
        found[0].message
    );
    // A process runs, and does not take that shard.
    let ShardId(shard) = fixture.row(id).await.0.shard;
    let other_lease =
        shard_lease::claim_shard(&*fixture.store, ShardId((shard + 1) % 8), "b", 3_600_000)
            .await
            .unwrap()
            .unwrap();
    assert_eq!(other_lease.epoch, ShardEpoch(1));
    let found = fixture.findings().await;
    assert_eq!(
        (found.len(), found[0].code, found[0].class),
        (1, FindingCode::ShardUnowned, FindingClass::Error)
    );
    // A process takes it, and does nothing.
    shard_lease::claim_shard(&*fixture.store, ShardId(shard), "b", 3_600_000)
        .await
        .unwrap()
        .unwrap();
    let found = fixture.findings().await;
    assert_eq!(
        (found.len(), found[0].code, found[0].class),
        (1, FindingCode::Overdue, FindingClass::Warning)
    );
}

#[tokio::test(start_paused = true)]
async fn an_alert_is_a_finding_until_its_execution_makes_progress() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("approve", "1").await;
    let raised_at = fixture.store.now().await.unwrap();
    let alert = |subject: String| AlertRow {
        alert_id: SerialId::default(),
        code: AlertCode::ExecutionStuck,
        severity: AlertSeverity::P1,
        subject: subject.into(),
        occasion: "1".into(),
        message: "execution is stuck".into(),
        raised_at,
    };
    fixture
        .store
        .commit(
            Commit::new()
                .insert(&alert(id.to_string()))
                .insert(&alert("a run".into())),
        )
        .await
        .unwrap();
    let found = fixture.findings().await;
    assert_eq!(
        (found.len(), found[0].code, found[0].class),
        (1, FindingCode::Alert, FindingClass::Attention)
    );
    assert!(
        found[0]
            .to_string()
            .contains("ALERT: EXECUTION_STUCK since"),
        "{}",
        found[0]
    );
    fixture
        .client
        .send_signal(id, "approval".parse().unwrap(), json("1"), None)
        .await
        .unwrap();
    fixture.waiting("echo", "1").await;
    assert_eq!(fixture.codes().await, []);
}
