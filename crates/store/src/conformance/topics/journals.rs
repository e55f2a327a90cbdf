//! Checks of journals: chunks of events that the store numbers and does not interpret.

use std::sync::Arc;

use super::prelude::*;
use crate::conformance::fixtures::numbered_execution;
use crate::{JournalAppend, JournalChunk};

super::checks!(Journals:
    a_journal_that_was_never_written_is_empty,
    a_journal_starts_with_event_0,
    a_chunk_is_read_as_it_was_appended,
    chunks_are_contiguous,
    the_first_append_must_expect_an_empty_journal,
    an_expected_length_that_is_too_small_is_rejected,
    an_expected_length_that_is_too_large_is_rejected,
    an_impossible_expected_length_is_rejected,
    the_same_append_twice_is_stored_once,
    a_chunk_without_events_is_rejected,
    a_chunk_beyond_the_largest_sequence_is_rejected,
    a_chunk_without_bytes_is_accepted,
    a_chunk_with_the_largest_event_count_is_accepted,
    the_bytes_of_a_chunk_are_stored_unchanged,
    journals_of_different_executions_are_separate,
    executions_that_differ_in_one_byte_have_separate_journals,
    one_commit_appends_to_many_journals,
    one_wrong_length_among_many_stores_nothing,
    two_appends_to_one_journal_in_one_commit_are_rejected,
    of_concurrent_appends_with_one_expected_length_exactly_one_succeeds,
    concurrent_writers_that_retry_lose_no_event,
    a_second_handle_reads_appended_events,
);

/// Appends of 2, 3, 1 and 4 events.
pub(super) fn four_appends() -> [JournalAppend; 4] {
    [
        numbered_append(1, 0, 2),
        numbered_append(1, 2, 3),
        numbered_append(1, 5, 1),
        numbered_append(1, 6, 4),
    ]
}

pub(super) async fn append_four_chunks(world: &CheckContext<'_>) -> CheckResult {
    for append in four_appends() {
        world.commit(Commit::new().append_journal(append)).await?;
    }
    Ok(())
}

/// Returns the sequence numbers of the first events of the chunks.
pub(super) async fn chunk_starts(
    world: &CheckContext<'_>,
    from: u64,
    limit: usize,
) -> Result<Vec<u64>, ConformanceFailure> {
    Ok(world
        .read_journal(numbered_execution(1), from, limit)
        .await?
        .iter()
        .map(|chunk| chunk.first)
        .collect())
}

pub(super) fn stored_chunk(append: &JournalAppend) -> JournalChunk {
    JournalChunk {
        first: append.expected_length,
        count: append.count,
        records: append.records.clone(),
    }
}

async fn read_chunks(
    world: &CheckContext<'_>,
    number: u8,
) -> Result<Vec<JournalChunk>, ConformanceFailure> {
    Ok(world
        .read_journal(numbered_execution(number), 0, 999)
        .await?)
}

fn length_conflict(expected: u64, found: u64) -> CommitConflict {
    CommitConflict::JournalLength {
        execution: numbered_execution(1),
        expected,
        found,
    }
}

async fn a_journal_that_was_never_written_is_empty(world: &CheckContext<'_>) -> CheckResult {
    expect_same("the chunks", read_chunks(world, 1).await?, Vec::new())
}

async fn a_journal_starts_with_event_0(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().append_journal(numbered_append(1, 0, 1)))
        .await?;
    expect_same(
        "the first sequences of the chunks",
        chunk_starts(world, 0, 9).await?,
        vec![0],
    )
}

async fn a_chunk_is_read_as_it_was_appended(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().append_journal(numbered_append(1, 0, 3)))
        .await?;
    expect_same(
        "the chunks",
        read_chunks(world, 1).await?,
        vec![stored_chunk(&numbered_append(1, 0, 3))],
    )
}

async fn chunks_are_contiguous(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    expect_same(
        "the chunks",
        read_chunks(world, 1).await?,
        four_appends().iter().map(stored_chunk).collect(),
    )
}

async fn the_first_append_must_expect_an_empty_journal(world: &CheckContext<'_>) -> CheckResult {
    expect_refused(
        world
            .commit(Commit::new().append_journal(numbered_append(1, 1, 1)))
            .await,
        length_conflict(1, 0),
    )?;
    expect_same("the chunks", read_chunks(world, 1).await?, Vec::new())
}

async fn an_expected_length_that_is_too_small_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    for expected in [0, 2, 5, 9] {
        expect_refused(
            world
                .commit(Commit::new().append_journal(numbered_append(1, expected, 1)))
                .await,
            length_conflict(expected, 10),
        )?;
    }
    expect_same(
        "the number of chunks",
        read_chunks(world, 1).await?.len(),
        4,
    )
}

