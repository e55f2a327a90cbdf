//! Leases, epochs and who may still write. Every guard is tried with all others holding: none may hide another.

use onward_journal::Timestamp;

use super::prelude::*;
use crate::conformance::sample::{self, execution, job, step};
use crate::conformance::world::pause;
use crate::lease::{Lease, claim, release, renew};
use crate::tables::ShardLease;
use crate::{Epoch, Shard};

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

const SHARD: Shard = Shard(7);
const LEASE_MS: u64 = 1_000;

/// A lease that must be granted.
async fn claimed(world: &World<'_>, node: &str) -> Result<Lease, Failure> {
    some("the lease", claim(world.store(), SHARD, node, LEASE_MS).await?)
}

/// A first owner whose lease has run out, and the second who took over.
async fn taken_over(world: &World<'_>) -> Result<[Lease; 2], Failure> {
    let first = claimed(world, "node").await?;
    world.clock().advance_ms(LEASE_MS);
    Ok([first, claimed(world, "node").await?])
}

async fn row(world: &World<'_>) -> Result<(ShardLease, u64), Failure> {
    some("the row of the shard", world.get(Key(vec![SHARD.to_value()])).await?)
}

fn fenced(held: u64, given: Epoch) -> Conflict {
    Conflict::Fenced { shard: SHARD, held: Epoch(held), given }
}

async fn a_free_shard_is_claimed_at_epoch_1(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    same("shard, epoch, end", (lease.shard, lease.epoch, lease.until), (SHARD, Epoch(1), at(LEASE_MS)))?;
    let expected = ShardLease { lease_until: at(LEASE_MS), ..sample::lease(SHARD.0, 1) };
    same("the row", row(world).await?, (expected, 1))
}

async fn a_claimed_shard_is_not_claimed_again(world: &World<'_>) -> Verdict {
    claimed(world, "node").await?;
    same("the second claim", claim(world.store(), SHARD, "other", LEASE_MS).await?, None)
}

async fn a_shard_is_not_claimed_in_the_last_microsecond_of_its_lease(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    world.clock().set(Timestamp::from_micros(lease.until.as_micros() - 1).unwrap_or(lease.until));
    same("the second claim", claim(world.store(), SHARD, "other", LEASE_MS).await?, None)
}

async fn a_shard_is_claimed_when_its_lease_ends(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    world.clock().set(lease.until);
    same("the epoch", claimed(world, "other").await?.epoch, Epoch(2))
}

async fn a_claim_raises_the_epoch(world: &World<'_>) -> Verdict {
    for epoch in 1..=5 {
        same("the epoch", claimed(world, "node").await?.epoch, Epoch(epoch))?;
        world.clock().advance_ms(LEASE_MS);
    }
    Ok(())
}

async fn the_same_worker_name_twice_is_two_owners(world: &World<'_>) -> Verdict {
    let first = claimed(world, "node").await?;
    same("a claim under the same name", claim(world.store(), SHARD, "node", LEASE_MS).await?, None)?;
    world.clock().advance_ms(LEASE_MS);
    let second = claimed(world, "node").await?;
    differs("the epochs", first.epoch, second.epoch)?;
    let zombie = Commit::new().fence(SHARD, first.epoch).insert(&job("j"));
    refused(world.commit(zombie).await, fenced(2, first.epoch))?;
    same("the first owner's renewal", renew(world.store(), &first, LEASE_MS).await?, None)
}

async fn shards_are_claimed_one_by_one(world: &World<'_>) -> Verdict {
    for shard in [0, 1, u32::MAX] {
        let lease = claim(world.store(), Shard(shard), "node", LEASE_MS).await?;
        same("the epoch", lease.map(|lease| lease.epoch), Some(Epoch(1)))?;
    }
    Ok(())
}

async fn a_claim_that_cannot_be_stored_is_an_error_and_no_refusal(world: &World<'_>) -> Verdict {
    let (table, column) = (ShardLease::TABLE.name, "node");
    let error = Invalid::Value { table, column, reason: "text cannot hold U+0000" };
    refused(claim(world.store(), SHARD, "\0", LEASE_MS).await, error)
}

