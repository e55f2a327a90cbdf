//! Repeated deployments of a campaign: recipients that an earlier run reached are sent to again
//! only on request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::future::join_all;
use onward_base::Scope;
use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::{
    CampaignDeployment, CampaignError, DeploymentResult, EntropySource, RepeatSendPolicy,
    ScopedCampaigns,
};
use onward_store::{AdmittedCommit, CommitReceipt, Error, Store, TableSchema};

use crate::faulty_store::{FaultyStore, StoreFaults};
use crate::world::{POLICY, RecordingProvider, World, accepted, deployment, recipient, scope};

fn deployment_with(key: &str, policy: RepeatSendPolicy) -> CampaignDeployment {
    CampaignDeployment {
        already_reached: policy,
        ..deployment(Some(key))
    }
}

/// A store whose operations yield, so that concurrent operations interleave. On request the outcome
/// of the first commit is unknown.
struct YieldingStore {
    loses_outcome: AtomicBool,
}

/// Whether the outcome of the first commit is unknown to the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstCommit {
    Acknowledged,
    Unacknowledged,
}

impl YieldingStore {
    fn campaigns(world: &World, first_commit: FirstCommit) -> ScopedCampaigns {
        let store = FaultyStore(
            Arc::clone(&world.store),
            Self {
                loses_outcome: AtomicBool::new(first_commit == FirstCommit::Unacknowledged),
            },
        );
        ScopedCampaigns::new(Arc::new(store), scope())
    }
}

#[async_trait]
impl StoreFaults for YieldingStore {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        tokio::task::yield_now().await;
        let applied = store.apply_commit(commit).await;
        let is_lost = self.loses_outcome.swap(false, Ordering::SeqCst);
        if is_lost {
            Err(Error::OutcomeUnknown("connection lost".to_owned()))
        } else {
            applied
        }
    }

    async fn read(&self, _table: &TableSchema) -> Result<(), Error> {
        tokio::task::yield_now().await;
        Ok(())
    }
}

fn already_reached(
    last: &str,
    reached: usize,
    of: usize,
) -> Result<DeploymentResult, CampaignError> {
    Err(CampaignError::AlreadyReached {
        campaign: "spring".to_owned(),
        reached,
        of,
        last: last.to_owned(),
    })
}

#[tokio::test(start_paused = true)]
async fn reached_recipients_are_sent_to_again_only_with_the_policy_resend() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let first = world
        .deploy_as(
            deployment_with("one", RepeatSendPolicy::Refuse),
            &["a", "b", "c", "d", "e"],
        )
        .await
        .unwrap()
        .run_id;
    let more = ["f", "e", "d", "c", "b", "a", "g"];
    assert_eq!(
        world
            .deploy_as(deployment_with("two", RepeatSendPolicy::Refuse), &more)
            .await,
        already_reached(&first, 5, 7)
    );
    world.work_until_ended(&first).await;
    assert_eq!(
        world
            .deploy_as(deployment_with("two", RepeatSendPolicy::Refuse), &more)
            .await,
        already_reached(&first, 5, 7)
    );
    let corrected = CampaignDeployment {
        document: "{\"subject\":\"corrected\"}".into(),
        ..deployment_with("three", RepeatSendPolicy::Refuse)
    };
    assert_eq!(
        world.deploy_as(corrected, &["a", "b"]).await,
        already_reached(&first, 2, 2)
    );

    let second = world
        .deploy_as(deployment_with("two", RepeatSendPolicy::Exclude), &more)
        .await
        .unwrap();
    assert_eq!(
        (second.items, second.excluded, second.already_existed),
        (2, 5, false)
    );
    let repeated = world
        .deploy_as(deployment_with("two", RepeatSendPolicy::Exclude), &more)
        .await
        .unwrap();
    assert_eq!(
        (&repeated.run_id, repeated.already_existed),
        (&second.run_id, true),
        "an idempotency key creates one run"
    );
    world.work_until_ended(&second.run_id).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 1),
        "{:?}",
        world.provider.calls()
    );
    assert_eq!(world.provider.calls().len(), 7);
    let result = world
        .deploy_as(deployment_with("four", RepeatSendPolicy::Exclude), &more)
        .await;
    assert_eq!(result, already_reached(&second.run_id, 7, 7));

    let again = world
        .deploy_as(deployment_with("five", RepeatSendPolicy::Resend), &more)
        .await
        .unwrap();
    world.work_until_ended(&again.run_id).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 2),
        "{:?}",
        world.provider.calls()
    );
}

