//! Rows with an unknown status or control are corrupt: nothing is sent because of them, they do not
//! delay other work, and the doctor reports them.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use onward_campaign_core::{DispatchPolicy, JobStatus, SendOutcome};
use onward_campaign_dispatch::{
    CampaignDeployment, CampaignError, CampaignFinding, CampaignFindingKind, Dispatcher, Options,
    UnrestrictedGate,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnValue, Commit, InvalidColumnValue, RowKey, StoreErrorKind, TableRecord, TableRow,
    TableSchema,
};
use tokio::sync::watch;

use crate::fairness::{SlowProvider, delivery};
use crate::world::{POLICY, RecordingProvider, World, accepted, deployment};

/// A row of the table of `R` that is written without being a value of `R`.
struct RawRow<R>(TableRow, PhantomData<R>);

impl<R: TableRecord> TableRecord for RawRow<R> {
    const TABLE: &'static TableSchema = R::TABLE;

    fn to_row(&self) -> TableRow {
        self.0.clone()
    }

    fn from_row(row: &TableRow) -> Result<Self, InvalidColumnValue> {
        Ok(Self(row.clone(), PhantomData))
    }
}

/// Writes an unknown value into a column of a row.
async fn corrupt_row<R: TableRecord>(world: &World, id: &str, column: &str) {
    let key = RowKey(vec![ColumnValue::Text(id.into())]);
    let stored = world.store.read_row(R::TABLE, key).await.unwrap().unwrap();
    let mut row = stored.row;
    row.0[R::TABLE.column_position(column).unwrap()] = ColumnValue::Text("unknown".into());
    let row = RawRow::<R>(row, PhantomData);
    world
        .store
        .commit(Commit::new().update(&row, stored.version))
        .await
        .unwrap();
}

/// Runs a dispatcher for a minute.
async fn dispatch(world: &World) {
    let (stop, stopped) = watch::channel(false);
    let dispatching = tokio::spawn(world.dispatcher().run(stopped));
    tokio::time::sleep(Duration::from_secs(60)).await;
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
}

fn assert_one_corrupt_row(findings: &[CampaignFinding], run: &str, column: &str) {
    let corrupt: Vec<&CampaignFinding> = findings
        .iter()
        .filter(|finding| finding.message.contains("cannot be read"))
        .collect();
    assert_eq!(corrupt.len(), 1, "{findings:?}");
    assert_eq!(
        (&*corrupt[0].run_id, corrupt[0].kind),
        (run, CampaignFindingKind::Inconsistent)
    );
    assert!(corrupt[0].message.contains(column), "{findings:?}");
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_run_is_not_sent_and_does_not_delay_other_runs() {
    for column in ["status", "control", "channel"] {
        let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
        let corrupt = world.deploy(&["a"]).await.unwrap().run_id;
        let other = CampaignDeployment {
            campaign_id: "autumn".into(),
            ..deployment(None)
        };
        let other = world.deploy_as(other, &["b"]).await.unwrap().run_id;
        corrupt_row::<CampaignRunRow>(&world, &corrupt, column).await;
        dispatch(&world).await;
        assert_eq!(
            world.provider.calls().into_keys().collect::<Vec<_>>(),
            ["b"],
            "{column}"
        );
        assert!(world.has_ended(&other).await);
        assert_one_corrupt_row(&world.findings().await, &corrupt, column);
    }
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_job_is_not_sent_and_does_not_delay_the_other_jobs_of_its_run() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let run = world
        .deploy(&["a", "b", "c", "d", "e"])
        .await
        .unwrap()
        .run_id;
    let first = world.jobs().await.remove(0).id;
    corrupt_row::<JobRow>(&world, &first, "status").await;
    dispatch(&world).await;
    assert_eq!(
        world.provider.calls().into_keys().collect::<Vec<_>>(),
        ["e"]
    );
    assert!(!world.has_ended(&run).await);
    assert_one_corrupt_row(&world.findings().await, &run, "status");
}

#[tokio::test(start_paused = true)]
async fn a_job_with_a_corrupt_item_is_not_sent() {
    let script = |_: &str, _| SendOutcome::Deferred("busy".into());
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.jobs().await[0].status == JobStatus::Failed)
        .await;
    let calls = world.provider.calls();
    let item = world.items().await.remove(0).id;
    corrupt_row::<OutboxItemRow>(&world, &item, "status").await;
    dispatch(&world).await;
    assert_eq!(world.provider.calls(), calls);
    assert!(
        world
            .events(&run)
            .await
            .contains(&"run.unreachable".to_owned())
    );
    assert_one_corrupt_row(&world.findings().await, &run, "status");
}

#[tokio::test(start_paused = true)]
async fn a_control_that_becomes_corrupt_stops_new_sends() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let policy = DispatchPolicy {
        window: 1,
        ..POLICY
    };
    let provider = Arc::new(SlowProvider::default());
    let delivery = delivery(Arc::clone(&provider) as _, UnrestrictedGate, policy);
    let run = world.deploy(&["a", "b", "c", "d"]).await.unwrap().run_id;
    let (stop, stopped) = watch::channel(false);
    let dispatcher = Dispatcher::new(
        Arc::clone(&world.store),
        Arc::new(delivery),
        Options::default(),
    );
    let dispatching = tokio::spawn(dispatcher.run(stopped));
    tokio::time::sleep(Duration::from_secs(5)).await;
    corrupt_row::<CampaignRunRow>(&world, &run, "control").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(*provider.called.lock().unwrap(), ["a"]);
    let error = world.campaigns.read_run(&run).await.unwrap_err();
    let CampaignError::Store(error) = error else {
        panic!("{error}")
    };
    assert_eq!(error.kind(), StoreErrorKind::Corrupt);
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
}