async fn a_lease_that_is_renewed_outlives_its_first_end(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    world.clock().advance_ms(LEASE_MS - 1);
    let renewed = some("the renewed lease", renew(world.store(), &lease, LEASE_MS).await?)?;
    same("its end", renewed.until, at(2 * LEASE_MS - 1))?;
    world.clock().advance_ms(2);
    same("a claim by another", claim(world.store(), SHARD, "other", LEASE_MS).await?, None)
}

async fn renewal_survives_a_late_tick(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    world.clock().advance_ms(10 * LEASE_MS);
    let renewed = some("the renewed lease", renew(world.store(), &lease, LEASE_MS).await?)?;
    same("epoch and end", (renewed.epoch, renewed.until), (Epoch(1), at(11 * LEASE_MS)))
}

async fn renewal_never_shortens_a_lease(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    world.clock().set(Timestamp::EPOCH);
    let renewed = some("the renewed lease", renew(world.store(), &lease, 1).await?)?;
    same("its end", renewed.until, lease.until)
}

async fn renewal_keeps_the_epoch(world: &World<'_>) -> Verdict {
    let mut lease = claimed(world, "node").await?;
    for _ in 0..5 {
        world.clock().advance_ms(LEASE_MS / 2);
        lease = some("the renewed lease", renew(world.store(), &lease, LEASE_MS).await?)?;
    }
    same("the epoch", row(world).await?.0.epoch, Epoch(1))?;
    world.commit(Commit::new().fence(SHARD, lease.epoch).insert(&job("j"))).await?;
    Ok(())
}

async fn renewal_with_an_old_token_changes_nothing(world: &World<'_>) -> Verdict {
    let [first, _] = taken_over(world).await?;
    let before = row(world).await?;
    same("the renewal", renew(world.store(), &first, 9 * LEASE_MS).await?, None)?;
    same("the row", row(world).await?, before)
}

async fn renewal_with_a_token_from_before_the_last_renewal_changes_nothing(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    some("the renewed lease", renew(world.store(), &lease, LEASE_MS).await?)?;
    let before = row(world).await?;
    same("the renewal", renew(world.store(), &lease, 9 * LEASE_MS).await?, None)?;
    same("the row", row(world).await?, before)
}

async fn release_with_an_old_token_changes_nothing(world: &World<'_>) -> Verdict {
    let [first, second] = taken_over(world).await?;
    let before = row(world).await?;
    release(world.store(), &first).await?;
    same("the row", row(world).await?, before)?;
    same("a claim by a third", claim(world.store(), SHARD, "third", LEASE_MS).await?, None)?;
    world.commit(Commit::new().fence(SHARD, second.epoch).insert(&job("j"))).await?;
    Ok(())
}

async fn a_released_shard_is_claimed_at_once(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    release(world.store(), &lease).await?;
    same("the epoch of the next", claimed(world, "other").await?.epoch, Epoch(2))
}

async fn a_released_lease_cannot_be_renewed(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    release(world.store(), &lease).await?;
    same("the renewal", renew(world.store(), &lease, LEASE_MS).await?, None)
}

/// Claims at once, and expects one winner with this epoch.
async fn one_winner(world: &World<'_>, epoch: u64) -> Verdict {
    let pair = world.pair().await?;
    let answers = pair.race(32, |store, _| Box::pin(claim(store, SHARD, "node", LEASE_MS))).await;
    let leases: Vec<Option<Lease>> = answers.into_iter().collect::<Result<_, _>>()?;
    let epochs: Vec<Epoch> = leases.into_iter().flatten().map(|lease| lease.epoch).collect();
    same("the epochs granted", epochs, vec![Epoch(epoch)])
}

async fn racing_claims_of_a_free_shard_have_one_winner(world: &World<'_>) -> Verdict {
    one_winner(world, 1).await
}

async fn racing_claims_of_an_expired_lease_have_one_winner(world: &World<'_>) -> Verdict {
    claimed(world, "node").await?;
    world.clock().advance_ms(LEASE_MS);
    one_winner(world, 2).await
}

