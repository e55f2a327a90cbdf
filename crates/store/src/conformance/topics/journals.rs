//! Journals: chunks of events that the store numbers and never looks into.

use std::sync::Arc;

use super::prelude::*;
use crate::conformance::sample::execution;
use crate::{JournalAppend, JournalChunk, Limits};

super::checks!(Journals:
    a_journal_that_was_never_written_is_empty,
    a_journal_begins_with_event_0,
    a_chunk_is_read_as_it_was_appended,
    chunks_follow_each_other_without_gaps,
    a_journal_must_be_expected_to_begin_empty,
    too_small_an_expected_length_is_refused,
    too_large_an_expected_length_is_refused,
    an_impossible_expected_length_is_refused,
    the_same_append_twice_is_stored_once,
    a_chunk_of_no_events_is_refused,
    a_chunk_beyond_the_last_number_is_refused,
    a_chunk_may_hold_no_bytes,
    a_chunk_may_count_as_many_events_as_can_be_counted,
    bytes_come_back_as_they_are,
    a_journal_is_read_from_the_start_of_a_chunk,
    a_journal_is_read_from_the_middle_of_a_chunk,
    a_journal_is_read_from_the_last_event_of_a_chunk,
    reading_from_the_end_finds_nothing,
    reading_from_beyond_the_end_finds_nothing,
    a_limit_counts_chunks,
    reading_is_cut_at_the_policy,
    pages_together_are_the_whole_journal,
    journals_do_not_mix,
    executions_that_differ_in_one_byte_have_journals_of_their_own,
    one_commit_appends_to_many_journals,
    one_wrong_length_among_many_stores_nothing,
    a_journal_twice_in_one_commit_is_refused,
    racing_appends_of_one_length_have_one_winner,
    racing_writers_that_read_again_lose_nothing,
    the_other_handle_sees_what_was_appended,
);

fn chunk(append: &JournalAppend) -> JournalChunk {
    JournalChunk { first: append.expected, count: append.count, records: append.records.clone() }
}

/// Chunks of 2, 3, 1 and 4 events.
fn four() -> [JournalAppend; 4] {
    [append(1, 0, 2), append(1, 2, 3), append(1, 5, 1), append(1, 6, 4)]
}

async fn written(world: &World<'_>) -> Verdict {
    for append in four() {
        world.commit(Commit::new().journal(append)).await?;
    }
    Ok(())
}

/// The numbers of the first events of the chunks.
async fn firsts(world: &World<'_>, from: u64, limit: usize) -> Result<Vec<u64>, Failure> {
    Ok(world.journal(execution(1), from, limit).await?.iter().map(|chunk| chunk.first).collect())
}

async fn found(world: &World<'_>, number: u8) -> Result<Vec<JournalChunk>, Failure> {
    Ok(world.journal(execution(number), 0, 999).await?)
}

fn length(expected: u64, found: u64) -> Conflict {
    Conflict::JournalLength { execution: execution(1), expected, found }
}

async fn a_journal_that_was_never_written_is_empty(world: &World<'_>) -> Verdict {
    same("the chunks", found(world, 1).await?, Vec::new())
}

async fn a_journal_begins_with_event_0(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().journal(append(1, 0, 1))).await?;
    same("the first numbers", firsts(world, 0, 9).await?, vec![0])
}

async fn a_chunk_is_read_as_it_was_appended(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().journal(append(1, 0, 3))).await?;
    same("the chunks", found(world, 1).await?, vec![chunk(&append(1, 0, 3))])
}

async fn chunks_follow_each_other_without_gaps(world: &World<'_>) -> Verdict {
    written(world).await?;
    same("the chunks", found(world, 1).await?, four().iter().map(chunk).collect())
}

async fn a_journal_must_be_expected_to_begin_empty(world: &World<'_>) -> Verdict {
    refused(world.commit(Commit::new().journal(append(1, 1, 1))).await, length(1, 0))?;
    same("the chunks", found(world, 1).await?, Vec::new())
}

async fn too_small_an_expected_length_is_refused(world: &World<'_>) -> Verdict {
    written(world).await?;
    for expected in [0, 2, 5, 9] {
        refused(world.commit(Commit::new().journal(append(1, expected, 1))).await, length(expected, 10))?;
    }
    same("how many chunks there are", found(world, 1).await?.len(), 4)
}

async fn too_large_an_expected_length_is_refused(world: &World<'_>) -> Verdict {
    written(world).await?;
    refused(world.commit(Commit::new().journal(append(1, 11, 1))).await, length(11, 10))?;
    same("how many chunks there are", found(world, 1).await?.len(), 4)
}

async fn an_impossible_expected_length_is_refused(world: &World<'_>) -> Verdict {
    written(world).await?;
    for expected in [i64::MAX.cast_unsigned(), i64::MAX.cast_unsigned() + 11, u64::MAX - 1] {
        refused(world.commit(Commit::new().journal(append(1, expected, 1))).await, length(expected, 10))?;
    }
    Ok(())
}

