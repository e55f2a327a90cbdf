//! Checks of shard leases: claim, renewal, release, expiry and takeover.

use onward_base::Timestamp;

use super::prelude::*;
use crate::conformance::fixtures::{self, queued_job_row};
use crate::shard_lease::{HeldLease, claim_shard, release_lease, renew_lease};
use crate::tables::ShardLeaseRow;
use crate::{ShardEpoch, ShardId};

super::checks!(Fencing:
    a_free_shard_is_claimed_at_epoch_1,
    a_claimed_shard_is_not_claimed_again,
    a_shard_is_not_claimed_in_the_last_microsecond_of_its_lease,
    a_shard_is_claimed_when_its_lease_expires,
    a_claim_increments_the_epoch,
    two_owners_with_the_same_name_are_different_owners,
    shards_are_claimed_independently,
    a_claim_that_fails_to_be_stored_returns_an_error,
    a_renewed_lease_is_valid_beyond_its_first_expiry,
    an_expired_lease_without_a_takeover_can_be_renewed,
    renewal_never_shortens_a_lease,
    renewal_keeps_the_epoch,
    renewal_with_an_old_epoch_changes_nothing,
    renewal_with_an_outdated_lease_changes_nothing,
    release_with_an_old_epoch_changes_nothing,
    a_released_shard_can_be_claimed_immediately,
    a_released_lease_cannot_be_renewed,
    of_concurrent_claims_of_a_free_shard_exactly_one_succeeds,
    of_concurrent_claims_of_an_expired_lease_exactly_one_succeeds,
    a_concurrent_renewal_and_claim_leave_one_owner,
);

pub(super) fn fenced_conflict(held: u64, given: ShardEpoch) -> CommitConflict {
    CommitConflict::Fenced {
        shard: TEST_SHARD,
        held: ShardEpoch(held),
        given,
    }
}

pub(super) const TEST_SHARD: ShardId = ShardId(7);

pub(super) const LEASE_MS: u64 = 1_000;

/// Claims the shard and fails the check if the store does not grant the lease.
pub(super) async fn expect_claim(
    world: &CheckContext<'_>,
    node: &str,
) -> Result<HeldLease, ConformanceFailure> {
    expect_some(
        "the lease",
        claim_shard(world.store(), TEST_SHARD, node, LEASE_MS).await?,
    )
}

/// Returns the leases of a first owner that has expired and of a second owner that took over.
pub(super) async fn claim_and_take_over(
    world: &CheckContext<'_>,
) -> Result<[HeldLease; 2], ConformanceFailure> {
    let first = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS);
    Ok([first, expect_claim(world, "node").await?])
}

pub(super) async fn read_lease_row(
    world: &CheckContext<'_>,
) -> Result<(ShardLeaseRow, u64), ConformanceFailure> {
    expect_some(
        "the row of the shard",
        world
            .read_record(RowKey(vec![TEST_SHARD.to_value()]))
            .await?,
    )
}

async fn a_free_shard_is_claimed_at_epoch_1(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    expect_same(
        "shard, epoch, expiry",
        (lease.shard, lease.epoch, lease.until),
        (TEST_SHARD, ShardEpoch(1), timestamp_after_ms(LEASE_MS)),
    )?;
    let expected = ShardLeaseRow {
        lease_until: timestamp_after_ms(LEASE_MS),
        ..fixtures::shard_lease_row(TEST_SHARD.0, 1)
    };
    expect_same("the row", read_lease_row(world).await?, (expected, 1))
}

async fn a_claimed_shard_is_not_claimed_again(world: &CheckContext<'_>) -> CheckResult {
    expect_claim(world, "node").await?;
    expect_same(
        "the second claim",
        claim_shard(world.store(), TEST_SHARD, "other", LEASE_MS).await?,
        None,
    )
}

async fn a_shard_is_not_claimed_in_the_last_microsecond_of_its_lease(
    world: &CheckContext<'_>,
) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world
        .manual_clock()
        .set(Timestamp::from_micros(lease.until.as_micros() - 1).unwrap_or(lease.until));
    expect_same(
        "the second claim",
        claim_shard(world.store(), TEST_SHARD, "other", LEASE_MS).await?,
        None,
    )
}

