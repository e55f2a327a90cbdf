//! Checks of leases, epochs and fenced commits. Each guard is tested while all others hold, so that
//! no guard hides another.

use onward_base::Timestamp;

use super::prelude::*;
use crate::conformance::check_context::yield_once;
use crate::conformance::fixtures::{self, numbered_execution, queued_job_row, reader_advance};
use crate::shard_lease::{HeldLease, claim_shard, release_lease, renew_lease};
use crate::tables::ShardLeaseRow;
use crate::{ShardEpoch, ShardId};

super::checks!(Fencing:
    a_free_shard_is_claimed_at_epoch_1,
    a_claimed_shard_is_not_claimed_again,
    a_shard_is_not_claimed_in_the_last_microsecond_of_its_lease,
    a_shard_is_claimed_when_its_lease_ends,
    a_claim_raises_the_epoch,
    the_same_worker_name_twice_is_two_owners,
    shards_are_claimed_one_by_one,
    a_claim_that_cannot_be_stored_is_an_error_and_no_refusal,
    a_lease_that_is_renewed_outlives_its_first_end,
    renewal_survives_a_late_tick,
    renewal_never_shortens_a_lease,
    renewal_keeps_the_epoch,
    renewal_with_an_old_token_changes_nothing,
    renewal_with_a_token_from_before_the_last_renewal_changes_nothing,
    release_with_an_old_token_changes_nothing,
    a_released_shard_is_claimed_at_once,
    a_released_lease_cannot_be_renewed,
    racing_claims_of_a_free_shard_have_one_winner,
    racing_claims_of_an_expired_lease_have_one_winner,
    racing_renewal_and_claim_leave_one_owner,
    a_commit_under_the_right_epoch_is_stored,
    a_stale_epoch_commits_nothing_even_when_every_version_matches,
    a_stale_epoch_is_refused_even_for_a_commit_of_events_only,
    a_stale_epoch_is_refused_even_for_a_commit_of_nothing,
    an_epoch_from_the_future_commits_nothing,
    a_right_epoch_with_a_wrong_journal_length_commits_nothing,
    a_right_epoch_with_a_wrong_row_version_commits_nothing,
    a_right_epoch_with_a_wrong_position_commits_nothing,
    a_shard_that_nobody_owned_is_at_epoch_0,
    one_stale_fence_among_many_refuses_the_commit,
    a_takeover_of_another_shard_fences_nobody_else,
    a_lease_that_ran_out_does_not_fence_before_a_takeover,
    a_takeover_fences_even_when_the_clock_jumps_back,
    a_fence_is_about_the_epoch_before_the_commit,
    nothing_is_stored_under_an_old_epoch_after_the_takeover,
);

const TEST_SHARD: ShardId = ShardId(7);
const LEASE_MS: u64 = 1_000;

/// Claims the shard and fails the check if the store does not grant the lease.
async fn expect_claim(
    world: &CheckContext<'_>,
    node: &str,
) -> Result<HeldLease, ConformanceFailure> {
    expect_some(
        "the lease",
        claim_shard(world.store(), TEST_SHARD, node, LEASE_MS).await?,
    )
}

/// Returns the leases of a first owner that has expired and of a second owner that took over.
async fn claim_and_take_over(
    world: &CheckContext<'_>,
) -> Result<[HeldLease; 2], ConformanceFailure> {
    let first = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS);
    Ok([first, expect_claim(world, "node").await?])
}

async fn read_lease_row(
    world: &CheckContext<'_>,
) -> Result<(ShardLeaseRow, u64), ConformanceFailure> {
    expect_some(
        "the row of the shard",
        world
            .read_record(RowKey(vec![TEST_SHARD.to_value()]))
            .await?,
    )
}

fn fenced_conflict(held: u64, given: ShardEpoch) -> CommitConflict {
    CommitConflict::Fenced {
        shard: TEST_SHARD,
        held: ShardEpoch(held),
        given,
    }
}

