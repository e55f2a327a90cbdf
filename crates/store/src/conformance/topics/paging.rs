//! Checks of reading a log page by page from a watermark.

use super::prelude::*;
use crate::StoreLimits;

super::checks!(Paging:
    events_come_in_the_order_of_their_places,
    the_tenth_event_comes_after_the_ninth,
    a_watermark_skips_what_was_read,
    a_page_holds_at_most_its_limit,
    a_page_of_none_is_empty,
    a_page_with_room_to_spare_holds_what_there_is,
    a_page_without_limit_is_cut_at_the_policy,
    the_usual_page_holds_a_thousand,
    a_watermark_at_the_end_finds_nothing,
    a_watermark_beyond_the_end_finds_nothing,
    the_last_possible_watermark_finds_nothing,
    an_unknown_run_has_no_events,
    pages_together_are_the_whole_log,
    a_page_holds_no_event_of_a_run_with_a_similar_name,
    what_is_appended_between_pages_is_read_at_the_end,
    an_event_is_readable_as_soon_as_it_is_acknowledged,
    the_same_page_is_the_same_twice,
);

async fn fill_run(world: &CheckContext<'_>, count: u32) -> CheckResult {
    world.append_events(step_events("r", 1, count)).await?;
    Ok(())
}

async fn events_come_in_the_order_of_their_places(world: &CheckContext<'_>) -> CheckResult {
    world
        .append_events(vec![
            step_event("r", 5),
            step_event("r", 3),
            step_event("r", 9),
        ])
        .await?;
    let log = world.read_log("r").await?;
    expect_same(
        "the places",
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

async fn the_tenth_event_comes_after_the_ninth(world: &CheckContext<'_>) -> CheckResult {
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

async fn a_watermark_skips_what_was_read(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 7).await?;
    for after in 0..=7 {
        expect_same(
            "the places",
            world.read_sequences("r", after, 99).await?,
            (after + 1..=7).collect(),
        )?;
    }
    Ok(())
}

async fn a_page_holds_at_most_its_limit(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 7).await?;
    for limit in 1..=7 {
        expect_same(
            "the places",
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

async fn a_page_of_none_is_empty(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 2).await?;
    expect_same(
        "the places",
        world.read_sequences("r", 0, 0).await?,
        Vec::new(),
    )
}

async fn a_page_with_room_to_spare_holds_what_there_is(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 3).await?;
    expect_same(
        "the places",
        world.read_sequences("r", 0, 4).await?,
        vec![1, 2, 3],
    )
}

async fn a_page_without_limit_is_cut_at_the_policy(world: &CheckContext<'_>) -> CheckResult {
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
            "the places",
            world.read_sequences("r", 1, limit).await?,
            vec![2, 3, 4, 5, 6],
        )?;
    }
    Ok(())
}

async fn the_usual_page_holds_a_thousand(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 1_001).await?;
    expect_same(
        "how many",
        world
            .fetch_events(&parse_id("r"), RunEventQuery::default())
            .await?
            .len(),
        1_000,
    )?;
    expect_same(
        "and then",
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

async fn a_watermark_at_the_end_finds_nothing(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 3).await?;
    expect_same(
        "the places",
        world.read_sequences("r", 3, 9).await?,
        Vec::new(),
    )
}

async fn a_watermark_beyond_the_end_finds_nothing(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 3).await?;
    expect_same(
        "the places",
        world.read_sequences("r", 4_000_000_000, 9).await?,
        Vec::new(),
    )
}

async fn the_last_possible_watermark_finds_nothing(world: &CheckContext<'_>) -> CheckResult {
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
        "the places",
        world.read_sequences("unknown", 0, 9).await?,
        Vec::new(),
    )?;
    expect_same(
        "the head",
        world.read_run_head(&parse_id("unknown")).await?,
        None,
    )
}

async fn pages_together_are_the_whole_log(world: &CheckContext<'_>) -> CheckResult {
    fill_run(world, 23).await?;
    for limit in [1, 2, 7, 22, 23, 24] {
        let (mut after, mut all) = (0, Vec::new());
        while all.len() < 99 {
            let page = world.read_sequences("r", after, limit).await?;
            let Some(last) = page.last() else { break };
            after = *last;
            all.extend(page);
        }
        expect_same("the places", all, (1..=23).collect())?;
    }
    Ok(())
}

async fn a_page_holds_no_event_of_a_run_with_a_similar_name(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn what_is_appended_between_pages_is_read_at_the_end(
    world: &CheckContext<'_>,
) -> CheckResult {
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

async fn an_event_is_readable_as_soon_as_it_is_acknowledged(
    world: &CheckContext<'_>,
) -> CheckResult {
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
            "what the other handle sees",
            seen,
            vec![step_event("r", number)],
        )?;
    }
    Ok(())
}

async fn the_same_page_is_the_same_twice(world: &CheckContext<'_>) -> CheckResult {
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
