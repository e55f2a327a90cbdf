//! Every kind of damage is found, and nothing is found where there is none, also while a node
//! works.

use std::time::Duration;

use onward_api::finding::{FindingClass, FindingCode};
use onward_base::Timestamp;
use onward_engine::shard::signal_message;
use onward_journal::{
    AwaitKind, ComponentDigest, DeliveryGuarantee, Event, ExecutionError, ExecutionId, InvokeKind,
};
use onward_store::tables::{AlertRow, ComponentRow, InboxMessageRow};
use onward_store::{
    ColumnCodec as _, Commit, JournalAppend, RecordReader as _, RowKey, SerialId, ShardEpoch,
    ShardId, TableScan, shard_lease,
};

use crate::code::json;
use crate::place::Place;

#[tokio::test(start_paused = true)]
async fn a_store_with_every_kind_of_wait_is_clean() {
    let place = Place::new().await;
    assert_eq!(place.codes().await, []);
    place.start("approve", "1").await;
    assert_eq!(
        place.codes().await,
        [],
        "nobody has run it yet, and it wakes at once"
    );
    for function in [
        "echo", "approve", "hurry", "sleep", "work", "try", "chain", "family", "again", "fail",
    ] {
        place.waiting(function, "2").await;
        assert_eq!(place.findings().await, [], "{function}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_worked_on_is_clean_at_every_moment() {
    let place = Place::new().await;
    let _node = place.node();
    for round in 0..40 {
        for function in ["chain", "family", "again", "try"] {
            let id = place.start(function, &(round % 7).to_string()).await;
            if round % 3 == 0 && function == "family" {
                tokio::time::sleep(Duration::from_millis(220)).await;
                for child in place.children(id).await {
                    let sent = place
                        .client
                        .send_signal(child, "approval".parse().unwrap(), json("1"), None)
                        .await;
                    assert!(sent.is_ok());
                }
            }
        }
        assert_eq!(place.findings().await, [], "round {round}");
    }
}

#[tokio::test(start_paused = true)]
async fn wakes_that_do_not_match_the_journal_are_found() {
    let place = Place::new().await;
    let (sleeper, waiter) = (
        place.waiting("sleep", "1").await,
        place.waiting("approve", "1").await,
    );
    let (busy, over) = (
        place.waiting("work", "1").await,
        place.waiting("echo", "1").await,
    );
    for (id, wake_at, code) in [
        (sleeper, Timestamp::MAX, FindingCode::WakeMissing),
        (busy, Timestamp::MAX, FindingCode::WakeMissing),
        (waiter, Timestamp::MIN, FindingCode::WakeEarly),
        (sleeper, Timestamp::EPOCH, FindingCode::WakeEarly),
        (over, Timestamp::EPOCH, FindingCode::WakeAfterEnd),
    ] {
        let (right, _) = place.row(id).await;
        place.tamper(id, |row| row.wake_at = wake_at).await;
        let found = place.findings().await;
        assert_eq!(
            (
                found.len(),
                found[0].code,
                found[0].execution.map(|it| it.0)
            ),
            (1, code, Some(id))
        );
        place.tamper(id, |row| row.wake_at = right.wake_at).await;
    }
    assert_eq!(place.codes().await, []);
}

#[tokio::test(start_paused = true)]
async fn rows_that_say_something_else_than_their_journal_are_found() {
    let place = Place::new().await;
    let id = place.waiting("approve", "1").await;
    place.tamper(id, |row| row.state = "Running".into()).await;
    assert_eq!(place.codes().await, [FindingCode::StateDiffers]);
    place.tamper(id, |row| row.state = "Blocked".into()).await;
    place
        .tamper(id, |row| row.shard = ShardId((row.shard.0 + 1) % 8))
        .await;
    assert_eq!(place.codes().await, [FindingCode::ShardWrong]);
    place
        .tamper(id, |row| row.shard = ShardId((row.shard.0 + 7) % 8))
        .await;
    let right = place.row(id).await.0.component_digest;
    place
        .tamper(id, |row| {
            row.component_digest = ComponentDigest::from_component(b"other")
        })
        .await;
    assert_eq!(place.codes().await, [FindingCode::ComponentDiffers]);
    place.tamper(id, |row| row.component_digest = right).await;
    let (component, version): (ComponentRow, u64) = place
        .store
        .read_record(RowKey(vec![right.to_value()]))
        .await
        .unwrap()
        .unwrap();
    place
        .store
        .commit(Commit::new().delete(&component, version))
        .await
        .unwrap();
    assert_eq!(place.codes().await, [FindingCode::ComponentMissing]);
}

#[tokio::test(start_paused = true)]
async fn journals_that_cannot_be_are_found() {
    let place = Place::new().await;
    let id = place.waiting("approve", "1").await;
    place.append(id, &[Event::ExecutionResumed]).await;
    assert_eq!(place.codes().await, [FindingCode::JournalInvalid]);
    let other = place.waiting("sleep", "1").await;
    let expected = place.client.read_journal(other).await.unwrap().len() as u64;
    let damaged = JournalAppend {
        execution: other,
        expected_length: expected,
        count: 1,
        records: (*b"no record").into(),
    };
    place
        .store
        .commit(Commit::new().append_journal(damaged))
        .await
        .unwrap();
    let mut codes = place.codes().await;
    codes.sort();
    assert_eq!(
        codes,
        [FindingCode::JournalInvalid, FindingCode::JournalUnreadable]
    );
}

#[tokio::test(start_paused = true)]
async fn waits_for_what_cannot_come_are_found() {
    let place = Place::new().await;
    let id = place.waiting("approve", "1").await;
    let delivered = Event::SignalDelivered {
        signal_name: "approval".parse().unwrap(),
        payload: json("1"),
        delivery_id: 1,
    };
    place.append(id, &[delivered]).await;
    assert_eq!(place.codes().await, [FindingCode::SignalNotTaken]);

    let place = Place::new().await;
    let id = place.start("work", "1").await;
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
    place.append(id, &[scheduled, awaiting]).await;
    place
        .tamper(id, |row| {
            (row.state, row.wake_at) = ("Blocked".into(), Timestamp::MAX)
        })
        .await;
    assert_eq!(
        place.codes().await,
        [FindingCode::StateDiffers, FindingCode::WakeMissing]
    );
    place
        .tamper(id, |row| {
            (row.state, row.wake_at) = ("Running".into(), Timestamp::MIN)
        })
        .await;
    assert_eq!(
        place.codes().await,
        [],
        "the next owner of its shard begins it at once"
    );
}

/// As if the child had been cancelled, and nobody told its parent.
async fn end_child(place: &Place, child: ExecutionId) {
    let reason = onward_base::SharedText::from("lost");
    place
        .append(
            child,
            &[Event::CancelRequested {
                reason: reason.clone(),
            }],
        )
        .await;
    place
        .append(child, &[Event::ExecutionCancelled { reason }])
        .await;
    place
        .tamper(child, |row| {
            (row.state, row.wake_at) = ("Cancelled".into(), Timestamp::MAX)
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn children_that_are_lost_are_found() {
    let place = Place::new().await;
    let id = place.waiting("family", "1").await;
    let children = place.children(id).await;
    end_child(&place, children[0]).await;
    assert_eq!(place.codes().await, [FindingCode::ChildResultLost]);
    // A result that is on its way is not lost.
    let promise = id.child_promise(1);
    let result = Err(ExecutionError::from_kind_name("cancelled", "lost"));
    let event = Event::InvokeCompleted {
        promise_id: promise,
        result,
        attempt: 1,
    };
    send(&place, id, "result", event).await;
    assert_eq!(place.codes().await, []);
    let (row, version) = place.row(children[1]).await;
    place
        .store
        .commit(Commit::new().delete(&row, version))
        .await
        .unwrap();
    assert_eq!(place.codes().await, [FindingCode::ChildMissing]);
}

#[tokio::test(start_paused = true)]
async fn successors_that_are_not_there_are_found() {
    let place = Place::new().await;
    let id = place.waiting("again", "1").await;
    let events = place.client.read_journal(id).await.unwrap();
    let Event::ExecutionCompleted {
        continued_as: Some(next),
        ..
    } = events.last().unwrap().event
    else {
        panic!()
    };
    assert_eq!(place.codes().await, []);
    let (row, version) = place.row(next).await;
    place
        .store
        .commit(Commit::new().delete(&row, version))
        .await
        .unwrap();
    assert_eq!(place.codes().await, [FindingCode::SuccessorMissing]);
}

/// A message as the engine would send it.
async fn send(place: &Place, to: ExecutionId, kind: &str, event: Event) {
    let (row, _) = place.row(to).await;
    let now = place.store.now().await.unwrap();
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
    message.kind = kind.into();
    place
        .store
        .commit(Commit::new().insert(&message))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn messages_that_cannot_arrive_are_found() {
    let place = Place::new().await;
    let id = place.waiting("approve", "1").await;
    let now = place.store.now().await.unwrap();
    let message = |to: ExecutionId, shard| {
        signal_message(to, shard, "go".parse().unwrap(), json("1"), None, now).unwrap()
    };
    let shard = place.row(id).await.0.shard;
    let nobody = ExecutionId::from_bytes([7; 32]);
    let mut damaged = message(id, shard);
    damaged.body = (*b"no record").into();
    for (message, code) in [
        (message(nobody, ShardId(7)), FindingCode::MessageOrphan),
        (damaged, FindingCode::MessageUnreadable),
        (
            message(id, ShardId((shard.0 + 1) % 8)),
            FindingCode::MessageShard,
        ),
    ] {
        place
            .store
            .commit(Commit::new().insert(&message))
            .await
            .unwrap();
        assert_eq!(place.codes().await, [code]);
        let rows: Vec<(InboxMessageRow, u64)> = place
            .store
            .list_records(TableScan::all_rows::<InboxMessageRow>())
            .await
            .unwrap();
        for (row, version) in rows {
            place
                .store
                .commit(Commit::new().delete(&row, version))
                .await
                .unwrap();
        }
    }
    send(&place, id, "odd", Event::ExecutionResumed).await;
    assert_eq!(
        place.codes().await,
        [FindingCode::MessageUnreadable],
        "no message may say that"
    );
}

#[tokio::test(start_paused = true)]
async fn work_that_is_late_is_a_warning_unless_only_its_shard_has_nobody() {
    let place = Place::new().await;
    let id = place.start("approve", "1").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let found = place.findings().await;
    assert_eq!(
        (found.len(), found[0].code, found[0].class),
        (1, FindingCode::NobodyWorks, FindingClass::Warning)
    );
    assert!(
        found[0]
            .message
            .contains("1 execution is due and 0 messages wait"),
        "{}",
        found[0].message
    );
    // Somebody is there, and does not take that shard.
    let ShardId(shard) = place.row(id).await.0.shard;
    let elsewhere =
        shard_lease::claim_shard(&*place.store, ShardId((shard + 1) % 8), "b", 3_600_000)
            .await
            .unwrap()
            .unwrap();
    assert_eq!(elsewhere.epoch, ShardEpoch(1));
    let found = place.findings().await;
    assert_eq!(
        (found.len(), found[0].code, found[0].class),
        (1, FindingCode::ShardUnattended, FindingClass::Wrong)
    );
    // Somebody takes it, and does nothing.
    shard_lease::claim_shard(&*place.store, ShardId(shard), "b", 3_600_000)
        .await
        .unwrap()
        .unwrap();
    let found = place.findings().await;
    assert_eq!(
        (found.len(), found[0].code, found[0].class),
        (1, FindingCode::Late, FindingClass::Warning)
    );
}

#[tokio::test(start_paused = true)]
async fn an_alert_needs_attention_until_its_execution_goes_on() {
    let place = Place::new().await;
    let id = place.waiting("approve", "1").await;
    let raised_at = place.store.now().await.unwrap();
    let alert = |subject: String| AlertRow {
        alert_id: SerialId::default(),
        code: "EXECUTION_STUCK".into(),
        severity: "P1".into(),
        subject: subject.into(),
        occasion: "1".into(),
        message: "it cannot go on".into(),
        raised_at,
    };
    place
        .store
        .commit(
            Commit::new()
                .insert(&alert(id.to_string()))
                .insert(&alert("a run".into())),
        )
        .await
        .unwrap();
    let found = place.findings().await;
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
    place
        .client
        .send_signal(id, "approval".parse().unwrap(), json("1"), None)
        .await
        .unwrap();
    place.waiting("echo", "1").await;
    assert_eq!(place.codes().await, []);
}
