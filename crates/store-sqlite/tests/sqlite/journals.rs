//! Journals share one table whose index is written in blocks, and their lengths are cached: callers
//! must not notice either.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_store::tables::ShardLeaseRow;
use onward_store::{
    Commit, CommitConflict, Error, InvalidRequest, JournalAppend, PurgeTarget, ShardEpoch, ShardId,
    Store,
};

use crate::Place;
use crate::groups::insert_invalid_status;

/// The chunks of a journal: for each, the sequence of its first event, its number of events and its
/// bytes.
type Parts = Vec<(u64, u32, Vec<u8>)>;

fn append(execution: ExecutionId, expected: u64, count: u32, records: &[u8]) -> Commit {
    Commit::new().append_journal(JournalAppend {
        execution,
        expected_length: expected,
        count,
        records: records.into(),
    })
}

fn length(parts: &Parts) -> u64 {
    parts.iter().map(|(_, count, _)| u64::from(*count)).sum()
}

async fn read(store: &dyn Store, execution: ExecutionId, from: u64, limit: usize) -> Parts {
    let chunks = store.read_journal(execution, from, limit).await.unwrap();
    chunks
        .into_iter()
        .map(|chunk| (chunk.first, chunk.count, chunk.records.to_vec()))
        .collect()
}

/// Reproducible pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

/// Two processes append to and purge the same journals, and each reads the data of both.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[tokio::test]
async fn concurrent_writers_and_readers_find_every_chunk_of_every_journal() {
    for seed in 0..3 {
        let place = Place::new();
        let stores = [place.open(), place.open()];
        let mut dice = Dice(seed);
        let mut written: BTreeMap<ExecutionId, Parts> = BTreeMap::new();
        for turn in 0..500_u32 {
            let store = &*stores[usize::try_from(dice.roll(2)).unwrap()];
            let execution = ExecutionId::from_bytes([u8::try_from(dice.roll(9)).unwrap(); 32]);
            let parts = written.entry(execution).or_default();
            let end = length(parts);
            match dice.roll(20) {
                0 => {
                    assert_eq!(
                        store
                            .purge(PurgeTarget::Execution(execution))
                            .await
                            .unwrap(),
                        !parts.is_empty()
                    );
                    parts.clear();
                }
                1 => {
                    let refused = store
                        .commit(append(execution, end + 1, 1, b"too far"))
                        .await
                        .unwrap_err();
                    let expected = CommitConflict::JournalLength {
                        execution,
                        expected: end + 1,
                        found: end,
                    };
                    assert_eq!(refused, Error::from(expected), "seed {seed}, turn {turn}");
                }
                _ => {
                    let count = 1 + u32::try_from(dice.roll(3)).unwrap();
                    let records = turn.to_le_bytes();
                    store
                        .commit(append(execution, end, count, &records))
                        .await
                        .unwrap();
                    parts.push((end, count, records.to_vec()));
                }
            }
            let end = length(parts);
            let (from, limit) = (
                dice.roll(end + 2),
                1 + usize::try_from(dice.roll(30)).unwrap(),
            );
            let expected = parts
                .iter()
                .filter(|(first, count, _)| first + u64::from(*count) > from)
                .take(limit);
            let found = read(
                &*stores[usize::try_from(dice.roll(2)).unwrap()],
                execution,
                from,
                limit,
            )
            .await;
            assert_eq!(
                found,
                expected.cloned().collect::<Parts>(),
                "seed {seed}, turn {turn}, from {from}"
            );
        }
        assert_eq!(
            stores[0].check_integrity().await.unwrap(),
            [""; 0],
            "seed {seed}"
        );
    }
}

#[tokio::test]
async fn a_takeover_by_another_process_fences_immediately() {
    let place = Place::new();
    let (old, new) = (place.open(), place.open());
    let lease = |epoch| ShardLeaseRow {
        shard: ShardId(3),
        node: "n".into(),
        node_id: "n".into(),
        epoch: ShardEpoch(epoch),
        lease_until: Timestamp::EPOCH,
    };
    let step = |number: u8, epoch| {
        append(ExecutionId::from_bytes([number; 32]), 0, 1, b"step")
            .fence_shard(ShardId(3), ShardEpoch(epoch))
    };
    old.commit(Commit::new().insert(&lease(1))).await.unwrap();
    old.commit(step(1, 1)).await.unwrap();
    new.commit(Commit::new().update(&lease(2), 1))
        .await
        .unwrap();
    let fenced = CommitConflict::Fenced {
        shard: ShardId(3),
        held: ShardEpoch(2),
        given: ShardEpoch(1),
    };
    assert_eq!(
        old.commit(step(2, 1)).await.unwrap_err(),
        Error::from(fenced)
    );
    new.commit(step(2, 2)).await.unwrap();
    // The same for a commit of the same process: its cached epoch is outdated.
    new.commit(Commit::new().update(&lease(3), 2))
        .await
        .unwrap();
    assert!(new.commit(step(3, 2)).await.is_err());
    new.commit(step(3, 3)).await.unwrap();
}

#[tokio::test]
async fn a_rejected_append_does_not_extend_a_journal() {
    let place = Place::new();
    let store = place.open();
    let execution = ExecutionId::from_bytes([7; 32]);
    store
        .commit(append(execution, 0, 2, b"begun"))
        .await
        .unwrap();
    let invalid = insert_invalid_status(1);
    let mut waiting = tokio::task::JoinSet::new();
    for number in 0..20_u8 {
        let (store, invalid) = (Arc::clone(&store), invalid.clone());
        let other = ExecutionId::from_bytes([100 + number; 32]);
        waiting.spawn(async move {
            let mut commit = append(execution, 2, 1, b"refused");
            commit.changes.extend(invalid.changes);
            let refused = store.commit(commit).await;
            assert!(
                matches!(
                    refused,
                    Err(Error::Invalid(InvalidRequest::RefusedByDatabase(_)))
                ),
                "{refused:?}"
            );
            store
                .commit(append(other, 0, 1, b"neighbour"))
                .await
                .unwrap();
        });
    }
    while let Some(done) = waiting.join_next().await {
        done.unwrap();
    }
    store
        .commit(append(execution, 2, 1, b"done"))
        .await
        .unwrap();
    assert_eq!(
        read(&*store, execution, 0, 9).await,
        [(0, 2, b"begun".to_vec()), (2, 1, b"done".to_vec())]
    );
}

#[tokio::test]
async fn duplicate_chunks_and_missing_index_entries_are_found() {
    let place = Place::new();
    let store = place.open();
    let execution = ExecutionId::from_bytes([7; 32]);
    for part in 0..70 {
        store
            .commit(append(execution, part, 1, b"part"))
            .await
            .unwrap();
    }
    assert_eq!(store.check_integrity().await.unwrap(), [""; 0]);
    let raw = place.raw();
    raw.execute_batch(
        "DROP TRIGGER journal_index_goes_with_what_it_points_at; DELETE FROM journal_index WHERE first_sequence = 5;
         INSERT INTO journal (journal_no, first_sequence, events, records) VALUES (1, 69, 1, x'00')",
    )
    .unwrap();
    let found = store.check_integrity().await.unwrap().join("\n");
    assert!(
        found.contains("the events at 6 of journal number 1 are missing from the index"),
        "{found}"
    );
    assert!(
        found.contains("the events from 69 on of journal number 1 are stored more than once"),
        "{found}"
    );
}
