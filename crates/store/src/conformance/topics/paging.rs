//! Reading a log page by page, by a watermark.

use super::prelude::*;
use crate::Limits;

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

async fn filled(world: &World<'_>, count: u32) -> Verdict {
    world.append_events(events("r", 1, count)).await?;
    Ok(())
}

async fn events_come_in_the_order_of_their_places(world: &World<'_>) -> Verdict {
    world.append_events(vec![event("r", 5), event("r", 3), event("r", 9)]).await?;
    let log = world.log("r").await?;
    same("the places", log.iter().map(|it| it.run_seq.get()).collect(), vec![1, 2, 3])?;
    let ids: Vec<_> = log.iter().map(|it| it.event.event_id).collect();
    same("the events", ids, [5, 3, 9].map(|number| event("r", number).event_id).to_vec())
}

async fn the_tenth_event_comes_after_the_ninth(world: &World<'_>) -> Verdict {
    filled(world, 101).await?;
    same("after 8", world.places("r", 8, 3).await?, vec![9, 10, 11])?;
    same("after 98", world.places("r", 98, 9).await?, vec![99, 100, 101])
}

async fn a_watermark_skips_what_was_read(world: &World<'_>) -> Verdict {
    filled(world, 7).await?;
    for after in 0..=7 {
        same("the places", world.places("r", after, 99).await?, (after + 1..=7).collect())?;
    }
    Ok(())
}

async fn a_page_holds_at_most_its_limit(world: &World<'_>) -> Verdict {
    filled(world, 7).await?;
    for limit in 1..=7 {
        same("the places", world.places("r", 0, limit).await?, (1..=limit as u64).collect())?;
    }
    same("after 2, at most 3", world.places("r", 2, 3).await?, vec![3, 4, 5])
}

async fn a_page_of_none_is_empty(world: &World<'_>) -> Verdict {
    filled(world, 2).await?;
    same("the places", world.places("r", 0, 0).await?, Vec::new())
}

async fn a_page_with_room_to_spare_holds_what_there_is(world: &World<'_>) -> Verdict {
    filled(world, 3).await?;
    same("the places", world.places("r", 0, 4).await?, vec![1, 2, 3])
}

async fn a_page_without_limit_is_cut_at_the_policy(world: &World<'_>) -> Verdict {
    let limits = Limits { page_max: 5, ..Limits::default() };
    let world = world.fresh(Policy { limits, ..Policy::default() }).await?;
    filled(&world, 8).await?;
    for limit in [6, 1_000, usize::MAX] {
        same("the places", world.places("r", 1, limit).await?, vec![2, 3, 4, 5, 6])?;
    }
    Ok(())
}

async fn the_usual_page_holds_a_thousand(world: &World<'_>) -> Verdict {
    filled(world, 1_001).await?;
    same("how many", world.fetch_events(&id("r"), Page::default()).await?.len(), 1_000)?;
    same("and then", world.fetch_events(&id("r"), Page::after(seq(1_000))).await?.len(), 1)
}

async fn a_watermark_at_the_end_finds_nothing(world: &World<'_>) -> Verdict {
    filled(world, 3).await?;
    same("the places", world.places("r", 3, 9).await?, Vec::new())
}

async fn a_watermark_beyond_the_end_finds_nothing(world: &World<'_>) -> Verdict {
    filled(world, 3).await?;
    same("the places", world.places("r", 4_000_000_000, 9).await?, Vec::new())
}

async fn the_last_possible_watermark_finds_nothing(world: &World<'_>) -> Verdict {
    filled(world, 3).await?;
    let page = Page { after: RunSeq::MAX, limit: usize::MAX };
    same("the events", world.run_events(&id("r"), page).await?, Vec::new())
}

async fn an_unknown_run_has_no_events(world: &World<'_>) -> Verdict {
    filled(world, 1).await?;
    same("the places", world.places("unknown", 0, 9).await?, Vec::new())?;
    same("the head", world.run(&id("unknown")).await?, None)
}

async fn pages_together_are_the_whole_log(world: &World<'_>) -> Verdict {
    filled(world, 23).await?;
    for limit in [1, 2, 7, 22, 23, 24] {
        let (mut after, mut all) = (0, Vec::new());
        while all.len() < 99 {
            let page = world.places("r", after, limit).await?;
            let Some(last) = page.last() else { break };
            after = *last;
            all.extend(page);
        }
        same("the places", all, (1..=23).collect())?;
    }
    Ok(())
}

async fn a_page_holds_no_event_of_a_run_with_a_similar_name(world: &World<'_>) -> Verdict {
    let names = ["r", "R", "r1", "r ", "r%", "r_", " r", "ŕ", "r\u{301}"];
    for name in names {
        world.append_event(event(name, 1)).await?;
    }
    for name in names {
        let runs: Vec<_> = world.log(name).await?.iter().map(|it| it.event.run_id.clone()).collect();
        same("the runs in the log", runs, vec![id(name)])?;
    }
    Ok(())
}

async fn what_is_appended_between_pages_is_read_at_the_end(world: &World<'_>) -> Verdict {
    filled(world, 4).await?;
    same("the first page", world.places("r", 0, 3).await?, vec![1, 2, 3])?;
    world.append_events(events("r", 5, 6)).await?;
    same("the second page", world.places("r", 3, 9).await?, vec![4, 5, 6])
}

async fn an_event_is_readable_as_soon_as_it_is_acknowledged(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    for number in 1..=20 {
        world.append_event(event("r", number)).await?;
        let page = Page { after: seq(u64::from(number) - 1), limit: 9 };
        let seen = pair.other().run_events(&id("r"), page).await?;
        let seen: Vec<_> = seen.into_iter().map(|record| record.event).collect();
        same("what the other handle sees", seen, vec![event("r", number)])?;
    }
    Ok(())
}

async fn the_same_page_is_the_same_twice(world: &World<'_>) -> Verdict {
    filled(world, 9).await?;
    let page = Page { after: seq(2), limit: 5 };
    let once = world.run_events(&id("r"), page).await?;
    same("the page", world.run_events(&id("r"), page).await?, once)
}