async fn racing_renewal_and_claim_leave_one_owner(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let first = claimed(world, "node").await?;
    world.clock().advance_ms(LEASE_MS);
    let answers = pair
        .race(8, |store, nth| {
            let first = first.clone();
            Box::pin(async move {
                if nth == 0 {
                    renew(store, &first, LEASE_MS).await
                } else {
                    claim(store, SHARD, "other", LEASE_MS).await
                }
            })
        })
        .await;
    let leases: Vec<Option<Lease>> = answers.into_iter().collect::<Result<_, _>>()?;
    let granted: Vec<Epoch> = leases.into_iter().flatten().map(|lease| lease.epoch).collect();
    same("the epochs granted", granted, vec![row(world).await?.0.epoch])
}

/// A commit of every kind of part, whose guards all hold on the ground that [`grounded`] lays.
fn of_everything(epoch: Epoch) -> Commit {
    Commit::new()
        .fence(SHARD, epoch)
        .journal(append(1, 2, 1))
        .update(&job("known"), 1)
        .insert(&job("new"))
        .advance(step("r", Reader::Projector, 0, 2))
        .events(events("r", 3, 3))
}

async fn grounded(world: &World<'_>) -> Verdict {
    let ground = Commit::new().journal(append(1, 0, 2)).insert(&job("known")).events(events("r", 1, 2));
    world.commit(ground).await?;
    Ok(())
}

/// The commit is refused with this conflict, and nothing of it is stored.
async fn comes_to_nothing(world: &World<'_>, commit: Commit, conflict: Conflict) -> Verdict {
    let before = world.dump().await?;
    refused(world.commit(commit).await, conflict)?;
    same("what is stored", world.dump().await?, before)
}

async fn a_commit_under_the_right_epoch_is_stored(world: &World<'_>) -> Verdict {
    grounded(world).await?;
    let [_, second] = taken_over(world).await?;
    world.commit(of_everything(second.epoch)).await?;
    same("the last place", world.head("r").await?.last_seq, seq(3))
}

async fn a_stale_epoch_commits_nothing_even_when_every_version_matches(world: &World<'_>) -> Verdict {
    grounded(world).await?;
    let [first, _] = taken_over(world).await?;
    comes_to_nothing(world, of_everything(first.epoch), fenced(2, first.epoch)).await
}

async fn a_stale_epoch_is_refused_even_for_a_commit_of_events_only(world: &World<'_>) -> Verdict {
    let [first, _] = taken_over(world).await?;
    let commit = Commit::new().fence(SHARD, first.epoch).events(events("r", 1, 1));
    comes_to_nothing(world, commit, fenced(2, first.epoch)).await
}

async fn a_stale_epoch_is_refused_even_for_a_commit_of_nothing(world: &World<'_>) -> Verdict {
    let [first, _] = taken_over(world).await?;
    comes_to_nothing(world, Commit::new().fence(SHARD, first.epoch), fenced(2, first.epoch)).await
}

async fn an_epoch_from_the_future_commits_nothing(world: &World<'_>) -> Verdict {
    grounded(world).await?;
    taken_over(world).await?;
    for given in [Epoch(3), Epoch(u64::MAX)] {
        comes_to_nothing(world, of_everything(given), fenced(2, given)).await?;
    }
    Ok(())
}

async fn a_right_epoch_with_a_wrong_journal_length_commits_nothing(world: &World<'_>) -> Verdict {
    grounded(world).await?;
    let [_, second] = taken_over(world).await?;
    for expected in [1, 3] {
        let mut commit = of_everything(second.epoch);
        commit.journals = vec![append(1, expected, 1)];
        let conflict = Conflict::JournalLength { execution: execution(1), expected, found: 2 };
        comes_to_nothing(world, commit, conflict).await?;
    }
    Ok(())
}

async fn a_right_epoch_with_a_wrong_row_version_commits_nothing(world: &World<'_>) -> Verdict {
    grounded(world).await?;
    let [_, second] = taken_over(world).await?;
    for expected in [0, 2] {
        let mut commit = of_everything(second.epoch);
        commit.changes = vec![crate::Change::update(&job("known"), expected)];
        let key = sample::key_of(&job("known"));
        let conflict = Conflict::RowVersion { table: "job_queue", key, expected, found: 1 };
        comes_to_nothing(world, commit, conflict).await?;
    }
    Ok(())
}