async fn an_expected_length_that_is_too_large_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    expect_refused(
        world
            .commit(Commit::new().append_journal(numbered_append(1, 11, 1)))
            .await,
        length_conflict(11, 10),
    )?;
    expect_same(
        "the number of chunks",
        read_chunks(world, 1).await?.len(),
        4,
    )
}

async fn an_impossible_expected_length_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    for expected in [
        i64::MAX.cast_unsigned(),
        i64::MAX.cast_unsigned() + 11,
        u64::MAX - 1,
    ] {
        expect_refused(
            world
                .commit(Commit::new().append_journal(numbered_append(1, expected, 1)))
                .await,
            length_conflict(expected, 10),
        )?;
    }
    Ok(())
}

async fn the_same_append_twice_is_stored_once(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().append_journal(numbered_append(1, 0, 2)))
        .await?;
    expect_refused(
        world
            .commit(Commit::new().append_journal(numbered_append(1, 0, 2)))
            .await,
        length_conflict(0, 2),
    )?;
    expect_same(
        "the number of chunks",
        read_chunks(world, 1).await?.len(),
        1,
    )
}

async fn a_chunk_without_events_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    let kind = world
        .commit(Commit::new().append_journal(numbered_append(1, 0, 0)))
        .await
        .map_err(|error| error.kind());
    expect_same("the kind of the error", kind, Err(StoreErrorKind::Invalid))
}

async fn a_chunk_beyond_the_largest_sequence_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    let kind = world
        .commit(Commit::new().append_journal(numbered_append(1, u64::MAX, 1)))
        .await
        .map_err(|error| error.kind());
    expect_same("the kind of the error", kind, Err(StoreErrorKind::Invalid))
}

async fn a_chunk_without_bytes_is_accepted(world: &CheckContext<'_>) -> CheckResult {
    let empty = JournalAppend {
        records: Arc::from([].as_slice()),
        ..numbered_append(1, 0, 1)
    };
    world
        .commit(Commit::new().append_journal(empty.clone()))
        .await?;
    expect_same(
        "the chunks",
        read_chunks(world, 1).await?,
        vec![stored_chunk(&empty)],
    )
}

async fn a_chunk_with_the_largest_event_count_is_accepted(world: &CheckContext<'_>) -> CheckResult {
    let (large, next) = (
        numbered_append(1, 0, u32::MAX),
        numbered_append(1, u64::from(u32::MAX), 1),
    );
    world
        .commit(Commit::new().append_journal(large.clone()))
        .await?;
    world
        .commit(Commit::new().append_journal(next.clone()))
        .await?;
    expect_same(
        "the chunks",
        read_chunks(world, 1).await?,
        vec![stored_chunk(&large), stored_chunk(&next)],
    )?;
    expect_same(
        "from its last event",
        chunk_starts(world, u64::from(u32::MAX) - 1, 9).await?,
        vec![0, u64::from(u32::MAX)],
    )
}

async fn the_bytes_of_a_chunk_are_stored_unchanged(world: &CheckContext<'_>) -> CheckResult {
    let records: Vec<u8> = (0..=u8::MAX).chain((0..=u8::MAX).rev()).collect();
    let all = JournalAppend {
        records: Arc::from(records),
        ..numbered_append(1, 0, 1)
    };
    world
        .commit(Commit::new().append_journal(all.clone()))
        .await?;
    expect_same(
        "the chunks",
        read_chunks(world, 1).await?,
        vec![stored_chunk(&all)],
    )
}

async fn journals_of_different_executions_are_separate(world: &CheckContext<'_>) -> CheckResult {
    for appended in [
        numbered_append(1, 0, 2),
        numbered_append(2, 0, 5),
        numbered_append(1, 2, 1),
        numbered_append(2, 5, 1),
    ] {
        world.commit(Commit::new().append_journal(appended)).await?;
    }
    expect_same(
        "the first result",
        read_chunks(world, 1).await?,
        [numbered_append(1, 0, 2), numbered_append(1, 2, 1)]
            .iter()
            .map(stored_chunk)
            .collect(),
    )?;
    expect_same(
        "the second result",
        read_chunks(world, 2).await?,
        [numbered_append(2, 0, 5), numbered_append(2, 5, 1)]
            .iter()
            .map(stored_chunk)
            .collect(),
    )
}