async fn the_same_append_twice_is_stored_once(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().journal(append(1, 0, 2))).await?;
    refused(world.commit(Commit::new().journal(append(1, 0, 2))).await, length(0, 2))?;
    same("how many chunks there are", found(world, 1).await?.len(), 1)
}

async fn a_chunk_of_no_events_is_refused(world: &World<'_>) -> Verdict {
    let kind = world.commit(Commit::new().journal(append(1, 0, 0))).await.map_err(|error| error.kind());
    same("the kind of the error", kind, Err(Kind::Invalid))
}

async fn a_chunk_beyond_the_last_number_is_refused(world: &World<'_>) -> Verdict {
    let kind = world.commit(Commit::new().journal(append(1, u64::MAX, 1))).await.map_err(|error| error.kind());
    same("the kind of the error", kind, Err(Kind::Invalid))
}

async fn a_chunk_may_hold_no_bytes(world: &World<'_>) -> Verdict {
    let empty = JournalAppend { records: Arc::from([].as_slice()), ..append(1, 0, 1) };
    world.commit(Commit::new().journal(empty.clone())).await?;
    same("the chunks", found(world, 1).await?, vec![chunk(&empty)])
}

async fn a_chunk_may_count_as_many_events_as_can_be_counted(world: &World<'_>) -> Verdict {
    let (large, next) = (append(1, 0, u32::MAX), append(1, u64::from(u32::MAX), 1));
    world.commit(Commit::new().journal(large.clone())).await?;
    world.commit(Commit::new().journal(next.clone())).await?;
    same("the chunks", found(world, 1).await?, vec![chunk(&large), chunk(&next)])?;
    same("from its last event", firsts(world, u64::from(u32::MAX) - 1, 9).await?, vec![0, u64::from(u32::MAX)])
}

async fn bytes_come_back_as_they_are(world: &World<'_>) -> Verdict {
    let records: Vec<u8> = (0..=u8::MAX).chain((0..=u8::MAX).rev()).collect();
    let all = JournalAppend { records: Arc::from(records), ..append(1, 0, 1) };
    world.commit(Commit::new().journal(all.clone())).await?;
    same("the chunks", found(world, 1).await?, vec![chunk(&all)])
}

async fn a_journal_is_read_from_the_start_of_a_chunk(world: &World<'_>) -> Verdict {
    written(world).await?;
    for (from, expected) in [(0, vec![0, 2, 5, 6]), (2, vec![2, 5, 6]), (5, vec![5, 6]), (6, vec![6])] {
        same("the first numbers", firsts(world, from, 9).await?, expected)?;
    }
    Ok(())
}

async fn a_journal_is_read_from_the_middle_of_a_chunk(world: &World<'_>) -> Verdict {
    written(world).await?;
    for (from, expected) in [(1, vec![0, 2, 5, 6]), (3, vec![2, 5, 6]), (8, vec![6])] {
        same("the first numbers", firsts(world, from, 9).await?, expected)?;
    }
    same("the whole chunk", world.journal(execution(1), 8, 9).await?, vec![chunk(&append(1, 6, 4))])
}

async fn a_journal_is_read_from_the_last_event_of_a_chunk(world: &World<'_>) -> Verdict {
    written(world).await?;
    for (from, expected) in [(1, vec![0, 2, 5, 6]), (4, vec![2, 5, 6]), (9, vec![6])] {
        same("the first numbers", firsts(world, from, 9).await?, expected)?;
    }
    Ok(())
}

async fn reading_from_the_end_finds_nothing(world: &World<'_>) -> Verdict {
    written(world).await?;
    same("the first numbers", firsts(world, 10, 9).await?, Vec::new())
}

async fn reading_from_beyond_the_end_finds_nothing(world: &World<'_>) -> Verdict {
    written(world).await?;
    for from in [11, i64::MAX.cast_unsigned(), i64::MAX.cast_unsigned() + 1, u64::MAX] {
        same("the first numbers", firsts(world, from, 9).await?, Vec::new())?;
    }
    Ok(())
}

async fn a_limit_counts_chunks(world: &World<'_>) -> Verdict {
    written(world).await?;
    for (limit, expected) in [(0, vec![]), (1, vec![2]), (2, vec![2, 5]), (9, vec![2, 5, 6])] {
        same("the first numbers", firsts(world, 3, limit).await?, expected)?;
    }
    Ok(())
}

async fn reading_is_cut_at_the_policy(world: &World<'_>) -> Verdict {
    let limits = Limits { page_max: 2, ..Limits::default() };
    let world = world.fresh(Policy { limits, ..Policy::default() }).await?;
    written(&world).await?;
    for limit in [3, 1_000, usize::MAX] {
        same("the first numbers", firsts(&world, 2, limit).await?, vec![2, 5])?;
    }
    Ok(())
}

