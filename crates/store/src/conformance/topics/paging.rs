//! Checks of reading a log page by page from a watermark.

use super::prelude::*;
use crate::StoreLimits;

super::checks!(Paging:
    events_are_returned_in_sequence_order,
    sequence_numbers_are_ordered_as_numbers,
    a_read_after_a_watermark_skips_earlier_events,
    a_page_has_at_most_limit_events,
    a_page_with_limit_0_is_empty,
    a_page_with_a_large_limit_returns_all_events,
    a_page_without_a_limit_is_capped_by_the_policy,
    the_default_page_has_1000_events,
    a_watermark_at_the_end_returns_nothing,
    a_watermark_beyond_the_end_returns_nothing,
    the_largest_watermark_returns_nothing,
    an_unknown_run_has_no_events,
    the_pages_of_a_log_add_up_to_the_whole_log,
    a_page_has_no_events_of_runs_with_similar_names,
    events_appended_between_pages_are_read_last,
    an_acknowledged_event_is_readable,
    reading_a_page_twice_returns_the_same_events,
);

async fn fill_run(world: &CheckContext<'_>, count: u32) -> CheckResult {
    world.append_events(step_events("r", 1, count)).await?;
    Ok(())
}

async fn events_are_returned_in_sequence_order(world: &CheckContext<'_>) -> CheckResult {
    world
        .append_events(vec![
            step_event("r", 5),
            step_event("r", 3),
            step_event("r", 9),
        ])
        .await?;
    let log = world.read_log("r").await?;
    expect_same(
        "the sequences",
        log.iter().map(|it| it.run_seq.as_u64()).collect(),
        vec![1, 2, 3],
    )?;
    let ids: Vec<_> = log.iter().map(|it| it.event.event_id).collect();
    expect_same(
        "the events",
        ids,
        [5, 3, 9]
            .map(|number| step_event("r", number).event_id)
            .to_vec(),
    )
}

async fn sequence_numbers_are_ordered_as_numbers(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 101).await?;
    expect_same(
        "after 8",
        world.read_sequences("r", 8, 3).await?,
        vec![9, 10, 11],
    )?;
    expect_same(
        "after 98",
        world.read_sequences("r", 98, 9).await?,
        vec![99, 100, 101],
    )
}

async fn a_read_after_a_watermark_skips_earlier_events(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 7).await?;
    for after in 0..=7 {
        expect_same(
            "the sequences",
            world.read_sequences("r", after, 99).await?,
            (after + 1..=7).collect(),
        )?;
    }
    Ok(())
}

async fn a_page_has_at_most_limit_events(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 7).await?;
    for limit in 1..=7 {
        expect_same(
            "the sequences",
            world.read_sequences("r", 0, limit).await?,
            (1..=limit as u64).collect(),
        )?;
    }
    expect_same(
        "after 2, at most 3",
        world.read_sequences("r", 2, 3).await?,
        vec![3, 4, 5],
    )
}

async fn a_page_with_limit_0_is_empty(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 2).await?;
    expect_same(
        "the sequences",
        world.read_sequences("r", 0, 0).await?,
        Vec::new(),
    )
}

async fn a_page_with_a_large_limit_returns_all_events(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 3).await?;
    expect_same(
        "the sequences",
        world.read_sequences("r", 0, 4).await?,
        vec![1, 2, 3],
    )
}

async fn a_page_without_a_limit_is_capped_by_the_policy(world: &CheckContext<'_>) -> CheckResult {
    let limits = StoreLimits {
        page_max: 5,
        ..StoreLimits::default()
    };
    let world = world
        .open_another(StorePolicy {
            limits,
            ..StorePolicy::default()
        })
        .await?;
    fill_run(&world, 8).await?;
    for limit in [6, 1_000, usize::MAX] {
        expect_same(
            "the sequences",
            world.read_sequences("r", 1, limit).await?,
            vec![2, 3, 4, 5, 6],
        )?;
    }
    Ok(())
}

