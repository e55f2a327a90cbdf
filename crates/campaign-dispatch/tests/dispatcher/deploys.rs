//! Deployment: a run is created completely or not at all, and an idempotency key deploys once.

use std::sync::Arc;
use std::time::Duration;

use onward_base::Scope;
use onward_campaign_core::{CampaignRunStatus, JobStatus};
use onward_campaign_dispatch::{CampaignError, EntropySource, ScopedCampaigns};

use crate::world::{POLICY, RecordingProvider, World, accepted, deployment, recipient, scope};

#[tokio::test]
async fn deploying_an_empty_audience_fails_and_stores_nothing() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    assert_eq!(world.deploy(&[]).await, Err(CampaignError::EmptyAudience));
    assert!(world.jobs().await.is_empty());
}

#[tokio::test]
async fn a_deployment_creates_a_run_its_jobs_and_an_audit_entry() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let deployed = world.deploy(&["a", "b", "c", "d", "e"]).await.unwrap();
    assert_eq!(
        (deployed.items, deployed.jobs, deployed.already_existed),
        (5, 2, false)
    );
    let run = world.campaigns.read_run(&deployed.run_id).await.unwrap();
    assert_eq!(
        (run.status, run.items, run.jobs),
        (CampaignRunStatus::Queued, 5, 2)
    );
    let jobs: Vec<(JobStatus, u32)> = world
        .jobs()
        .await
        .iter()
        .map(|job| (job.status, job.items))
        .collect();
    assert_eq!(jobs, [(JobStatus::Queued, 4), (JobStatus::Queued, 1)]);
    assert_eq!(world.events(&deployed.run_id).await, ["run.deployed"]);
    assert!(world.items().await.is_empty(), "nothing is reserved yet");
}

#[tokio::test]
async fn an_idempotency_key_deploys_once() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
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
    let reused = Err(CampaignError::DeploymentKeyReused(first.run_id.to_string()));
    assert_eq!(world.deploy_as(other, &["a"]).await, reused);
    assert_eq!(
        world.deploy_as(deployment(Some("k")), &["a", "c"]).await,
        reused,
        "the same number of other recipients"
    );
    assert_eq!(
        world.deploy_as(deployment(Some("k")), &["b", "a"]).await,
        reused
    );
}

#[tokio::test(start_paused = true)]
async fn an_audience_that_is_not_deployed_is_deleted_after_a_week() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let run = world
        .deploy(&["a", "b", "c", "d", "e"])
        .await
        .unwrap()
        .run_id;
    let recipients = [recipient("f")];
    world
        .campaigns
        .put_audience_part("abandoned", 0, &recipients)
        .await
        .unwrap();
    world
        .campaigns
        .put_audience_part("abandoned", 0, &recipients)
        .await
        .unwrap();
    let other = world
        .campaigns
        .put_audience_part("abandoned", 0, &[recipient("g")])
        .await;
    assert_eq!(
        other,
        Err(CampaignError::AudiencePartConflict(
            "abandoned".to_owned(),
            0
        ))
    );
    tokio::time::advance(Duration::from_secs(8 * 86_400)).await;
    world
        .campaigns
        .put_audience_part("fresh", 0, &recipients)
        .await
        .unwrap();
    world.work_until_ended(&run).await;
    world
        .work_until(async |world| world.campaigns.read_audience("abandoned").await.is_err())
        .await;
    assert_eq!(
        world.campaigns.read_audience("abandoned").await,
        Err(CampaignError::AudienceNotFound("abandoned".to_owned()))
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
        .rsplit('|')
        .next()
        .unwrap()
        .to_owned();
    assert_eq!(
        world.campaigns.read_audience(&kept).await,
        Err(CampaignError::AudienceExpired(kept)),
        "it exists, but is too old to be deployed"
    );
}

#[tokio::test]
async fn an_audience_of_another_tenant_or_with_a_missing_part_is_not_deployed() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
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
    let other_tenant = ScopedCampaigns::new(
        Arc::clone(&world.store),
        Scope {
            tenant: "other".parse().unwrap(),
            ..scope()
        },
    );
    assert_eq!(
        other_tenant.read_audience("gap").await,
        Err(CampaignError::AudienceNotFound("gap".to_owned()))
    );
    // The audience names of tenants are independent.
    other_tenant
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

/// Ids may contain `/`: joined with it, both scopes would be `a/b/c`.
#[tokio::test(start_paused = true)]
async fn scopes_whose_ids_contain_slashes_do_not_reach_each_other() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let entropy = EntropySource::default();
    let campaigns_of = |project: &str, environment: &str| {
        ScopedCampaigns::new(
            Arc::clone(&world.store),
            Scope {
                project: project.parse().unwrap(),
                environment: environment.parse().unwrap(),
                ..scope()
            },
        )
    };
    let (own, other) = (campaigns_of("a", "b/c"), campaigns_of("a/b", "c"));
    own.put_audience_part("people", 0, &[recipient("a")])
        .await
        .unwrap();
    assert_eq!(
        other.read_audience("people").await,
        Err(CampaignError::AudienceNotFound("people".to_owned()))
    );
    other
        .put_audience_part("people", 0, &[recipient("b")])
        .await
        .unwrap();
    let audience = own.read_audience("people").await.unwrap();
    let run = own
        .deploy_campaign(&deployment(Some("key")), &audience, &entropy)
        .await
        .unwrap()
        .run_id;
    assert_eq!(
        other.read_run(&run).await,
        Err(CampaignError::RunNotFound(run.to_string()))
    );
    let audience = other.read_audience("people").await.unwrap();
    let deployed = other
        .deploy_campaign(&deployment(Some("key")), &audience, &entropy)
        .await
        .unwrap();
    assert_eq!(
        (deployed.already_existed, deployed.run_id == run),
        (false, false)
    );
}

#[tokio::test(start_paused = true)]
async fn deploying_again_with_the_audience_of_another_run_does_not_change_that_run() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let entropy = EntropySource::default();
    for (name, id) in [("aaa", "a"), ("bbb", "b")] {
        world
            .campaigns
            .put_audience_part(name, 0, &[recipient(id)])
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
    world.work_until_ended(&first).await;
    world.work_until_ended(&second).await;
    assert_eq!(world.provider.calls().len(), 2);
}