async fn executions_that_differ_in_one_byte_have_separate_journals(
    world: &CheckContext<'_>,
) -> CheckResult {
    for place in 0..32 {
        let mut bytes = [7; 32];
        bytes[place] = 0;
        let execution = onward_journal::ExecutionId::from_bytes(bytes);
        world
            .commit(Commit::new().append_journal(JournalAppend {
                execution,
                ..numbered_append(1, 0, 1)
            }))
            .await?;
        expect_same(
            "the chunks",
            world.read_journal(execution, 0, 9).await?.len(),
            1,
        )?;
    }
    Ok(())
}

async fn one_commit_appends_to_many_journals(world: &CheckContext<'_>) -> CheckResult {
    world
        .commit(Commit::new().append_journal(numbered_append(2, 0, 1)))
        .await?;
    let many = [
        numbered_append(1, 0, 2),
        numbered_append(2, 1, 1),
        numbered_append(3, 0, 3),
    ];
    world
        .commit(
            many.iter()
                .cloned()
                .fold(Commit::new(), Commit::append_journal),
        )
        .await?;
    for number in 1..=3 {
        expect_same(
            "the last chunk",
            read_chunks(world, number).await?.pop(),
            Some(stored_chunk(&many[usize::from(number) - 1])),
        )?;
    }
    Ok(())
}

async fn one_wrong_length_among_many_stores_nothing(world: &CheckContext<'_>) -> CheckResult {
    for wrong in 1..=3 {
        let expected = |number: u8| u64::from(number == wrong);
        let many = (1..=3).map(|number| numbered_append(number, expected(number), 1));
        let conflict = CommitConflict::JournalLength {
            execution: numbered_execution(wrong),
            expected: 1,
            found: 0,
        };
        expect_refused(
            world
                .commit(many.fold(Commit::new(), Commit::append_journal))
                .await,
            conflict,
        )?;
    }
    expect_same(
        "the stored data",
        world.dump_store().await?.journals,
        Vec::new(),
    )
}

async fn two_appends_to_one_journal_in_one_commit_are_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
    let answer = world
        .commit(
            Commit::new()
                .append_journal(numbered_append(1, 0, 1))
                .append_journal(numbered_append(1, 1, 1)),
        )
        .await;
    expect_refused(
        answer,
        InvalidRequest::TouchedTwice(format!("the journal of {}", numbered_execution(1))),
    )?;
    expect_same("the chunks", read_chunks(world, 1).await?, Vec::new())
}

async fn of_concurrent_appends_with_one_expected_length_exactly_one_succeeds(
    world: &CheckContext<'_>,
) -> CheckResult {
    append_four_chunks(world).await?;
    let pair = world.open_handle_pair().await?;
    let saying = |nth: usize| JournalAppend {
        records: Arc::from(format!("{nth}").as_bytes()),
        ..numbered_append(1, 10, 1)
    };
    let answers = pair
        .race_calls(16, |store, nth| {
            store.commit(Commit::new().append_journal(saying(nth)))
        })
        .await;
    let winner = expect_some("a successful call", answers.iter().position(Result::is_ok))?;
    expect_same(
        "the last chunk",
        read_chunks(world, 1).await?.pop(),
        Some(stored_chunk(&saying(winner))),
    )?;
    for (_, answer) in answers
        .into_iter()
        .enumerate()
        .filter(|(nth, _)| *nth != winner)
    {
        expect_refused(answer, length_conflict(10, 11))?;
    }
    Ok(())
}

async fn concurrent_writers_that_retry_lose_no_event(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    let answers = pair
        .race_calls(8, |store, _| Box::pin(append_when_possible(store)))
        .await;
    answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let found = read_chunks(world, 1).await?;
    expect_same(
        "the first sequences of the chunks",
        found.iter().map(|chunk| chunk.first).collect(),
        (0..8).collect::<Vec<u64>>(),
    )
}

/// Reads the length and appends; retries if a concurrent append came first.
async fn append_when_possible(store: &(dyn Store + 'static)) -> Result<(), Error> {
    for _ in 0..1_000 {
        let length = store
            .read_journal(numbered_execution(1), 0, 999)
            .await?
            .len() as u64;
        match store
            .commit(Commit::new().append_journal(numbered_append(1, length, 1)))
            .await
        {
            Err(error) if error.kind() == StoreErrorKind::Conflict => {}
            answer => return answer.map(drop),
        }
    }
    Err(Error::corrupt("a writer is never the fastest"))
}

async fn a_second_handle_reads_appended_events(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for append in four_appends() {
        let expected = stored_chunk(&append);
        world
            .commit(Commit::new().append_journal(append.clone()))
            .await?;
        expect_same(
            "the last chunk",
            pair.second_handle()
                .read_journal(numbered_execution(1), append.expected_length, 9)
                .await?,
            vec![expected],
        )?;
    }
    Ok(())
}
