//! Deploying: all of it or nothing.

use std::sync::Arc;
use std::time::Duration;

use onward_dispatcher::{Campaigns, Entropy, Refused, Scope};

use crate::world::{Counting, TERMS, World, accepted, deployment, recipient};

#[tokio::test]
async fn a_campaign_without_recipients_is_refused_and_leaves_nothing() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    assert_eq!(world.deploy(&[]).await, Err(Refused::NobodyToReach));
    assert!(world.jobs().await.is_empty());
}

#[tokio::test]
async fn a_campaign_is_a_run_its_jobs_and_an_entry() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let deployed = world.deploy(&["a", "b", "c", "d", "e"]).await.unwrap();
    assert_eq!((deployed.items, deployed.jobs, deployed.existed), (5, 2, false));
    let run = world.campaigns.run(&deployed.run).await.unwrap();
    assert_eq!((&*run.status, run.items, run.jobs), ("queued", 5, 2));
    let jobs: Vec<(String, u32)> = world.jobs().await.iter().map(|job| (job.status.to_string(), job.items)).collect();
    assert_eq!(jobs, [("queued".to_owned(), 4), ("queued".to_owned(), 1)]);
    assert_eq!(world.events(&deployed.run).await, ["run.deployed"]);
    assert!(world.items().await.is_empty(), "nothing is reserved yet");
}

#[tokio::test]
async fn a_key_deploys_once() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let first = world.deploy_as(deployment(Some("k")), &["a", "b"]).await.unwrap();
    let again = world.deploy_as(deployment(Some("k")), &["a", "b"]).await.unwrap();
    assert_eq!((&again.run, again.existed), (&first.run, true));
    assert_eq!(world.jobs().await.len(), 1);
    let mut other = deployment(Some("k"));
    other.document = "{\"subject\":\"other\"}".into();
    let taken = Err(Refused::KeyTaken(first.run.to_string()));
    assert_eq!(world.deploy_as(other, &["a"]).await, taken);
    assert_eq!(world.deploy_as(deployment(Some("k")), &["a", "c"]).await, taken, "as many, and others");
    assert_eq!(world.deploy_as(deployment(Some("k")), &["b", "a"]).await, taken);
}

#[tokio::test(start_paused = true)]
async fn an_audience_that_nobody_deploys_is_removed_after_a_week_and_others_are_kept() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let run = world.deploy(&["a", "b", "c", "d", "e"]).await.unwrap().run;
    let people = [recipient("f")];
    world.campaigns.put_part("forgotten", 0, &people).await.unwrap();
    world.campaigns.put_part("forgotten", 0, &people).await.unwrap();
    let other = world.campaigns.put_part("forgotten", 0, &[recipient("g")]).await;
    assert_eq!(other, Err(Refused::PartTaken("forgotten".to_owned(), 0)));
    tokio::time::advance(Duration::from_secs(8 * 86_400)).await;
    world.campaigns.put_part("fresh", 0, &people).await.unwrap();
    world.work_until_over(&run).await;
    world.work_until(async |world| world.campaigns.audience("forgotten").await.is_err()).await;
    assert_eq!(world.campaigns.audience("forgotten").await, Err(Refused::NoAudience("forgotten".to_owned())));
    assert_eq!(world.campaigns.audience("fresh").await.unwrap().items(), 1);
    let kept = world.campaigns.run(&run).await.unwrap().audience_id.rsplit('/').next().unwrap().to_owned();
    assert_eq!(world.campaigns.audience(&kept).await, Err(Refused::AudienceOld(kept)), "it is there, and too old");
}

#[tokio::test]
async fn an_audience_of_somebody_else_or_with_a_part_missing_is_not_deployed() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    world.campaigns.put_part("gap", 0, &[recipient("a")]).await.unwrap();
    world.campaigns.put_part("gap", 2, &[recipient("b")]).await.unwrap();
    assert_eq!(world.campaigns.audience("gap").await, Err(Refused::PartMissing("gap".to_owned(), 1)));
    let others = Campaigns::new(Arc::clone(&world.store), Scope { tenant: "other".into(), workspace: "shop".into() });
    assert_eq!(others.audience("gap").await, Err(Refused::NoAudience("gap".to_owned())));
    // Names of one tenant are not those of another.
    others.put_part("gap", 0, &[recipient("z")]).await.unwrap();
    assert_eq!(world.campaigns.audience("gap").await, Err(Refused::PartMissing("gap".to_owned(), 1)));
    assert_eq!(world.campaigns.put_part("none", 0, &[]).await, Err(Refused::PartSize(0)));
}

#[tokio::test(start_paused = true)]
async fn deploying_again_with_the_audience_of_another_run_takes_nothing_from_it() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let entropy = Entropy::default();
    for (name, who) in [("aaa", "a"), ("bbb", "b")] {
        world.campaigns.put_part(name, 0, &[recipient(who)]).await.unwrap();
    }
    let deploy = async |key, name| {
        let audience = world.campaigns.audience(name).await.unwrap();
        world.campaigns.deploy(&deployment(Some(key)), &audience, &entropy).await
    };
    let first = deploy("one", "aaa").await.unwrap().run;
    let second = deploy("two", "bbb").await.unwrap().run;
    assert_eq!(deploy("two", "aaa").await, Err(Refused::KeyTaken(second.to_string())));
    world.work_until_over(&first).await;
    world.work_until_over(&second).await;
    assert_eq!(world.provider.calls().len(), 2);
}