async fn a_shard_is_claimed_when_its_lease_expires(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().set(lease.until);
    expect_same(
        "the epoch",
        expect_claim(world, "other").await?.epoch,
        ShardEpoch(2),
    )
}

async fn a_claim_increments_the_epoch(world: &CheckContext<'_>) -> CheckResult {
    for epoch in 1..=5 {
        expect_same(
            "the epoch",
            expect_claim(world, "node").await?.epoch,
            ShardEpoch(epoch),
        )?;
        world.manual_clock().advance_ms(LEASE_MS);
    }
    Ok(())
}

async fn two_owners_with_the_same_name_are_different_owners(
    world: &CheckContext<'_>,
) -> CheckResult {
    let first = expect_claim(world, "node").await?;
    expect_same(
        "a claim under the same name",
        claim_shard(world.store(), TEST_SHARD, "node", LEASE_MS).await?,
        None,
    )?;
    world.manual_clock().advance_ms(LEASE_MS);
    let second = expect_claim(world, "node").await?;
    expect_different("the epochs", first.epoch, second.epoch)?;
    let zombie = Commit::new()
        .fence_shard(TEST_SHARD, first.epoch)
        .insert(&queued_job_row("j"));
    expect_refused(world.commit(zombie).await, fenced_conflict(2, first.epoch))?;
    expect_same(
        "the first owner's renewal",
        renew_lease(world.store(), &first, LEASE_MS).await?,
        None,
    )
}

async fn shards_are_claimed_independently(world: &CheckContext<'_>) -> CheckResult {
    for shard in [0, 1, u32::MAX] {
        let lease = claim_shard(world.store(), ShardId(shard), "node", LEASE_MS).await?;
        expect_same(
            "the epoch",
            lease.map(|lease| lease.epoch),
            Some(ShardEpoch(1)),
        )?;
    }
    Ok(())
}

async fn a_claim_that_fails_to_be_stored_returns_an_error(world: &CheckContext<'_>) -> CheckResult {
    let (table, column) = (ShardLeaseRow::TABLE.name, "node");
    let error = InvalidRequest::Value {
        table,
        column,
        reason: "text must not contain U+0000",
    };
    expect_refused(
        claim_shard(world.store(), TEST_SHARD, "\0", LEASE_MS).await,
        error,
    )
}

async fn a_renewed_lease_is_valid_beyond_its_first_expiry(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS - 1);
    let renewed = expect_some(
        "the renewed lease",
        renew_lease(world.store(), &lease, LEASE_MS).await?,
    )?;
    expect_same(
        "the expiry of the lease",
        renewed.until,
        timestamp_after_ms(2 * LEASE_MS - 1),
    )?;
    world.manual_clock().advance_ms(2);
    expect_same(
        "a claim by another node",
        claim_shard(world.store(), TEST_SHARD, "other", LEASE_MS).await?,
        None,
    )
}

async fn an_expired_lease_without_a_takeover_can_be_renewed(
    world: &CheckContext<'_>,
) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(10 * LEASE_MS);
    let renewed = expect_some(
        "the renewed lease",
        renew_lease(world.store(), &lease, LEASE_MS).await?,
    )?;
    expect_same(
        "epoch and expiry",
        (renewed.epoch, renewed.until),
        (ShardEpoch(1), timestamp_after_ms(11 * LEASE_MS)),
    )
}

async fn renewal_never_shortens_a_lease(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().set(Timestamp::EPOCH);
    let renewed = expect_some(
        "the renewed lease",
        renew_lease(world.store(), &lease, 1).await?,
    )?;
    expect_same("the expiry of the lease", renewed.until, lease.until)
}

