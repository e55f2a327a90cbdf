//! Processes that stand still for longer than others wait, and do not know it when they go on: what
//! they have to say comes too late, and they call nobody.

use onward_api::campaign::{CampaignApi as _, CampaignStatus};
use onward_api::outbox::{ItemResolution, OutboxItemState, SettleItemRequest};

use crate::provider::Reply;
use crate::valve::{Side, Valve};
use crate::world::{World, audit, outbox, people, tally, until, until_done, until_over};

const ONE_BY_ONE: &str = "terms = { window = 1 }";

#[tokio::test(flavor = "multi_thread")]
async fn what_a_process_says_that_stood_still_in_a_call_is_refused() {
    let world = World::postgres(ONE_BY_ONE).await;
    world.provider.reply(|request| {
        if request.calls[0].to.starts_with("p00000@") {
            Reply::Held
        } else {
            Reply::Taken
        }
    });
    let zombie = world.node(&["--campaign-lanes", "1", "--node-name", "zombie"]);
    let run = zombie.deploy(&world.campaign("spring", &people(5), ""), &[]);
    world.provider.until_called(1).await;
    let shown = zombie.client().get_campaign_run(&run).await.unwrap();
    assert_eq!(
        (shown.under_way.unwrap().jobs, shown.tally.waiting),
        (1, 5),
        "nobody knows yet that it stands still"
    );
    zombie.signal("STOP");
    let other = world.node(&["--node-name", "other"]);
    let client = other.client();
    until_done(&client, &run).await;
    let tally = tally(&client, &run).await;
    assert_eq!((tally.served, tally.in_doubt), (4, 1));
    other.stop();
    world.provider.let_go(1);
    zombie.signal("CONT");
    // It has one lane: when that has sent something else, it is done with what it had.
    let client = zombie.client();
    let next = zombie.deploy(&world.campaign("summer", &people(1), ""), &["--again"]);
    world.provider.let_go(1);
    assert_eq!(until_over(&client, &next).await, CampaignStatus::Completed);
    let items = outbox(&client, &run).await;
    assert_eq!(
        items[0].standing,
        OutboxItemState::InDoubt,
        "what it heard came too late"
    );
    assert!(
        items[1..]
            .iter()
            .all(|item| item.standing == OutboxItemState::Served)
    );
    let times = world.provider.times();
    assert!(items.iter().all(|item| times[&item.key] == 1), "{times:?}");
    let settle = SettleItemRequest {
        verdict: ItemResolution::Sent,
        why: "its log".to_owned(),
        message_id: None,
        by: None,
    };
    client.settle_item(&items[0].item, settle).await.unwrap();
    assert_eq!(until_over(&client, &run).await, CampaignStatus::Completed);
    let recovered = audit(&client, &run)
        .await
        .into_iter()
        .filter(|entry| entry.event == "job.recovered");
    assert!(
        recovered
            .map(|entry| entry.detail.as_str().to_owned())
            .all(|detail| detail.contains("\"other\""))
    );
}

/// The worst moment: it has reserved, and has not heard so. Meanwhile another has it in doubt,
/// somebody has found out that nobody was called, and the other has called.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_hears_too_late_of_its_reservation_does_not_call() {
    let world = World::postgres(ONE_BY_ONE).await;
    let port = world.cluster.as_ref().unwrap().port();
    let valve = Valve::to(port);
    let mut command = world.command(&valve.url(&world.url, port), &["--campaign-lanes", "1"]);
    let zombie = world.node_by(&mut command);
    zombie.client();
    valve.stop_at(&[".000000.0000", "COMMIT\0"], Side::After);
    let run = zombie.deploy(&world.campaign("spring", &people(3), ""), &[]);
    valve.until_stopped().await;
    let other = world.node(&[]);
    let client = other.client();
    until("it is not reserved", async || {
        !outbox(&client, &run).await.is_empty()
    })
    .await;
    until_done(&client, &run).await;
    let doubt = outbox(&client, &run)
        .await
        .into_iter()
        .find(|item| item.standing == OutboxItemState::InDoubt)
        .unwrap();
    assert_eq!(
        world.provider.times().get(&doubt.key),
        None,
        "nobody was called"
    );
    let settle = SettleItemRequest {
        verdict: ItemResolution::Again,
        why: "its log has nothing".to_owned(),
        message_id: None,
        by: None,
    };
    client.settle_item(&doubt.item, settle).await.unwrap();
    assert_eq!(until_over(&client, &run).await, CampaignStatus::Completed);
    other.stop();
    valve.go_on();
    let next = zombie.deploy(&world.campaign("summer", &["another".to_owned()], ""), &[]);
    assert_eq!(
        until_over(&zombie.client(), &next).await,
        CampaignStatus::Completed
    );
    world.provider.expect_once();
    assert_eq!(world.provider.count(), 4);
}
