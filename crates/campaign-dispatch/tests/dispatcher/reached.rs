//! Deploying a campaign another time: nobody is reached again whom an earlier run has reached,
//! unless that is wanted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::future::join_all;
use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::{
    CampaignDeployment, CampaignError, CampaignScope, DeploymentResult, EntropySource,
    RepeatSendPolicy, ScopedCampaigns,
};
use onward_store::{AdmittedCommit, CommitReceipt, Error, Store, TableSchema};

use crate::between::{Between, Meddle};
use crate::world::{Counting, TERMS, World, accepted, deployment, recipient, scope};

fn wanted(key: &str, reached: RepeatSendPolicy) -> CampaignDeployment {
    CampaignDeployment {
        already_reached: reached,
        ..deployment(Some(key))
    }
}

/// A store whose answers take their time, so that others come between; that of the first commit is
/// lost, if it is to be.
struct Distant {
    loses: AtomicBool,
}

impl Distant {
    fn campaigns(world: &World, loses: bool) -> ScopedCampaigns {
        let store = Between(
            Arc::clone(&world.store),
            Self {
                loses: AtomicBool::new(loses),
            },
        );
        ScopedCampaigns::new(Arc::new(store), scope())
    }
}

#[async_trait]
impl Meddle for Distant {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        tokio::task::yield_now().await;
        let applied = store.apply_commit(commit).await;
        let is_lost = self.loses.swap(false, Ordering::SeqCst);
        if is_lost {
            Err(Error::OutcomeUnknown("the line is dead".to_owned()))
        } else {
            applied
        }
    }

    async fn read(&self, _table: &TableSchema) -> Result<(), Error> {
        tokio::task::yield_now().await;
        Ok(())
    }
}

fn reached_by(last: &str, reached: usize, of: usize) -> Result<DeploymentResult, CampaignError> {
    Err(CampaignError::AlreadyReached {
        campaign: "spring".to_owned(),
        reached,
        of,
        last: last.to_owned(),
    })
}

#[tokio::test(start_paused = true)]
async fn whoever_was_reached_is_not_reached_by_a_changed_campaign_unless_that_is_said() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let first = world
        .deploy_as(
            wanted("one", RepeatSendPolicy::Refuse),
            &["a", "b", "c", "d", "e"],
        )
        .await
        .unwrap()
        .run_id;
    let more = ["f", "e", "d", "c", "b", "a", "g"];
    assert_eq!(
        world
            .deploy_as(wanted("two", RepeatSendPolicy::Refuse), &more)
            .await,
        reached_by(&first, 5, 7)
    );
    world.work_until_over(&first).await;
    assert_eq!(
        world
            .deploy_as(wanted("two", RepeatSendPolicy::Refuse), &more)
            .await,
        reached_by(&first, 5, 7)
    );
    let mended = CampaignDeployment {
        document: "{\"subject\":\"mended\"}".into(),
        ..wanted("three", RepeatSendPolicy::Refuse)
    };
    assert_eq!(
        world.deploy_as(mended, &["a", "b"]).await,
        reached_by(&first, 2, 2)
    );

    let second = world
        .deploy_as(wanted("two", RepeatSendPolicy::Exclude), &more)
        .await
        .unwrap();
    assert_eq!(
        (second.items, second.excluded, second.already_existed),
        (2, 5, false)
    );
    let asked_again = world
        .deploy_as(wanted("two", RepeatSendPolicy::Exclude), &more)
        .await
        .unwrap();
    assert_eq!(
        (&asked_again.run_id, asked_again.already_existed),
        (&second.run_id, true),
        "a key is one run all the same"
    );
    world.work_until_over(&second.run_id).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 1),
        "{:?}",
        world.provider.calls()
    );
    assert_eq!(world.provider.calls().len(), 7);
    let nobody = world
        .deploy_as(wanted("four", RepeatSendPolicy::Exclude), &more)
        .await;
    assert_eq!(nobody, reached_by(&second.run_id, 7, 7));

    let again = world
        .deploy_as(wanted("five", RepeatSendPolicy::Resend), &more)
        .await
        .unwrap();
    world.work_until_over(&again.run_id).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 2),
        "{:?}",
        world.provider.calls()
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_was_not_reached_and_whoever_is_new_is_deployed_for_without_a_word() {
    let script = |who: &str, count| match (who, count) {
        ("b", 1) => SendOutcome::Refused("mailbox full".into()),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), TERMS);
    let first = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&first).await;
    let second = world.deploy(&["b", "c"]).await.unwrap().run_id;
    world.work_until_over(&second).await;
    let elsewhere = ScopedCampaigns::new(
        Arc::clone(&world.store),
        CampaignScope {
            tenant: "other".into(),
            ..scope()
        },
    );
    elsewhere
        .put_audience_part("all", 0, &[recipient("a")])
        .await
        .unwrap();
    let audience = elsewhere.read_audience("all").await.unwrap();
    elsewhere
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
    let nobody = world
        .campaigns
        .retry_run(&first, "ada", &EntropySource::default())
        .await;
    let by_second = CampaignError::AlreadyRetried(first.to_string(), second.to_string());
    assert_eq!(
        nobody,
        Err(by_second),
        "they are for the second run to reach"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_is_not_redriven_for_those_whom_a_later_run_is_to_reach() {
    let busy = |_: &str, count| {
        if count <= 3 {
            SendOutcome::Deferred("busy".into())
        } else {
            accepted()
        }
    };
    let world = World::new(Counting::new(busy), TERMS);
    let first = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&first).await;
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
        "b alone is tried again"
    );
    world.work_until_over(&first).await;
    world.work_until_over(&second).await;
    assert!(
        world.provider.calls().values().all(|count| *count == 4),
        "{:?}",
        world.provider.calls()
    );
}