async fn pages_together_are_the_whole_journal(world: &World<'_>) -> Verdict {
    written(world).await?;
    for limit in 1..=5 {
        let (mut from, mut all) = (0, Vec::new());
        while all.len() < 9 {
            let page = world.journal(execution(1), from, limit).await?;
            let Some(last) = page.last() else { break };
            from = last.first + u64::from(last.count);
            all.extend(page);
        }
        same("the chunks", all, four().iter().map(chunk).collect())?;
    }
    Ok(())
}

async fn journals_do_not_mix(world: &World<'_>) -> Verdict {
    for appended in [append(1, 0, 2), append(2, 0, 5), append(1, 2, 1), append(2, 5, 1)] {
        world.commit(Commit::new().journal(appended)).await?;
    }
    same("the first", found(world, 1).await?, [append(1, 0, 2), append(1, 2, 1)].iter().map(chunk).collect())?;
    same("the second", found(world, 2).await?, [append(2, 0, 5), append(2, 5, 1)].iter().map(chunk).collect())
}

async fn executions_that_differ_in_one_byte_have_journals_of_their_own(world: &World<'_>) -> Verdict {
    for place in 0..32 {
        let mut bytes = [7; 32];
        bytes[place] = 0;
        let execution = onward_journal::ExecutionId::from_bytes(bytes);
        world.commit(Commit::new().journal(JournalAppend { execution, ..append(1, 0, 1) })).await?;
        same("the chunks", world.journal(execution, 0, 9).await?.len(), 1)?;
    }
    Ok(())
}

async fn one_commit_appends_to_many_journals(world: &World<'_>) -> Verdict {
    world.commit(Commit::new().journal(append(2, 0, 1))).await?;
    let many = [append(1, 0, 2), append(2, 1, 1), append(3, 0, 3)];
    world.commit(many.iter().cloned().fold(Commit::new(), Commit::journal)).await?;
    for number in 1..=3 {
        same("the last chunk", found(world, number).await?.pop(), Some(chunk(&many[usize::from(number) - 1])))?;
    }
    Ok(())
}

async fn one_wrong_length_among_many_stores_nothing(world: &World<'_>) -> Verdict {
    for wrong in 1..=3 {
        let expected = |number: u8| u64::from(number == wrong);
        let many = (1..=3).map(|number| append(number, expected(number), 1));
        let conflict = Conflict::JournalLength { execution: execution(wrong), expected: 1, found: 0 };
        refused(world.commit(many.fold(Commit::new(), Commit::journal)).await, conflict)?;
    }
    same("what is stored", world.dump().await?.journals, Vec::new())
}

async fn a_journal_twice_in_one_commit_is_refused(world: &World<'_>) -> Verdict {
    let answer = world.commit(Commit::new().journal(append(1, 0, 1)).journal(append(1, 1, 1))).await;
    refused(answer, Invalid::Twice(format!("the journal of {}", execution(1))))?;
    same("the chunks", found(world, 1).await?, Vec::new())
}

async fn racing_appends_of_one_length_have_one_winner(world: &World<'_>) -> Verdict {
    written(world).await?;
    let pair = world.pair().await?;
    let saying = |nth: usize| JournalAppend { records: Arc::from(format!("{nth}").as_bytes()), ..append(1, 10, 1) };
    let answers = pair.race(16, |store, nth| store.commit(Commit::new().journal(saying(nth)))).await;
    let winner = some("a winner", answers.iter().position(Result::is_ok))?;
    same("the last chunk", found(world, 1).await?.pop(), Some(chunk(&saying(winner))))?;
    for (_, answer) in answers.into_iter().enumerate().filter(|(nth, _)| *nth != winner) {
        refused(answer, length(10, 11))?;
    }
    Ok(())
}

async fn racing_writers_that_read_again_lose_nothing(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    let answers = pair.race(8, |store, _| Box::pin(append_when_possible(store))).await;
    answers.into_iter().collect::<Result<Vec<_>, _>>()?;
    let found = found(world, 1).await?;
    same("the first numbers", found.iter().map(|chunk| chunk.first).collect(), (0..8).collect::<Vec<u64>>())
}

/// Reads the length, appends, and starts again when another was faster.
async fn append_when_possible(store: &(dyn Store + 'static)) -> Result<(), Error> {
    for _ in 0..1_000 {
        let length = store.journal(execution(1), 0, 999).await?.len() as u64;
        match store.commit(Commit::new().journal(append(1, length, 1))).await {
            Err(error) if error.kind() == Kind::Conflict => {}
            answer => return answer.map(drop),
        }
    }
    Err(Error::corrupt("a writer is never the fastest"))
}

async fn the_other_handle_sees_what_was_appended(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for append in four() {
        let expected = chunk(&append);
        world.commit(Commit::new().journal(append.clone())).await?;
        same("the last chunk", pair.other().journal(execution(1), append.expected, 9).await?, vec![expected])?;
    }
    Ok(())
}
