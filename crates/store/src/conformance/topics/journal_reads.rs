//! Checks of journal reads: start positions, limits and pages.

use super::journals::{append_four_chunks, chunk_starts, four_appends, stored_chunk};
use super::prelude::*;
use crate::StoreLimits;
use crate::conformance::fixtures::numbered_execution;

super::checks!(Journals:
    a_journal_is_read_from_the_start_of_a_chunk,
    a_journal_is_read_from_the_middle_of_a_chunk,
    a_journal_is_read_from_the_last_event_of_a_chunk,
    reading_from_the_end_returns_nothing,
    reading_beyond_the_end_returns_nothing,
    a_limit_counts_chunks,
    a_journal_read_is_capped_by_the_policy,
    the_pages_of_a_journal_add_up_to_the_whole_journal,
    a_page_of_a_journal_is_limited_in_bytes,
    the_end_of_a_journal_is_its_last_chunk,
);

async fn a_page_of_a_journal_is_limited_in_bytes(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    let sizes = four_appends().map(|append| append.records.len());
    for (bytes, expected) in [
        (0, vec![0]),
        (sizes[0] + sizes[1] - 1, vec![0]),
        (sizes[0] + sizes[1], vec![0, 2]),
        (sizes.iter().sum::<usize>() - 1, vec![0, 2, 5]),
        (sizes.iter().sum(), vec![0, 2, 5, 6]),
    ] {
        let limits = StoreLimits {
            journal_page_bytes_max: bytes,
            ..StoreLimits::default()
        };
        let limited = world
            .open_another(StorePolicy {
                limits,
                ..StorePolicy::default()
            })
            .await?;
        append_four_chunks(&limited).await?;
        expect_same(
            "the first sequences of the chunks",
            chunk_starts(&limited, 0, 9).await?,
            expected,
        )?;
    }
    Ok(())
}

async fn the_end_of_a_journal_is_its_last_chunk(world: &CheckContext<'_>) -> CheckResult {
    let id = numbered_execution(1);
    expect_same("the end", world.read_journal_end(id).await?, None)?;
    for append in four_appends() {
        let chunk = stored_chunk(&append);
        world.commit(Commit::new().append_journal(append)).await?;
        expect_same("the end", world.read_journal_end(id).await?, Some(chunk))?;
    }
    expect_same(
        "the end of another journal",
        world.read_journal_end(numbered_execution(2)).await?,
        None,
    )
}

async fn a_journal_is_read_from_the_start_of_a_chunk(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    for (from, expected) in [
        (0, vec![0, 2, 5, 6]),
        (2, vec![2, 5, 6]),
        (5, vec![5, 6]),
        (6, vec![6]),
    ] {
        expect_same(
            "the first sequences of the chunks",
            chunk_starts(world, from, 9).await?,
            expected,
        )?;
    }
    Ok(())
}

async fn a_journal_is_read_from_the_middle_of_a_chunk(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    for (from, expected) in [(1, vec![0, 2, 5, 6]), (3, vec![2, 5, 6]), (8, vec![6])] {
        expect_same(
            "the first sequences of the chunks",
            chunk_starts(world, from, 9).await?,
            expected,
        )?;
    }
    expect_same(
        "the whole chunk",
        world.read_journal(numbered_execution(1), 8, 9).await?,
        vec![stored_chunk(&numbered_append(1, 6, 4))],
    )
}

async fn a_journal_is_read_from_the_last_event_of_a_chunk(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    for (from, expected) in [(1, vec![0, 2, 5, 6]), (4, vec![2, 5, 6]), (9, vec![6])] {
        expect_same(
            "the first sequences of the chunks",
            chunk_starts(world, from, 9).await?,
            expected,
        )?;
    }
    Ok(())
}

async fn reading_from_the_end_returns_nothing(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    expect_same(
        "the first sequences of the chunks",
        chunk_starts(world, 10, 9).await?,
        Vec::new(),
    )
}

async fn reading_beyond_the_end_returns_nothing(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    for from in [
        11,
        i64::MAX.cast_unsigned(),
        i64::MAX.cast_unsigned() + 1,
        u64::MAX,
    ] {
        expect_same(
            "the first sequences of the chunks",
            chunk_starts(world, from, 9).await?,
            Vec::new(),
        )?;
    }
    Ok(())
}

async fn a_limit_counts_chunks(world: &CheckContext<'_>) -> CheckResult {
    append_four_chunks(world).await?;
    for (limit, expected) in [
        (0, vec![]),
        (1, vec![2]),
        (2, vec![2, 5]),
        (9, vec![2, 5, 6]),
    ] {
        expect_same(
            "the first sequences of the chunks",
            chunk_starts(world, 3, limit).await?,
            expected,
        )?;
    }
    Ok(())
}

async fn a_journal_read_is_capped_by_the_policy(world: &CheckContext<'_>) -> CheckResult {
    let limits = StoreLimits {
        page_max: 2,
        ..StoreLimits::default()
    };
    let world = world
        .open_another(StorePolicy {
            limits,
            ..StorePolicy::default()
        })
        .await?;
    append_four_chunks(&world).await?;
    for limit in [3, 1_000, usize::MAX] {
        expect_same(
            "the first sequences of the chunks",
            chunk_starts(&world, 2, limit).await?,
            vec![2, 5],
        )?;
    }
    Ok(())
}

async fn the_pages_of_a_journal_add_up_to_the_whole_journal(
    world: &CheckContext<'_>,
) -> CheckResult {
    append_four_chunks(world).await?;
    for limit in 1..=5 {
        let (mut from, mut all) = (0, Vec::new());
        while all.len() < 9 {
            let page = world
                .read_journal(numbered_execution(1), from, limit)
                .await?;
            let Some(last) = page.last() else { break };
            from = last.first + u64::from(last.count);
            all.extend(page);
        }
        expect_same(
            "the chunks",
            all,
            four_appends().iter().map(stored_chunk).collect(),
        )?;
    }
    Ok(())
}