#[tokio::test]
async fn of_deployments_at_the_same_moment_with_keys_of_their_own_one_reaches_people() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let campaigns = Distant::campaigns(&world, false);
    campaigns
        .put_audience_part("all", 0, &["a", "b"].map(recipient))
        .await
        .unwrap();
    let audience = campaigns.read_audience("all").await.unwrap();
    let entropy = EntropySource::default();
    for (reached, made) in [
        (RepeatSendPolicy::Refuse, 1),
        (RepeatSendPolicy::Exclude, 0),
        (RepeatSendPolicy::Resend, 6),
    ] {
        let deployments: Vec<_> = (0..6)
            .map(|number| wanted(&format!("{reached:?} {number}"), reached))
            .collect();
        let all = join_all(
            deployments
                .iter()
                .map(|it| campaigns.deploy_campaign(it, &audience, &entropy)),
        )
        .await;
        assert_eq!(all.iter().filter(|it| it.is_ok()).count(), made, "{all:?}");
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
        "each has a place of its own"
    );
}

#[tokio::test]
async fn deployments_at_the_same_moment_with_one_key_are_one_run() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let campaigns = Distant::campaigns(&world, false);
    campaigns
        .put_audience_part("all", 0, &["a", "b"].map(recipient))
        .await
        .unwrap();
    let (audience, entropy) = (
        campaigns.read_audience("all").await.unwrap(),
        EntropySource::default(),
    );
    let deployment = deployment(Some("k"));
    // One begins a step after the other, so that each step of one comes between two of another.
    let made = join_all((0..12).map(async |steps| {
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
        made.iter().all(|it| it.run_id == made[0].run_id),
        "{made:?}"
    );
    assert_eq!(
        made.iter().filter(|it| !it.already_existed).count(),
        1,
        "{made:?}"
    );
}

#[tokio::test]
async fn a_deployment_and_a_retry_at_the_same_moment_do_not_reach_the_same_people() {
    let world = World::new(
        Counting::new(|_, _| SendOutcome::Refused("mailbox full".into())),
        TERMS,
    );
    let first = world.deploy(&["a", "b"]).await.unwrap().run_id;
    world.work_until_over(&first).await;
    let campaigns = Distant::campaigns(&world, false);
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
async fn a_deployment_whose_answer_was_lost_is_found_again_without_a_key() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    world
        .campaigns
        .put_audience_part("all", 0, &[recipient("a")])
        .await
        .unwrap();
    let campaigns = Distant::campaigns(&world, true);
    let audience = campaigns.read_audience("all").await.unwrap();
    let made = campaigns
        .deploy_campaign(&deployment(None), &audience, &EntropySource::default())
        .await
        .unwrap();
    assert!(!made.already_existed);
    let runs = campaigns
        .list_runs(Some("spring"), None, None, 10)
        .await
        .unwrap();
    assert_eq!(
        runs.iter().map(|run| &run.id).collect::<Vec<_>>(),
        [&made.run_id]
    );
}

#[tokio::test(start_paused = true)]
async fn of_two_runs_that_could_not_reach_somebody_the_later_can_be_redriven_and_retried() {
    let is_back = Arc::new(AtomicBool::new(false));
    let back = Arc::clone(&is_back);
    let script = move |_: &str, _| {
        if back.load(Ordering::SeqCst) {
            accepted()
        } else {
            SendOutcome::Deferred("down".into())
        }
    };
    let world = World::new(Counting::new(script), TERMS);
    let first = world
        .deploy_as(wanted("one", RepeatSendPolicy::Refuse), &["a", "b"])
        .await
        .unwrap()
        .run_id;
    world.work_until_over(&first).await;
    let second = world
        .deploy_as(wanted("two", RepeatSendPolicy::Refuse), &["b"])
        .await
        .unwrap()
        .run_id;
    world.work_until_over(&second).await;
    is_back.store(true, Ordering::SeqCst);
    let called = world.provider.calls();
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
    world.work_until_over(&first).await;
    world
        .campaigns
        .redrive_job(&job(&second), "ada")
        .await
        .unwrap();
    world.work_until_over(&second).await;
    let more = |who: &str| world.provider.calls()[who] - called[who];
    assert_eq!((more("a"), more("b")), (1, 1), "each by one of them");
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