async fn a_free_shard_is_claimed_at_epoch_1(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    expect_same(
        "shard, epoch, end",
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

async fn a_shard_is_claimed_when_its_lease_ends(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().set(lease.until);
    expect_same(
        "the epoch",
        expect_claim(world, "other").await?.epoch,
        ShardEpoch(2),
    )
}

async fn a_claim_raises_the_epoch(world: &CheckContext<'_>) -> CheckResult {
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

async fn the_same_worker_name_twice_is_two_owners(world: &CheckContext<'_>) -> CheckResult {
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

async fn shards_are_claimed_one_by_one(world: &CheckContext<'_>) -> CheckResult {
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

async fn a_claim_that_cannot_be_stored_is_an_error_and_no_refusal(
    world: &CheckContext<'_>,
) -> CheckResult {
    let (table, column) = (ShardLeaseRow::TABLE.name, "node");
    let error = InvalidRequest::Value {
        table,
        column,
        reason: "text cannot hold U+0000",
    };
    expect_refused(
        claim_shard(world.store(), TEST_SHARD, "\0", LEASE_MS).await,
        error,
    )
}

async fn a_lease_that_is_renewed_outlives_its_first_end(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS - 1);
    let renewed = expect_some(
        "the renewed lease",
        renew_lease(world.store(), &lease, LEASE_MS).await?,
    )?;
    expect_same(
        "its end",
        renewed.until,
        timestamp_after_ms(2 * LEASE_MS - 1),
    )?;
    world.manual_clock().advance_ms(2);
    expect_same(
        "a claim by another",
        claim_shard(world.store(), TEST_SHARD, "other", LEASE_MS).await?,
        None,
    )
}

async fn renewal_survives_a_late_tick(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(10 * LEASE_MS);
    let renewed = expect_some(
        "the renewed lease",
        renew_lease(world.store(), &lease, LEASE_MS).await?,
    )?;
    expect_same(
        "epoch and end",
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
    expect_same("its end", renewed.until, lease.until)
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

async fn renewal_with_an_old_token_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    let [first, _] = claim_and_take_over(world).await?;
    let before = read_lease_row(world).await?;
    expect_same(
        "the renewal",
        renew_lease(world.store(), &first, 9 * LEASE_MS).await?,
        None,
    )?;
    expect_same("the row", read_lease_row(world).await?, before)
}

async fn renewal_with_a_token_from_before_the_last_renewal_changes_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn release_with_an_old_token_changes_nothing(world: &CheckContext<'_>) -> CheckResult {
    let [first, second] = claim_and_take_over(world).await?;
    let before = read_lease_row(world).await?;
    release_lease(world.store(), &first).await?;
    expect_same("the row", read_lease_row(world).await?, before)?;
    expect_same(
        "a claim by a third",
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

async fn a_released_shard_is_claimed_at_once(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    release_lease(world.store(), &lease).await?;
    expect_same(
        "the epoch of the next",
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

async fn racing_claims_of_a_free_shard_have_one_winner(world: &CheckContext<'_>) -> CheckResult {
    expect_one_claim(world, 1).await
}

async fn racing_claims_of_an_expired_lease_have_one_winner(
    world: &CheckContext<'_>,
) -> CheckResult {
    expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS);
    expect_one_claim(world, 2).await
}

async fn racing_renewal_and_claim_leave_one_owner(world: &CheckContext<'_>) -> CheckResult {
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

/// A commit with every kind of part, whose guards all hold on the state that [`prepare_store`]
/// creates.
fn commit_of_every_part(epoch: ShardEpoch) -> Commit {
    Commit::new()
        .fence_shard(TEST_SHARD, epoch)
        .append_journal(numbered_append(1, 2, 1))
        .update(&queued_job_row("known"), 1)
        .insert(&queued_job_row("new"))
        .advance_reader(reader_advance("r", RunEventReader::Projector, 0, 2))
        .append_events(step_events("r", 3, 3))
}

async fn prepare_store(world: &CheckContext<'_>) -> CheckResult {
    let ground = Commit::new()
        .append_journal(numbered_append(1, 0, 2))
        .insert(&queued_job_row("known"))
        .append_events(step_events("r", 1, 2));
    world.commit(ground).await?;
    Ok(())
}

/// Expects the commit to fail with this conflict and nothing of it to be stored.
async fn expect_nothing_stored(
    world: &CheckContext<'_>,
    commit: Commit,
    conflict: CommitConflict,
) -> CheckResult {
    let before = world.dump_store().await?;
    expect_refused(world.commit(commit).await, conflict)?;
    expect_same("what is stored", world.dump_store().await?, before)
}

async fn a_commit_under_the_right_epoch_is_stored(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let [_, second] = claim_and_take_over(world).await?;
    world.commit(commit_of_every_part(second.epoch)).await?;
    expect_same(
        "the last place",
        world.expect_head("r").await?.last_seq,
        run_sequence(3),
    )
}

async fn a_stale_epoch_commits_nothing_even_when_every_version_matches(
    world: &CheckContext<'_>,
) -> CheckResult {
    prepare_store(world).await?;
    let [first, _] = claim_and_take_over(world).await?;
    expect_nothing_stored(
        world,
        commit_of_every_part(first.epoch),
        fenced_conflict(2, first.epoch),
    )
    .await
}

async fn a_stale_epoch_is_refused_even_for_a_commit_of_events_only(
    world: &CheckContext<'_>,
) -> CheckResult {
    let [first, _] = claim_and_take_over(world).await?;
    let commit = Commit::new()
        .fence_shard(TEST_SHARD, first.epoch)
        .append_events(step_events("r", 1, 1));
    expect_nothing_stored(world, commit, fenced_conflict(2, first.epoch)).await
}

async fn a_stale_epoch_is_refused_even_for_a_commit_of_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
    let [first, _] = claim_and_take_over(world).await?;
    expect_nothing_stored(
        world,
        Commit::new().fence_shard(TEST_SHARD, first.epoch),
        fenced_conflict(2, first.epoch),
    )
    .await
}

async fn an_epoch_from_the_future_commits_nothing(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    claim_and_take_over(world).await?;
    for given in [ShardEpoch(3), ShardEpoch(u64::MAX)] {
        expect_nothing_stored(
            world,
            commit_of_every_part(given),
            fenced_conflict(2, given),
        )
        .await?;
    }
    Ok(())
}

async fn a_right_epoch_with_a_wrong_journal_length_commits_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
    prepare_store(world).await?;
    let [_, second] = claim_and_take_over(world).await?;
    for expected in [1, 3] {
        let mut commit = commit_of_every_part(second.epoch);
        commit.journals = vec![numbered_append(1, expected, 1)];
        let conflict = CommitConflict::JournalLength {
            execution: numbered_execution(1),
            expected,
            found: 2,
        };
        expect_nothing_stored(world, commit, conflict).await?;
    }
    Ok(())
}

async fn a_right_epoch_with_a_wrong_row_version_commits_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
    prepare_store(world).await?;
    let [_, second] = claim_and_take_over(world).await?;
    for expected in [0, 2] {
        let mut commit = commit_of_every_part(second.epoch);
        commit.changes = vec![crate::RowChange::update(&queued_job_row("known"), expected)];
        let key = fixtures::record_key(&queued_job_row("known"));
        let conflict = CommitConflict::RowVersion {
            table: "job_queue",
            key,
            expected,
            found: 1,
        };
        expect_nothing_stored(world, commit, conflict).await?;
    }
    Ok(())
}

async fn a_right_epoch_with_a_wrong_position_commits_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
    prepare_store(world).await?;
    let [_, second] = claim_and_take_over(world).await?;
    let mut commit = commit_of_every_part(second.epoch);
    commit.reader_advances = vec![reader_advance("r", RunEventReader::Projector, 1, 2)];
    let (reader, expected) = (RunEventReader::Projector, run_sequence(1));
    let conflict = CommitConflict::ReaderPosition {
        run: parse_id("r"),
        reader,
        expected,
        found: RunSeq::ZERO,
    };
    expect_nothing_stored(world, commit, conflict).await
}

async fn a_shard_that_nobody_owned_is_at_epoch_0(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(
            Commit::new()
                .fence_shard(TEST_SHARD, ShardEpoch::NONE)
                .insert(&queued_job_row("j")),
        )
        .await?;
    expect_nothing_stored(
        world,
        Commit::new()
            .fence_shard(TEST_SHARD, ShardEpoch(1))
            .insert(&queued_job_row("k")),
        fenced_conflict(0, ShardEpoch(1)),
    )
    .await
}

async fn one_stale_fence_among_many_refuses_the_commit(world: &CheckContext<'_>) -> CheckResult {
    let [first, _] = claim_and_take_over(world).await?;
    for place in 0..3 {
        let mut commit = Commit::new()
            .fence_shard(ShardId(1), ShardEpoch::NONE)
            .fence_shard(ShardId(2), ShardEpoch::NONE)
            .insert(&queued_job_row("j"));
        commit.fences.insert(
            place,
            crate::ShardFence {
                shard: TEST_SHARD,
                epoch: first.epoch,
            },
        );
        expect_nothing_stored(world, commit, fenced_conflict(2, first.epoch)).await?;
    }
    Ok(())
}

async fn a_takeover_of_another_shard_fences_nobody_else(world: &CheckContext<'_>) -> CheckResult {
    let other = expect_some(
        "the lease",
        claim_shard(world.store(), ShardId(1), "node", 1_000_000).await?,
    )?;
    claim_and_take_over(world).await?;
    world
        .commit(
            Commit::new()
                .fence_shard(ShardId(1), other.epoch)
                .insert(&queued_job_row("j")),
        )
        .await?;
    Ok(())
}

async fn a_lease_that_ran_out_does_not_fence_before_a_takeover(
    world: &CheckContext<'_>,
) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(100 * LEASE_MS);
    world
        .commit(
            Commit::new()
                .fence_shard(TEST_SHARD, lease.epoch)
                .insert(&queued_job_row("j")),
        )
        .await?;
    Ok(())
}

async fn a_takeover_fences_even_when_the_clock_jumps_back(world: &CheckContext<'_>) -> CheckResult {
    let [first, second] = claim_and_take_over(world).await?;
    world.manual_clock().set(timestamp_after_ms(0));
    expect_nothing_stored(
        world,
        Commit::new()
            .fence_shard(TEST_SHARD, first.epoch)
            .insert(&queued_job_row("j")),
        fenced_conflict(2, first.epoch),
    )
    .await?;
    world
        .commit(
            Commit::new()
                .fence_shard(TEST_SHARD, second.epoch)
                .insert(&queued_job_row("j")),
        )
        .await?;
    Ok(())
}

async fn a_fence_is_about_the_epoch_before_the_commit(world: &CheckContext<'_>) -> CheckResult {
    let lease = expect_claim(world, "node").await?;
    let next = ShardLeaseRow {
        epoch: ShardEpoch(2),
        ..read_lease_row(world).await?.0
    };
    let early = Commit::new()
        .fence_shard(TEST_SHARD, ShardEpoch(2))
        .update(&next, 1);
    expect_nothing_stored(world, early, fenced_conflict(1, ShardEpoch(2))).await?;
    world
        .commit(
            Commit::new()
                .fence_shard(TEST_SHARD, lease.epoch)
                .update(&next, 1),
        )
        .await?;
    expect_same(
        "the epoch",
        read_lease_row(world).await?.0.epoch,
        ShardEpoch(2),
    )
}

async fn nothing_is_stored_under_an_old_epoch_after_the_takeover(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let first = expect_claim(world, "node").await?;
    world.manual_clock().advance_ms(LEASE_MS);
    let zombie = async {
        let mut length = 0;
        while length < 200 {
            let commit = Commit::new()
                .fence_shard(TEST_SHARD, first.epoch)
                .append_journal(numbered_append(1, length, 1));
            match pair.first.commit(commit).await {
                Ok(_) => length += 1,
                Err(error) if error.kind() == StoreErrorKind::Retry => {}
                other => return expect_refused(other, fenced_conflict(2, first.epoch)),
            }
            yield_once().await;
        }
        Ok(())
    };
    let heir = async {
        for _ in 0..20 {
            yield_once().await;
        }
        for _ in 0..1_000 {
            if claim_shard(pair.second_handle(), TEST_SHARD, "heir", LEASE_MS)
                .await?
                .is_some()
            {
                return Ok(pair
                    .second_handle()
                    .read_journal(numbered_execution(1), 0, 999)
                    .await?);
            }
        }
        Err(ConformanceFailure::new("the shard cannot be taken over"))
    };
    let (zombie, found) = futures_util::future::join(zombie, heir).await;
    zombie?;
    expect_same(
        "the journal at the end",
        world.read_journal(numbered_execution(1), 0, 999).await?,
        found?,
    )
}
