//! Gates: who may be reached when.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_base::Timestamp;
use onward_campaign_core::{AudienceRecipient, DispatchPolicy};
use onward_campaign_dispatch::{
    AdmissionGate, CampaignDelivery, CampaignDeployment, DeliveryResolver, Dispatcher, Options,
    RepeatSendPolicy, SendAdmission,
};
use onward_store::tables::CampaignRunRow;
use tokio::sync::watch;

use crate::world::{Counting, TERMS, World, accepted, deployment};

/// One a second, and nobody whose name begins with `n` before noon.
struct Slow {
    last: Mutex<Option<Timestamp>>,
    noon: Timestamp,
}

impl AdmissionGate for Slow {
    fn admit_recipients(
        &self,
        recipients: &[&AudienceRecipient],
        _at_most: usize,
        now: Timestamp,
    ) -> SendAdmission {
        let ms = |until: Timestamp| {
            u64::try_from((until.as_micros() - now.as_micros()) / 1_000).unwrap()
        };
        let mut last = self.last.lock().unwrap();
        if let Some(next) = last
            .map(|last| last.plus_ms(1_000))
            .filter(|next| *next > now)
        {
            return SendAdmission::Delayed(Duration::from_millis(ms(next)));
        }
        let may =
            |recipient: &&AudienceRecipient| !recipient.id.starts_with('n') || now >= self.noon;
        match recipients.iter().position(may) {
            Some(place) => {
                *last = Some(now);
                SendAdmission::Admitted(vec![place])
            }
            None => SendAdmission::Delayed(Duration::from_millis(ms(self.noon))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn people_are_reached_when_the_gate_says_so_and_waiting_is_no_attempt() {
    let begun = Timestamp::from_micros(1_767_225_600_000_000).unwrap();
    let noon = begun.plus_ms(180_000);
    let world = World::gated(
        Counting::new(|_, _| accepted()),
        TERMS,
        Slow {
            last: Mutex::default(),
            noon,
        },
    );
    let run = world
        .deploy(&["night", "a", "b", "c", "d", "e"])
        .await
        .unwrap()
        .run_id;
    world
        .work_until(async |world| world.provider.calls().len() == 5)
        .await;
    let now = world.store.now().await.unwrap();
    assert!(
        now >= begun.plus_ms(4_000) && now < begun.plus_ms(60_000),
        "one a second: {now}"
    );
    assert!(!world.provider.calls().contains_key("night"));
    let waiting = &world.jobs().await[0];
    assert_eq!(
        (&*waiting.status, waiting.attempts, waiting.run_after),
        ("queued", 0, noon)
    );
    world.work_until_over(&run).await;
    assert!(world.store.now().await.unwrap() >= noon);
    assert!(world.provider.calls().values().all(|count| *count == 1));
    assert!(world.events(&run).await.contains(&"job.put_off".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_gate_can_be_cancelled() {
    let noon = Timestamp::MAX;
    let world = World::gated(
        Counting::new(|_, _| accepted()),
        TERMS,
        Slow {
            last: Mutex::default(),
            noon,
        },
    );
    let run = world.deploy(&["night", "nobody"]).await.unwrap().run_id;
    world
        .work_until(async |world| world.events(&run).await.contains(&"job.put_off".to_owned()))
        .await;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_over(&run).await;
    assert!(world.provider.calls().is_empty());
}

/// Knows no provider.
struct Unknown;

impl DeliveryResolver for Unknown {
    fn resolve_delivery(&self, _run: &CampaignRunRow) -> Result<Arc<CampaignDelivery>, String> {
        Err("there is no provider mailer".to_owned())
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_provider_is_explained_and_waits_for_a_node_that_has_one_or_is_cancelled() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    let [first, second] = [
        world.deploy(&["a", "b"]).await.unwrap().run_id,
        world.deploy(&["c"]).await.unwrap().run_id,
    ];
    let (stop, stopped) = watch::channel(false);
    let lost = Dispatcher::new(
        Arc::clone(&world.store),
        Arc::new(Unknown),
        Options::default(),
    );
    let working = tokio::spawn(lost.run(stopped));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(
        world.events(&first).await,
        ["run.deployed", "run.unreachable"],
        "it is said once"
    );
    world.campaigns.cancel_run(&second, "ada").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(
        world
            .campaigns
            .read_run(&second)
            .await
            .unwrap()
            .ended_at
            .is_some()
    );
    world.work_until_over(&first).await;
    assert_eq!(world.provider.calls().len(), 2);
    stop.send_replace(true);
    working.await.unwrap().unwrap();
}

/// What stops a worker in the middle of a call whose answer is lost.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Paused,
    Stopped,
    Killed,
    /// And the first that takes over does not know the provider.
    KilledAndUnknown,
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[tokio::test(start_paused = true)]
async fn whoever_takes_each_key_once_is_called_again_whatever_stopped_the_worker() {
    for how in [
        Stop::Paused,
        Stop::Stopped,
        Stop::Killed,
        Stop::KilledAndUnknown,
    ] {
        let is_first = AtomicBool::new(true);
        let hangs: Box<dyn Fn() -> bool + Send + Sync> =
            Box::new(move || is_first.swap(false, Ordering::SeqCst));
        let provider = Counting {
            hangs: Some(hangs),
            ..Counting::new(|_, _| accepted())
        };
        let world = World::new(
            provider,
            DispatchPolicy {
                resend_in_doubt: true,
                ..TERMS
            },
        );
        let run = world.deploy(&["a"]).await.unwrap().run_id;
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(world.dispatcher().run(stopped));
        let pass = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
        pass(5).await;
        assert_eq!(world.provider.calls()["a"], 1);
        match how {
            Stop::Paused => drop(world.campaigns.pause_run(&run, "ada").await.unwrap()),
            Stop::Stopped => drop(stop.send_replace(true)),
            Stop::Killed | Stop::KilledAndUnknown => working.abort(),
        }
        pass(60).await;
        if matches!(how, Stop::KilledAndUnknown) {
            let (stop, stopped) = watch::channel(false);
            let lost = Dispatcher::new(
                Arc::clone(&world.store),
                Arc::new(Unknown),
                Options::default(),
            );
            let lost = tokio::spawn(lost.run(stopped));
            pass(600).await;
            assert_eq!(
                world
                    .campaigns
                    .count_run_items(&run)
                    .await
                    .unwrap()
                    .in_doubt,
                1
            );
            assert!(
                world
                    .events(&run)
                    .await
                    .contains(&"run.unreachable".to_owned()),
                "people are told"
            );
            stop.send_replace(true);
            lost.await.unwrap().unwrap();
        }
        if matches!(how, Stop::Paused) {
            pass(60).await;
            assert_eq!(world.provider.calls()["a"], 1, "nothing is begun");
            world.campaigns.resume_run(&run, "ada").await.unwrap();
            stop.send_replace(true);
        }
        world.work_until_over(&run).await;
        assert_eq!(world.provider.calls()["a"], 2, "{how:?}");
        assert_eq!(
            &*world.campaigns.read_run(&run).await.unwrap().status,
            "completed",
            "{how:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_paused_and_cancelled_while_more_of_its_jobs_are_in_line_than_are_worked_on() {
    let people: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
    let people: Vec<&str> = people.iter().map(String::as_str).collect();
    let slow = Slow {
        last: Mutex::default(),
        noon: Timestamp::MIN,
    };
    let world = World::gated(Counting::new(|_, _| accepted()), TERMS, slow);
    let run = world.deploy(&people).await.unwrap().run_id;
    let (stop, stopped) = watch::channel(false);
    let working = tokio::spawn(world.dispatcher().run(stopped));
    let pass = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
    pass(5).await;
    world.campaigns.pause_run(&run, "ada").await.unwrap();
    let paused = world.provider.calls().len();
    pass(60).await;
    assert!(
        (3..=paused + 2).contains(&world.provider.calls().len()),
        "{paused} {:?}",
        world.provider.calls()
    );
    world.campaigns.resume_run(&run, "ada").await.unwrap();
    pass(5).await;
    let cancelled = world.provider.calls().len();
    assert!(cancelled > paused + 2, "it goes on");
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    pass(60).await;
    assert!(
        world.provider.calls().len() <= cancelled + 2,
        "{cancelled} {:?}",
        world.provider.calls()
    );
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "partial"
    );
    stop.send_replace(true);
    working.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn runs_that_wait_do_not_hide_others() {
    let noon = Timestamp::MAX;
    let world = World::gated(
        Counting::new(|_, _| accepted()),
        TERMS,
        Slow {
            last: Mutex::default(),
            noon,
        },
    );
    for _ in 0..450 {
        world
            .deploy_as(
                CampaignDeployment {
                    already_reached: RepeatSendPolicy::Resend,
                    ..deployment(None)
                },
                &["night"],
            )
            .await
            .unwrap();
    }
    let run = world.deploy(&["day"]).await.unwrap().run_id;
    world.work_until_over(&run).await;
    assert_eq!(
        world.provider.calls().into_keys().collect::<Vec<_>>(),
        ["day"]
    );
}
