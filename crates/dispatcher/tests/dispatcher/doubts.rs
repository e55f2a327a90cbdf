//! What is in doubt stays so until somebody knows: whoever is sent away the second time was not told of the first.

use std::sync::Arc;
use std::time::Duration;

use onward_dispatch::{Answer, Attempt, Conclusion, Found, Order, Slot, Standing, Step, Terms};
use onward_dispatcher::{Deployment, Dispatcher, Entropy, Nature, Options, Outlet, Outlets, Verdict};
use onward_store::tables::CampaignRun;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::world::{Counting, TERMS, World, accepted, deployment};

/// The first call is not heard of; what follows is.
fn lost_once(then: fn(u32) -> Answer) -> Counting {
    Counting::new(move |_, count| if count == 1 { Answer::Unknown("it broke off".into()) } else { then(count) })
}

const REPEATS: Terms = Terms { repeats: true, ..TERMS };

#[tokio::test(start_paused = true)]
async fn whoever_does_not_take_a_repetition_has_said_nothing_of_the_first_call() {
    let answers: [fn(u32) -> Answer; 3] = [
        |_| Answer::Later("503".into()),
        |_| Answer::Unfit("there is no name any more".into()),
        |_| Answer::Refused("409: that key was used".into()),
    ];
    for answer in answers {
        let world = World::new(lost_once(answer), REPEATS);
        world.deploy(&["a"]).await.unwrap();
        world.work_for(Duration::from_secs(3_600)).await;
        assert_eq!(world.statuses().await["a"], "in doubt");
        assert_eq!(world.provider.calls()["a"], TERMS.calls_max, "it is not repeated without end");
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_is_in_doubt_is_not_reached_by_another_run_because_the_provider_was_busy() {
    let world = World::new(lost_once(|_| Answer::Busy("429".into(), Some(600_000))), REPEATS);
    let run = world.deploy(&["a"]).await.unwrap().run;
    world.work_until(async |world| world.provider.calls().get("a") == Some(&2)).await;
    world.campaigns.cancel(&run, "ada").await.unwrap();
    world.work_for(Duration::from_secs(60)).await;
    assert_eq!(world.statuses().await["a"], "in doubt");
    assert!(world.campaigns.retry(&run, "ada", &Entropy::default()).await.is_err());
}

fn slot(standing: Standing, calls: u32) -> Slot {
    Slot { standing, calls, doubt_ms: 1_000_000, reason: None }
}

#[test]
fn a_job_whose_workers_keep_dying_is_given_up() {
    let slots = vec![slot(Standing::Held, 1), slot(Standing::Free, 1), Slot::NEW];
    let mut attempt = Attempt::new(slots.clone(), TERMS.attempts_max, TERMS, Order::Go);
    assert!(matches!(attempt.next(0), Step::Admit(..)), "the last try");
    let mut attempt = Attempt::new(slots, TERMS.attempts_max + 1, TERMS, Order::Go);
    let Step::Store { tally, conclusion: None, .. } = attempt.next(0) else { panic!("nothing more is begun") };
    assert_eq!((tally.in_doubt, tally.failed, tally.open()), (1, 2, 0));
    attempt.stored(&[]);
    let Step::Store { conclusion, .. } = attempt.next(0) else { panic!("and it is over") };
    assert_eq!(conclusion, Some(Conclusion::Wait), "somebody has to say what became of the one that was called for");
    // Not even by a provider that could be called again: the call may be what they die of.
    let slots = vec![slot(Standing::Held, 1), Slot::NEW];
    let mut attempt = Attempt::new(slots, TERMS.attempts_max + 1, REPEATS, Order::Go);
    assert!(matches!(attempt.next(0), Step::Store { conclusion: None, .. }));
    attempt.stored(&[]);
    assert!(matches!(attempt.next(0), Step::Store { conclusion: Some(Conclusion::Wait), .. }));
}

#[test]
fn whoever_was_called_for_often_enough_is_not_called_for_because_the_provider_knows_nothing() {
    let terms = Terms { looks_after_ms: Some(1), ..TERMS };
    for (calls, is_called) in [(TERMS.calls_max - 1, true), (TERMS.calls_max, false)] {
        let mut attempt = Attempt::new(vec![slot(Standing::InDoubt, calls)], 1, terms, Order::Go);
        assert_eq!(attempt.next(0), Step::Look(vec![0]));
        attempt.found(vec![(0, Found::Nothing)]);
        assert_eq!(matches!(attempt.next(0), Step::Admit(..)), is_called, "{calls}");
    }
}

#[test]
fn asking_is_no_try_and_few_are_asked_about_at_a_time() {
    let terms = Terms { looks_after_ms: Some(1), window: 2, ..TERMS };
    let mut attempt = Attempt::new(vec![slot(Standing::InDoubt, 1); 3], 9, terms, Order::Go);
    for asked in [vec![0, 1], vec![2]] {
        assert_eq!(attempt.next(0), Step::Look(asked.clone()));
        attempt.found(asked.into_iter().map(|position| (position, Found::Unsure)).collect());
    }
    let Step::Store { attempts, conclusion, .. } = attempt.next(0) else { panic!("it is over") };
    assert!(attempts == 8 && matches!(conclusion, Some(Conclusion::Look(_))), "{attempts} {conclusion:?}");
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_something_tried_again_gets_as_many_tries_as_any_other() {
    let world = World::new(lost_once(|count| if count < 4 { Answer::Later("busy".into()) } else { accepted() }), TERMS);
    let run = world.deploy(&["a"]).await.unwrap().run;
    world.work_until(async |world| world.statuses().await.get("a").is_some_and(|it| it == "in doubt")).await;
    let item = world.items().await.remove(0).id;
    world.campaigns.settle(&item, &Verdict::Again, "ada", "its log has nothing").await.unwrap();
    world.work_until_over(&run).await;
    assert_eq!((world.provider.calls()["a"], &*world.statuses().await["a"]), (4, "sent"));
}

#[tokio::test(start_paused = true)]
async fn the_audit_trail_says_what_the_provider_said_of_what_was_in_doubt() {
    let mut provider = lost_once(|_| accepted());
    provider.nature = Nature { can_look: true, ..provider.nature };
    let world = World::new(provider, Terms { looks_after_ms: Some(60_000), ..TERMS });
    let run = world.deploy(&["a"]).await.unwrap().run;
    world.work_until_over(&run).await;
    let entries = world.campaigns.audit(&run, 0, 100).await.unwrap();
    let found = entries.iter().find(|entry| &*entry.event == "items.looked_up").unwrap();
    let item = world.items().await.remove(0).id;
    assert!(found.detail.as_ref().unwrap().contains(&format!("\"{item}\":\"unknown to it\"")), "{found:?}");
    assert_eq!(world.jobs().await.remove(0).error, None, "what went wrong on the way is over");
}

/// A node that does not have the provider.
struct Elsewhere;

impl Outlets for Elsewhere {
    fn outlet(&self, _run: &CampaignRun) -> Result<Arc<Outlet>, String> {
        Err("there is no provider mailer".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn whoever_was_reached_is_not_reached_again_because_another_node_ended_the_cancelled_run() {
    // Four to a job: `a` is served by the first, and named again in the second, which is put off.
    let script = |who: &str, count| match (who, count) {
        ("x", 1) => Answer::Busy("429".into(), Some(6_000_000)),
        _ => accepted(),
    };
    let world = World::new(Counting::new(script), Terms { window: 1, ..TERMS });
    let run = world.deploy(&["a", "b", "c", "d", "x", "a", "e"]).await.unwrap().run;
    world.work_until(async |world| world.provider.calls().len() == 5).await;
    world.campaigns.cancel(&run, "ada").await.unwrap();
    let (stop, stopped) = watch::channel(false);
    let elsewhere = Dispatcher::new(Arc::clone(&world.store), Arc::new(Elsewhere), Options::default());
    let elsewhere = tokio::spawn(elsewhere.run(stopped));
    sleep(Duration::from_secs(60)).await;
    stop.send_replace(true);
    elsewhere.await.unwrap().unwrap();
    assert!(world.campaigns.run(&run).await.unwrap().ended_at.is_some());
    let again = world.campaigns.retry(&run, "ada", &Entropy::default()).await.unwrap().run;
    world.work_until_over(&again).await;
    let calls = world.provider.calls();
    assert_eq!((calls["a"], calls["e"], calls["x"]), (1, 1, 2), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_cancelled_is_completed_if_nobody_was_left_out_because_of_that() {
    let script = |who: &str, _| if who == "b" { Answer::Unknown("it broke off".into()) } else { accepted() };
    let world = World::new(Counting::new(script), TERMS);
    world.campaigns.suppress("email", "c@example.org", "asked for").await.unwrap();
    let run = world.deploy(&["a", "b", "c", "a"]).await.unwrap().run;
    world.work_until(async |world| world.jobs().await[0].in_doubt == 1).await;
    let other = world.deploy_as(Deployment { campaign: "other".into(), ..deployment(None) }, &["b", "d"]).await;
    let other = other.unwrap().run;
    for run in [&run, &other] {
        world.campaigns.cancel(run, "ada").await.unwrap();
    }
    let item = world.items().await.into_iter().find(|item| item.doubt_since.is_some()).unwrap().id;
    world.campaigns.settle(&item, &Verdict::Served(None), "ada", "its log").await.unwrap();
    world.work_until_over(&run).await;
    world.work_until_over(&other).await;
    assert_eq!(&*world.campaigns.run(&run).await.unwrap().status, "completed");
    assert_eq!(&*world.campaigns.run(&other).await.unwrap().status, "failed", "nobody was reached by it");
}

#[tokio::test(start_paused = true)]
async fn whoever_is_named_in_two_jobs_is_counted_once_when_both_are_given_up() {
    let world = World::new(Counting::new(|_, _| Answer::Busy("not today".into(), None)), Terms { window: 1, ..TERMS });
    let run = world.deploy(&["a", "b", "c", "d", "x", "d"]).await.unwrap().run;
    world.work_until_over(&run).await;
    let tally = world.campaigns.tally(&run).await.unwrap();
    assert_eq!((tally.failed, tally.skipped, world.items().await.len()), (5, 1, 5));
}
