//! Checks of fenced commits and epochs. Each guard is tested while all others hold, so that no
//! guard hides another.

use super::leases::{
    LEASE_MS, TEST_SHARD, claim_and_take_over, expect_claim, fenced_conflict, read_lease_row,
};
use super::prelude::*;
use crate::conformance::check_context::yield_once;
use crate::conformance::fixtures::{self, numbered_execution, queued_job_row, reader_advance};
use crate::shard_lease::claim_shard;
use crate::tables::ShardLeaseRow;
use crate::{ShardEpoch, ShardId};

super::checks!(Fencing:
    a_commit_with_the_current_epoch_is_stored,
    a_stale_epoch_is_rejected_even_if_every_version_matches,
    a_stale_epoch_is_rejected_even_for_a_commit_with_only_events,
    a_stale_epoch_is_rejected_even_for_an_empty_commit,
    a_future_epoch_is_rejected,
    a_wrong_journal_length_is_rejected_despite_a_current_epoch,
    a_wrong_row_version_is_rejected_despite_a_current_epoch,
    a_wrong_reader_position_is_rejected_despite_a_current_epoch,
    a_shard_that_never_had_an_owner_is_at_epoch_0,
    one_stale_fence_among_many_rejects_the_commit,
    a_takeover_does_not_fence_owners_of_other_shards,
    an_expired_lease_does_not_fence_before_a_takeover,
    a_takeover_fences_even_if_the_clock_jumps_back,
    a_fence_is_compared_with_the_epoch_before_the_commit,
    commits_with_an_old_epoch_store_nothing_after_a_takeover,
);

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
    expect_same("the stored data", world.dump_store().await?, before)
}

async fn a_commit_with_the_current_epoch_is_stored(world: &CheckContext<'_>) -> CheckResult {
    prepare_store(world).await?;
    let [_, second] = claim_and_take_over(world).await?;
    world.commit(commit_of_every_part(second.epoch)).await?;
    expect_same(
        "the last sequence",
        world.expect_head("r").await?.last_seq,
        run_sequence(3),
    )
}

async fn a_stale_epoch_is_rejected_even_if_every_version_matches(
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

async fn a_stale_epoch_is_rejected_even_for_a_commit_with_only_events(
    world: &CheckContext<'_>,
) -> CheckResult {
    let [first, _] = claim_and_take_over(world).await?;
    let commit = Commit::new()
        .fence_shard(TEST_SHARD, first.epoch)
        .append_events(step_events("r", 1, 1));
    expect_nothing_stored(world, commit, fenced_conflict(2, first.epoch)).await
}

async fn a_stale_epoch_is_rejected_even_for_an_empty_commit(
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

async fn a_future_epoch_is_rejected(world: &CheckContext<'_>) -> CheckResult {
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

async fn a_wrong_journal_length_is_rejected_despite_a_current_epoch(
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

async fn a_wrong_row_version_is_rejected_despite_a_current_epoch(
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

async fn a_wrong_reader_position_is_rejected_despite_a_current_epoch(
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

async fn a_shard_that_never_had_an_owner_is_at_epoch_0(world: &CheckContext<'_>) -> CheckResult {
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

async fn one_stale_fence_among_many_rejects_the_commit(world: &CheckContext<'_>) -> CheckResult {
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

async fn a_takeover_does_not_fence_owners_of_other_shards(world: &CheckContext<'_>) -> CheckResult {
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

async fn an_expired_lease_does_not_fence_before_a_takeover(
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

async fn a_takeover_fences_even_if_the_clock_jumps_back(world: &CheckContext<'_>) -> CheckResult {
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

async fn a_fence_is_compared_with_the_epoch_before_the_commit(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn commits_with_an_old_epoch_store_nothing_after_a_takeover(
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
