//! Admission gates: when recipients may be reached, and nodes that lack a provider.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_base::Timestamp;
use onward_campaign_core::{AudienceRecipient, CampaignRunStatus, DispatchPolicy, JobStatus};
use onward_campaign_dispatch::{
    AdmissionGate, CampaignDelivery, CampaignDeployment, DeliveryError, DeliveryResolver,
    Dispatcher, Options, RepeatSendPolicy, SendAdmission,
};
use onward_store::tables::CampaignRunRow;
use tokio::sync::watch;

use crate::world::{POLICY, RecordingProvider, World, accepted, deployment};

/// Admits one recipient per second, and those whose id begins with `n` only from noon on.
struct SlowGate {
    last: Mutex<Option<Timestamp>>,
    noon: Timestamp,
}

impl AdmissionGate for SlowGate {
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
        let is_admitted =
            |recipient: &&AudienceRecipient| !recipient.id.starts_with('n') || now >= self.noon;
        match recipients.iter().position(is_admitted) {
            Some(index) => {
                *last = Some(now);
                SendAdmission::Admitted(vec![index])
            }
            None => SendAdmission::Delayed(Duration::from_millis(ms(self.noon))),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn recipients_are_reached_when_the_gate_admits_them_and_waiting_is_not_an_attempt() {
    let start = Timestamp::from_micros(1_767_225_600_000_000).unwrap();
    let noon = start.plus_ms(180_000);
    let world = World::with_gate(
        RecordingProvider::new(|_, _| accepted()),
        POLICY,
        SlowGate {
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
        now >= start.plus_ms(4_000) && now < start.plus_ms(60_000),
        "one per second: {now}"
    );
    assert!(!world.provider.calls().contains_key("night"));
    let waiting = &world.jobs().await[0];
    assert_eq!(
        (waiting.status, waiting.attempts, waiting.run_after),
        (JobStatus::Queued, 0, noon)
    );
    world.work_until_ended(&run).await;
    assert!(world.store.now().await.unwrap() >= noon);
    assert!(world.provider.calls().values().all(|count| *count == 1));
    assert!(
        world
            .events(&run)
            .await
            .contains(&"job.postponed".to_owned())
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_its_gate_can_be_cancelled() {
    let noon = Timestamp::MAX;
    let world = World::with_gate(
        RecordingProvider::new(|_, _| accepted()),
        POLICY,
        SlowGate {
            last: Mutex::default(),
            noon,
        },
    );
    let run = world.deploy(&["night", "noon"]).await.unwrap().run_id;
    world
        .work_until(async |world| {
            world
                .events(&run)
                .await
                .contains(&"job.postponed".to_owned())
        })
        .await;
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    world.work_until_ended(&run).await;
    assert!(world.provider.calls().is_empty());
}

/// The deliveries of a node that has no provider.
struct NoProvider;

impl DeliveryResolver for NoProvider {
    fn resolve_delivery(
        &self,
        _run: &CampaignRunRow,
    ) -> Result<Arc<CampaignDelivery>, DeliveryError> {
        Err(DeliveryError::new("no provider `mailer`"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_provider_is_reported_and_waits_for_a_node_that_has_it() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    let [first, second] = [
        world.deploy(&["a", "b"]).await.unwrap().run_id,
        world.deploy(&["c"]).await.unwrap().run_id,
    ];
    let (stop, stopped) = watch::channel(false);
    let node = Dispatcher::new(
        Arc::clone(&world.store),
        Arc::new(NoProvider),
        Options::default(),
    );
    let dispatching = tokio::spawn(node.run(stopped));
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(
        world.events(&first).await,
        ["run.deployed", "run.unreachable"],
        "it is recorded once"
    );
    world.campaigns.cancel_run(&second, "ada").await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.has_ended(&second).await);
    world.work_until_ended(&first).await;
    assert_eq!(world.provider.calls().len(), 2);
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
}

/// What stops a worker during a provider call that never returns.
#[derive(Debug, Clone, Copy)]
enum Interruption {
    Paused,
    Stopped,
    Killed,
    /// The worker is killed, and the first node that takes over has no provider.
    KilledWithoutProvider,
}

/// Checks that an operator can see that the item was sent again, and that a worker was lost.
async fn assert_resend_is_visible(world: &World, run: &str, interruption: Interruption) {
    assert_eq!(world.provider.calls()["a"], 2, "{interruption:?}");
    assert_eq!(world.items().await[0].sends, 2, "{interruption:?}");
    let events = world.events(run).await;
    assert!(
        events.contains(&"items.resent".to_owned()),
        "{interruption:?}: {events:?}"
    );
    if matches!(interruption, Interruption::Killed) {
        let job = world.jobs().await.remove(0);
        assert_eq!((job.attempts, job.lock_epoch), (2, 2), "{interruption:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_provider_is_called_again_after_every_kind_of_interruption() {
    for interruption in [
        Interruption::Paused,
        Interruption::Stopped,
        Interruption::Killed,
        Interruption::KilledWithoutProvider,
    ] {
        let is_first = AtomicBool::new(true);
        let hangs: Box<dyn Fn() -> bool + Send + Sync> =
            Box::new(move || is_first.swap(false, Ordering::SeqCst));
        let provider = RecordingProvider {
            hangs: Some(hangs),
            ..RecordingProvider::new(|_, _| accepted())
        };
        let world = World::new(
            provider,
            DispatchPolicy {
                resend_in_doubt: true,
                ..POLICY
            },
        );
        let run = world.deploy(&["a"]).await.unwrap().run_id;
        let (stop, stopped) = watch::channel(false);
        let dispatching = tokio::spawn(world.dispatcher().run(stopped));
        let pass = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
        pass(5).await;
        assert_eq!(world.provider.calls()["a"], 1);
        match interruption {
            Interruption::Paused => drop(world.campaigns.pause_run(&run, "ada").await.unwrap()),
            Interruption::Stopped => drop(stop.send_replace(true)),
            Interruption::Killed | Interruption::KilledWithoutProvider => dispatching.abort(),
        }
        pass(60).await;
        if matches!(interruption, Interruption::KilledWithoutProvider) {
            let (stop, stopped) = watch::channel(false);
            let node = Dispatcher::new(
                Arc::clone(&world.store),
                Arc::new(NoProvider),
                Options::default(),
            );
            let running = tokio::spawn(node.run(stopped));
            pass(600).await;
            assert_eq!(world.item_counts(&run).await.in_doubt, 1);
            assert!(
                world
                    .events(&run)
                    .await
                    .contains(&"run.unreachable".to_owned()),
                "the missing provider is recorded"
            );
            stop.send_replace(true);
            running.await.unwrap().unwrap();
        }
        if matches!(interruption, Interruption::Paused) {
            pass(60).await;
            assert_eq!(
                world.provider.calls()["a"],
                1,
                "a paused run starts no sends"
            );
            world.campaigns.resume_run(&run, "ada").await.unwrap();
            stop.send_replace(true);
        }
        world.work_until_ended(&run).await;
        assert_resend_is_visible(&world, &run, interruption).await;
        assert_eq!(
            world.run_status(&run).await,
            CampaignRunStatus::Completed,
            "{interruption:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_more_jobs_than_slots_can_be_paused_and_cancelled() {
    let recipients: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
    let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
    let gate = SlowGate {
        last: Mutex::default(),
        noon: Timestamp::MIN,
    };
    let world = World::with_gate(RecordingProvider::new(|_, _| accepted()), POLICY, gate);
    let run = world.deploy(&recipients).await.unwrap().run_id;
    let (stop, stopped) = watch::channel(false);
    let dispatching = tokio::spawn(world.dispatcher().run(stopped));
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
    assert!(cancelled > paused + 2, "the resumed run continues");
    world.campaigns.cancel_run(&run, "ada").await.unwrap();
    pass(60).await;
    assert!(
        world.provider.calls().len() <= cancelled + 2,
        "{cancelled} {:?}",
        world.provider.calls()
    );
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Partial);
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn waiting_runs_do_not_hide_due_runs() {
    let noon = Timestamp::MAX;
    let world = World::with_gate(
        RecordingProvider::new(|_, _| accepted()),
        POLICY,
        SlowGate {
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
    world.work_until_ended(&run).await;
    assert_eq!(
        world.provider.calls().into_keys().collect::<Vec<_>>(),
        ["day"]
    );
}