#[tokio::test(start_paused = true)]
async fn unreached_and_new_recipients_are_deployed_without_an_error() {
    let script = |recipient: &str, count| match (recipient, count) {
        ("b", 1) => SendOutcome::Refused("mailbox full".into()),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let first = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&first).await;
    let second = world.deploy(&["b", "c"]).await.unwrap().run_id;
    world.work_until_ended(&second).await;
    let other_tenant = ScopedCampaigns::new(
        Arc::clone(&world.store),
        Scope {
            tenant: "other".parse().unwrap(),
            ..scope()
        },
    );
    other_tenant
        .put_audience_part("all", 0, &[recipient("a")])
        .await
        .unwrap();
    let audience = other_tenant.read_audience("all").await.unwrap();
    other_tenant
        .deploy_campaign(&deployment(None), &audience, &EntropySource::default())
        .await
        .unwrap();
    world
        .deploy_as(
            CampaignDeployment {
                campaign_id: "autumn".into(),
                ..deployment(None)
            },
            &["a"],
        )
        .await
        .unwrap();
    let calls = world.provider.calls();
    assert_eq!((calls["a"], calls["b"], calls["c"]), (1, 2, 1));
    let result = world
        .campaigns
        .retry_run(&first, "ada", &EntropySource::default())
        .await;
    let expected = CampaignError::AlreadyRetried(first.to_string(), second.to_string());
    assert_eq!(
        result,
        Err(expected),
        "the second run retries these recipients"
    );
}

#[tokio::test(start_paused = true)]
async fn a_redrive_excludes_recipients_of_later_runs() {
    let defer = |_: &str, count| {
        if count <= 3 {
            SendOutcome::Deferred("busy".into())
        } else {
            accepted()
        }
    };
    let world = World::new(RecordingProvider::new(defer), POLICY);
    let first = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&first).await;
    let second = world.deploy(&["a"]).await.unwrap().run_id;
    let job = world
        .jobs()
        .await
        .into_iter()
        .find(|job| job.run_id == first)
        .unwrap();
    assert_eq!(
        world
            .campaigns
            .redrive_job(&job.id, "ada")
            .await
            .unwrap()
            .failed,
        1,
        "only b is retried"
    );
    world.work_until_ended(&first).await;
    world.work_until_ended(&second).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 4),
        "{:?}",
        world.provider.calls()
    );
}

#[tokio::test]
async fn of_concurrent_deployments_with_different_keys_one_succeeds() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let campaigns = YieldingStore::campaigns(&world, FirstCommit::Acknowledged);
    campaigns
        .put_audience_part("all", 0, &["a", "b"].map(recipient))
        .await
        .unwrap();
    let audience = campaigns.read_audience("all").await.unwrap();
    let entropy = EntropySource::default();
    for (policy, successes) in [
        (RepeatSendPolicy::Refuse, 1),
        (RepeatSendPolicy::Exclude, 0),
        (RepeatSendPolicy::Resend, 6),
    ] {
        let deployments: Vec<_> = (0..6)
            .map(|number| deployment_with(&format!("{policy:?} {number}"), policy))
            .collect();
        let results = join_all(
            deployments
                .iter()
                .map(|deployment| campaigns.deploy_campaign(deployment, &audience, &entropy)),
        )
        .await;
        assert_eq!(
            results.iter().filter(|result| result.is_ok()).count(),
            successes,
            "{results:?}"
        );
    }
    let runs = campaigns
        .list_runs(Some("spring"), None, None, 10)
        .await
        .unwrap();
    let mut ordinals: Vec<u32> = runs.iter().map(|run| run.ordinal).collect();
    ordinals.sort_unstable();
    assert_eq!(
        ordinals,
        [1, 2, 3, 4, 5, 6, 7],
        "each run has its own ordinal"
    );
}