async fn the_default_page_has_1000_events(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 1_001).await?;
    expect_same(
        "the count",
        world
            .fetch_events(&parse_id("r"), RunEventQuery::default())
            .await?
            .len(),
        1_000,
    )?;
    expect_same(
        "the rest",
        world
            .fetch_events(
                &parse_id("r"),
                RunEventQuery::starting_after(run_sequence(1_000)),
            )
            .await?
            .len(),
        1,
    )
}

async fn a_watermark_at_the_end_returns_nothing(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 3).await?;
    expect_same(
        "the sequences",
        world.read_sequences("r", 3, 9).await?,
        Vec::new(),
    )
}

async fn a_watermark_beyond_the_end_returns_nothing(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 3).await?;
    expect_same(
        "the sequences",
        world.read_sequences("r", 4_000_000_000, 9).await?,
        Vec::new(),
    )
}

async fn the_largest_watermark_returns_nothing(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 3).await?;
    let page = RunEventQuery {
        after: RunSeq::MAX,
        limit: usize::MAX,
    };
    expect_same(
        "the events",
        world.read_run_events(&parse_id("r"), page).await?,
        Vec::new(),
    )
}

async fn an_unknown_run_has_no_events(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 1).await?;
    expect_same(
        "the sequences",
        world.read_sequences("unknown", 0, 9).await?,
        Vec::new(),
    )?;
    expect_same(
        "the head",
        world.read_run_head(&parse_id("unknown")).await?,
        None,
    )
}

async fn the_pages_of_a_log_add_up_to_the_whole_log(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 23).await?;
    for limit in [1, 2, 7, 22, 23, 24] {
        let (mut after, mut all) = (0, Vec::new());
        while all.len() < 99 {
            let page = world.read_sequences("r", after, limit).await?;
            let Some(last) = page.last() else { break };
            after = *last;
            all.extend(page);
        }
        expect_same("the sequences", all, (1..=23).collect())?;
    }
    Ok(())
}

async fn a_page_has_no_events_of_runs_with_similar_names(world: &CheckContext<'_>) -> CheckResult {
    let names = ["r", "R", "r1", "r ", "r%", "r_", " r", "ŕ", "r\u{301}"];
    for name in names {
        world.append_event(step_event(name, 1)).await?;
    }
    for name in names {
        let runs: Vec<_> = world
            .read_log(name)
            .await?
            .iter()
            .map(|it| it.event.run_id.clone())
            .collect();
        expect_same("the runs in the log", runs, vec![parse_id(name)])?;
    }
    Ok(())
}

async fn events_appended_between_pages_are_read_last(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 4).await?;
    expect_same(
        "the first page",
        world.read_sequences("r", 0, 3).await?,
        vec![1, 2, 3],
    )?;
    world.append_events(step_events("r", 5, 6)).await?;
    expect_same(
        "the second page",
        world.read_sequences("r", 3, 9).await?,
        vec![4, 5, 6],
    )
}

async fn an_acknowledged_event_is_readable(world: &CheckContext<'_>) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    for number in 1..=20 {
        world.append_event(step_event("r", number)).await?;
        let page = RunEventQuery {
            after: run_sequence(u64::from(number) - 1),
            limit: 9,
        };
        let seen = pair
            .second_handle()
            .read_run_events(&parse_id("r"), page)
            .await?;
        let seen: Vec<_> = seen.into_iter().map(|record| record.event).collect();
        expect_same(
            "the rows that the second handle reads",
            seen,
            vec![step_event("r", number)],
        )?;
    }
    Ok(())
}

async fn reading_a_page_twice_returns_the_same_events(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 9).await?;
    let page = RunEventQuery {
        after: run_sequence(2),
        limit: 5,
    };
    let once = world.read_run_events(&parse_id("r"), page).await?;
    expect_same(
        "the page",
        world.read_run_events(&parse_id("r"), page).await?,
        once,
    )
}
