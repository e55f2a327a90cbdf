//! Deploying: all of it or nothing.

use onward_dispatcher::Refused;

use crate::world::{Counting, TERMS, World, accepted, deployment};

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
    assert_eq!(world.deploy_as(other, &["a"]).await, Err(Refused::KeyTaken(first.run.to_string())));
}