#[tokio::test]
async fn concurrent_deployments_with_one_key_create_one_run() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let campaigns = YieldingStore::campaigns(&world, FirstCommit::Acknowledged);
    campaigns
        .put_audience_part("all", 0, &["a", "b"].map(recipient))
        .await
        .unwrap();
    let (audience, entropy) = (
        campaigns.read_audience("all").await.unwrap(),
        EntropySource::default(),
    );
    let deployment = deployment(Some("k"));
    // Each deployment starts one step after the other, so that their steps interleave.
    let deployed = join_all((0..12).map(async |steps| {
        for _ in 0..steps {
            tokio::task::yield_now().await;
        }
        campaigns
            .deploy_campaign(&deployment, &audience, &entropy)
            .await
            .unwrap()
    }))
    .await;
    assert!(
        deployed.iter().all(|it| it.run_id == deployed[0].run_id),
        "{deployed:?}"
    );
    assert_eq!(
        deployed.iter().filter(|it| !it.already_existed).count(),
        1,
        "{deployed:?}"
    );
}

#[tokio::test]
async fn a_concurrent_deployment_and_retry_do_not_send_to_the_same_recipients() {
    let world = World::new(
        RecordingProvider::new(|_, _| SendOutcome::Refused("mailbox full".into())),
        POLICY,
    );
    let first = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_ended(&first).await;
    let campaigns = YieldingStore::campaigns(&world, FirstCommit::Acknowledged);
    campaigns
        .put_audience_part("all", 0, &["b", "a"].map(recipient))
        .await
        .unwrap();
    let (audience, entropy) = (
        campaigns.read_audience("all").await.unwrap(),
        EntropySource::default(),
    );
    let deployment = deployment(None);
    let (deployed, retried) = tokio::join!(
        campaigns.deploy_campaign(&deployment, &audience, &entropy),
        campaigns.retry_run(&first, "ada", &entropy)
    );
    assert!(
        deployed.is_ok() != retried.is_ok(),
        "{deployed:?} {retried:?}"
    );
    assert_eq!(
        campaigns
            .list_runs(Some("spring"), None, None, 10)
            .await
            .unwrap()
            .len(),
        2
    );
}

#[tokio::test]
async fn a_deployment_with_an_unknown_outcome_is_found_without_an_idempotency_key() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    world
        .campaigns
        .put_audience_part("all", 0, &[recipient("a")])
        .await
        .unwrap();
    let campaigns = YieldingStore::campaigns(&world, FirstCommit::Unacknowledged);
    let audience = campaigns.read_audience("all").await.unwrap();
    let deployed = campaigns
        .deploy_campaign(&deployment(None), &audience, &EntropySource::default())
        .await
        .unwrap();
    assert!(!deployed.already_existed);
    let runs = campaigns
        .list_runs(Some("spring"), None, None, 10)
        .await
        .unwrap();
    assert_eq!(
        runs.iter().map(|run| &run.id).collect::<Vec<_>>(),
        [&deployed.run_id]
    );
}

#[tokio::test(start_paused = true)]
async fn of_two_runs_that_did_not_reach_a_recipient_only_the_later_one_can_retry_it() {
    let is_available = Arc::new(AtomicBool::new(false));
    let provider_available = Arc::clone(&is_available);
    let script = move |_: &str, _| {
        if provider_available.load(Ordering::SeqCst) {
            accepted()
        } else {
            SendOutcome::Deferred("down".into())
        }
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let first = world
        .deploy_as(
            deployment_with("one", RepeatSendPolicy::Refuse),
            &["a", "b"],
        )
        .await
        .unwrap()
        .run_id;
    world.work_until_ended(&first).await;
    let second = world
        .deploy_as(deployment_with("two", RepeatSendPolicy::Refuse), &["b"])
        .await
        .unwrap()
        .run_id;
    world.work_until_ended(&second).await;
    is_available.store(true, Ordering::SeqCst);
    let before = world.provider.calls();
    let jobs = world.jobs().await;
    let job = |run: &str| {
        jobs.iter()
            .find(|job| &*job.run_id == run)
            .unwrap()
            .id
            .clone()
    };
    world
        .campaigns
        .redrive_job(&job(&first), "ada")
        .await
        .unwrap();
    world.work_until_ended(&first).await;
    world
        .campaigns
        .redrive_job(&job(&second), "ada")
        .await
        .unwrap();
    world.work_until_ended(&second).await;
    let new_calls = |id: &str| world.provider.calls()[id] - before[id];
    assert_eq!(
        (new_calls("a"), new_calls("b")),
        (1, 1),
        "each is sent by one run"
    );
    let retried = world
        .campaigns
        .retry_run(&first, "ada", &EntropySource::default())
        .await;
    assert_eq!(
        retried,
        Err(CampaignError::AlreadyRetried(
            first.to_string(),
            second.to_string()
        ))
    );
}