async fn renewal_keeps_the_epoch(world: &CheckContext<'_>) -> CheckResult {
    let mut lease = expect_claim(world, "node").await?;
    for _ in 0..5 {
        world.manual_clock().advance_ms(LEASE_MS / 2);
        lease = expect_some(
            "the renewed lease",
            renew_lease(world.store(), &lease, LEASE_MS).await?,
        )?;
    }
    expect_same(
        "the epoch",
        read_lease_row(world).await?.0.epoch,
        ShardEpoch(1),
    )?;
    world
        .commit(
            Commit::new()
                .fence_shard(TEST_SHARD, lease.epoch)
                .insert(&queued_job_row("j")),
        )
        .await?;
    Ok(())
}

async fn renewal_with_an_old_epoch_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    let [first, _] = claim_and_take_over(world).await?;
    let before = read_lease_row(world).await?;
    expect_same(
        "the renewal",
        renew_lease(world.store(), &first, 9 * LEASE_MS).await?,
        None,
    )?;
    expect_same("the row", read_lease_row(world).await?, before)
}

async fn renewal_with_an_outdated_lease_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    expect_some(
        "the renewed lease",
        renew_lease(world.store(), &lease, LEASE_MS).await?,
    )?;
    let before = read_lease_row(world).await?;
    expect_same(
        "the renewal",
        renew_lease(world.store(), &lease, 9 * LEASE_MS).await?,
        None,
    )?;
    expect_same("the row", read_lease_row(world).await?, before)
}

async fn release_with_an_old_epoch_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    let [first, second] = claim_and_take_over(world).await?;
    let before = read_lease_row(world).await?;
    release_lease(world.store(), &first).await?;
    expect_same("the row", read_lease_row(world).await?, before)?;
    expect_same(
        "a claim by a third node",
        claim_shard(world.store(), TEST_SHARD, "third", LEASE_MS).await?,
        None,
    )?;
    world
        .commit(
            Commit::new()
                .fence_shard(TEST_SHARD, second.epoch)
                .insert(&queued_job_row("j")),
        )
        .await?;
    Ok(())
}

async fn a_released_shard_can_be_claimed_immediately(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    release_lease(world.store(), &lease).await?;
    expect_same(
        "the epoch of the next claim",
        expect_claim(world, "other").await?.epoch,
        ShardEpoch(2),
    )
}

async fn a_released_lease_cannot_be_renewed(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    release_lease(world.store(), &lease).await?;
    expect_same(
        "the renewal",
        renew_lease(world.store(), &lease, LEASE_MS).await?,
        None,
    )
}

/// Claims the shard concurrently and expects exactly one winner, with this epoch.
async fn expect_one_claim(world: &CheckContext<'_>, epoch: u64) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let answers = pair
        .race_calls(32, |store, _| {
            Box::pin(claim_shard(store, TEST_SHARD, "node", LEASE_MS))
        })
        .await;
    let leases: Vec<Option<HeldLease>> = answers.into_iter().collect::<Result<_, _>>()?;
    let epochs: Vec<ShardEpoch> = leases
        .into_iter()
        .flatten()
        .map(|lease| lease.epoch)
        .collect();
    expect_same("the epochs granted", epochs, vec![ShardEpoch(epoch)])
}

async fn of_concurrent_claims_of_a_free_shard_exactly_one_succeeds(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_one_claim(world, 1).await
}

async fn of_concurrent_claims_of_an_expired_lease_exactly_one_succeeds(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS);
    expect_one_claim(world, 2).await
}

async fn a_concurrent_renewal_and_claim_leave_one_owner(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let first = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS);
    let answers = pair
        .race_calls(8, |store, nth| {
            let first = first.clone();
            Box::pin(async move {
                if nth == 0 {
                    renew_lease(store, &first, LEASE_MS).await
                } else {
                    claim_shard(store, TEST_SHARD, "other", LEASE_MS).await
                }
            })
        })
        .await;
    let leases: Vec<Option<HeldLease>> = answers.into_iter().collect::<Result<_, _>>()?;
    let granted: Vec<ShardEpoch> = leases
        .into_iter()
        .flatten()
        .map(|lease| lease.epoch)
        .collect();
    expect_same(
        "the epochs granted",
        granted,
        vec![read_lease_row(world).await?.0.epoch],
    )
}