async fn a_right_epoch_with_a_wrong_position_commits_nothing(world: &World<'_>) -> Verdict {
    grounded(world).await?;
    let [_, second] = taken_over(world).await?;
    let mut commit = of_everything(second.epoch);
    commit.moves = vec![step("r", Reader::Projector, 1, 2)];
    let (reader, expected) = (Reader::Projector, seq(1));
    let conflict = Conflict::Position { run: id("r"), reader, expected, found: RunSeq::ZERO };
    comes_to_nothing(world, commit, conflict).await
}

async fn a_shard_that_nobody_owned_is_at_epoch_0(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().fence(SHARD, Epoch::NONE).insert(&job("j"))).await?;
    comes_to_nothing(world, Commit::new().fence(SHARD, Epoch(1)).insert(&job("k")), fenced(0, Epoch(1))).await
}

async fn one_stale_fence_among_many_refuses_the_commit(world: &World<'_>) -> Verdict {
    let [first, _] = taken_over(world).await?;
    for place in 0..3 {
        let mut commit = Commit::new().fence(Shard(1), Epoch::NONE).fence(Shard(2), Epoch::NONE).insert(&job("j"));
        commit.fences.insert(place, crate::Fence { shard: SHARD, epoch: first.epoch });
        comes_to_nothing(world, commit, fenced(2, first.epoch)).await?;
    }
    Ok(())
}

async fn a_takeover_of_another_shard_fences_nobody_else(world: &World<'_>) -> Verdict {
    let other = some("the lease", claim(world.store(), Shard(1), "node", 1_000_000).await?)?;
    taken_over(world).await?;
    world.commit(Commit::new().fence(Shard(1), other.epoch).insert(&job("j"))).await?;
    Ok(())
}

async fn a_lease_that_ran_out_does_not_fence_before_a_takeover(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    world.clock().advance_ms(100 * LEASE_MS);
    world.commit(Commit::new().fence(SHARD, lease.epoch).insert(&job("j"))).await?;
    Ok(())
}

async fn a_takeover_fences_even_when_the_clock_jumps_back(world: &World<'_>) -> Verdict {
    let [first, second] = taken_over(world).await?;
    world.clock().set(at(0));
    comes_to_nothing(world, Commit::new().fence(SHARD, first.epoch).insert(&job("j")), fenced(2, first.epoch)).await?;
    world.commit(Commit::new().fence(SHARD, second.epoch).insert(&job("j"))).await?;
    Ok(())
}

async fn a_fence_is_about_the_epoch_before_the_commit(world: &World<'_>) -> Verdict {
    let lease = claimed(world, "node").await?;
    let next = ShardLease { epoch: Epoch(2), ..row(world).await?.0 };
    let early = Commit::new().fence(SHARD, Epoch(2)).update(&next, 1);
    comes_to_nothing(world, early, fenced(1, Epoch(2))).await?;
    world.commit(Commit::new().fence(SHARD, lease.epoch).update(&next, 1)).await?;
    same("the epoch", row(world).await?.0.epoch, Epoch(2))
}

async fn nothing_is_stored_under_an_old_epoch_after_the_takeover(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let first = claimed(world, "node").await?;
    world.clock().advance_ms(LEASE_MS);
    let zombie = async {
        let mut length = 0;
        while length < 200 {
            let commit = Commit::new().fence(SHARD, first.epoch).journal(append(1, length, 1));
            match pair.one.commit(commit).await {
                Ok(_) => length += 1,
                Err(error) if error.kind() == Kind::Retry => {}
                other => return refused(other, fenced(2, first.epoch)),
            }
            pause().await;
        }
        Ok(())
    };
    let heir = async {
        for _ in 0..20 {
            pause().await;
        }
        for _ in 0..1_000 {
            if claim(pair.other(), SHARD, "heir", LEASE_MS).await?.is_some() {
                return Ok(pair.other().journal(execution(1), 0, 999).await?);
            }
        }
        Err(Failure::new("the shard cannot be taken over"))
    };
    let (zombie, found) = futures_util::future::join(zombie, heir).await;
    zombie?;
    same("the journal at the end", world.journal(execution(1), 0, 999).await?, found?)
}
