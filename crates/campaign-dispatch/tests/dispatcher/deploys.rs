//! Deploying: all of it or nothing.

use std::sync::Arc;
use std::time::Duration;

use onward_campaign_dispatch::{CampaignError, CampaignScope, EntropySource, ScopedCampaigns};

use crate::world::{Counting, TERMS, World, accepted, deployment, recipient};

#[tokio::test]
async fn a_campaign_without_recipients_is_refused_and_leaves_nothing() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    assert_eq!(world.deploy(&[]).await, Err(CampaignError::EmptyAudience));
    assert!(world.jobs().await.is_empty());
}

#[tokio::test]
async fn a_campaign_is_a_run_its_jobs_and_an_entry() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let deployed = world.deploy(&["a", "b", "c", "d", "e"]).await.unwrap();
    assert_eq!(
        (deployed.items, deployed.jobs, deployed.already_existed),
        (5, 2, false)
    );
    let run = world.campaigns.read_run(&deployed.run_id).await.unwrap();
    assert_eq!((&*run.status, run.items, run.jobs), ("queued", 5, 2));
    let jobs: Vec<(String, u32)> = world
        .jobs()
        .await
        .iter()
        .map(|job| (job.status.to_string(), job.items))
        .collect();
    assert_eq!(jobs, [("queued".to_owned(), 4), ("queued".to_owned(), 1)]);
    assert_eq!(world.events(&deployed.run_id).await, ["run.deployed"]);
    assert!(world.items().await.is_empty(), "nothing is reserved yet");
}

#[tokio::test]
async fn a_key_deploys_once() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let first = world
        .deploy_as(deployment(Some("k")), &["a", "b"])
        .await
        .unwrap();
    let again = world
        .deploy_as(deployment(Some("k")), &["a", "b"])
        .await
        .unwrap();
    assert_eq!(
        (&again.run_id, again.already_existed),
        (&first.run_id, true)
    );
    assert_eq!(world.jobs().await.len(), 1);
    let mut other = deployment(Some("k"));
    other.document = "{\"subject\":\"other\"}".into();
    let taken = Err(CampaignError::DeploymentKeyReused(first.run_id.to_string()));
    assert_eq!(world.deploy_as(other, &["a"]).await, taken);
    assert_eq!(
        world.deploy_as(deployment(Some("k")), &["a", "c"]).await,
        taken,
        "as many, and others"
    );
    assert_eq!(
        world.deploy_as(deployment(Some("k")), &["b", "a"]).await,
        taken
    );
}

#[tokio::test(start_paused = true)]
async fn an_audience_that_nobody_deploys_is_removed_after_a_week_and_others_are_kept() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let run = world
        .deploy(&["a", "b", "c", "d", "e"])
        .await
        .unwrap()
        .run_id;
    let people = [recipient("f")];
    world
        .campaigns
        .put_audience_part("forgotten", 0, &people)
        .await
        .unwrap();
    world
        .campaigns
        .put_audience_part("forgotten", 0, &people)
        .await
        .unwrap();
    let other = world
        .campaigns
        .put_audience_part("forgotten", 0, &[recipient("g")])
        .await;
    assert_eq!(
        other,
        Err(CampaignError::AudiencePartConflict(
            "forgotten".to_owned(),
            0
        ))
    );
    tokio::time::advance(Duration::from_secs(8 * 86_400)).await;
    world
        .campaigns
        .put_audience_part("fresh", 0, &people)
        .await
        .unwrap();
    world.work_until_over(&run).await;
    world
        .work_until(async |world| world.campaigns.read_audience("forgotten").await.is_err())
        .await;
    assert_eq!(
        world.campaigns.read_audience("forgotten").await,
        Err(CampaignError::AudienceNotFound("forgotten".to_owned()))
    );
    assert_eq!(
        world
            .campaigns
            .read_audience("fresh")
            .await
            .unwrap()
            .recipient_count(),
        1
    );
    let kept = world
        .campaigns
        .read_run(&run)
        .await
        .unwrap()
        .audience_id
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(
        world.campaigns.read_audience(&kept).await,
        Err(CampaignError::AudienceExpired(kept)),
        "it is there, and too old"
    );
}

#[tokio::test]
async fn an_audience_of_somebody_else_or_with_a_part_missing_is_not_deployed() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    world
        .campaigns
        .put_audience_part("gap", 0, &[recipient("a")])
        .await
        .unwrap();
    world
        .campaigns
        .put_audience_part("gap", 2, &[recipient("b")])
        .await
        .unwrap();
    assert_eq!(
        world.campaigns.read_audience("gap").await,
        Err(CampaignError::AudiencePartMissing("gap".to_owned(), 1))
    );
    let others = ScopedCampaigns::new(
        Arc::clone(&world.store),
        CampaignScope {
            tenant: "other".into(),
            workspace: "shop".into(),
        },
    );
    assert_eq!(
        others.read_audience("gap").await,
        Err(CampaignError::AudienceNotFound("gap".to_owned()))
    );
    // Names of one tenant are not those of another.
    others
        .put_audience_part("gap", 0, &[recipient("z")])
        .await
        .unwrap();
    assert_eq!(
        world.campaigns.read_audience("gap").await,
        Err(CampaignError::AudiencePartMissing("gap".to_owned(), 1))
    );
    assert_eq!(
        world.campaigns.put_audience_part("none", 0, &[]).await,
        Err(CampaignError::AudiencePartSize(0))
    );
}

#[tokio::test(start_paused = true)]
async fn deploying_again_with_the_audience_of_another_run_takes_nothing_from_it() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let entropy = EntropySource::default();
    for (name, who) in [("aaa", "a"), ("bbb", "b")] {
        world
            .campaigns
            .put_audience_part(name, 0, &[recipient(who)])
            .await
            .unwrap();
    }
    let deploy = async |key, name| {
        let audience = world.campaigns.read_audience(name).await.unwrap();
        world
            .campaigns
            .deploy_campaign(&deployment(Some(key)), &audience, &entropy)
            .await
    };
    let first = deploy("one", "aaa").await.unwrap().run_id;
    let second = deploy("two", "bbb").await.unwrap().run_id;
    assert_eq!(
        deploy("two", "aaa").await,
        Err(CampaignError::DeploymentKeyReused(second.to_string()))
    );
    world.work_until_over(&first).await;
    world.work_until_over(&second).await;
    assert_eq!(world.provider.calls().len(), 2);
}
