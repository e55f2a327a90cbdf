//! Whose clock says what: the producer's is kept to the letter, the store's never runs backwards within a run.

use onward_journal::Timestamp;
use onward_runs::EmittedAt;

use super::prelude::*;

super::checks!(Stamps:
    the_time_of_the_store_is_that_of_its_clock,
    an_event_is_stamped_by_the_clock_of_the_store,
    a_stamp_is_exact_to_the_microsecond,
    the_stamp_in_the_answer_is_the_stamp_in_the_log,
    all_events_of_a_commit_have_one_stamp,
    stamps_follow_the_clock,
    a_stamp_never_goes_back_when_the_clock_does,
    stamps_go_on_when_the_clock_has_caught_up,
    one_run_ahead_of_the_clock_leaves_others_alone,
    the_head_shows_the_last_stamp,
    the_first_and_the_last_instant_can_be_stamped,
    what_the_producer_says_is_kept_to_the_letter,
    what_the_producer_says_may_be_far_away,
    what_the_producer_says_stamps_nothing,
);

async fn stamp(world: &World<'_>, run: &str, number: u32) -> Result<Timestamp, Failure> {
    Ok(world.append_event(event(run, number)).await?.result.persisted_at)
}

async fn stamps(world: &World<'_>, run: &str) -> Result<Vec<Timestamp>, Failure> {
    Ok(world.log(run).await?.iter().map(|record| record.persisted_at).collect())
}

async fn the_time_of_the_store_is_that_of_its_clock(world: &World<'_>) -> Verdict {
    for time in [at(0), at(1), Timestamp::EPOCH, Timestamp::MIN, Timestamp::MAX] {
        world.clock().set(time);
        same("the time", world.now().await?, time)?;
    }
    Ok(())
}

async fn an_event_is_stamped_by_the_clock_of_the_store(world: &World<'_>) -> Verdict {
    world.clock().set(at(77));
    same("the stamp", stamp(world, "r", 1).await?, at(77))
}

async fn a_stamp_is_exact_to_the_microsecond(world: &World<'_>) -> Verdict {
    let odd = Timestamp::from_micros(1_767_225_600_999_999).unwrap_or(at(0));
    world.clock().set(odd);
    same("the stamp", stamp(world, "r", 1).await?, odd)?;
    same("the stamps in the log", stamps(world, "r").await?, vec![odd])
}

async fn the_stamp_in_the_answer_is_the_stamp_in_the_log(world: &World<'_>) -> Verdict {
    let mut said = Vec::new();
    for number in 1..=3 {
        said.push(stamp(world, "r", number).await?);
        world.clock().advance_ms(13);
    }
    same("the stamps in the log", stamps(world, "r").await?, said)
}

async fn all_events_of_a_commit_have_one_stamp(world: &World<'_>) -> Verdict {
    let batch = events("r", 1, 3).into_iter().chain(events("s", 1, 2)).collect();
    world.append_events(batch).await?;
    same("in the first run", stamps(world, "r").await?, vec![at(0); 3])?;
    same("in the second run", stamps(world, "s").await?, vec![at(0); 2])
}

async fn stamps_follow_the_clock(world: &World<'_>) -> Verdict {
    for (number, ms) in [(1, 0), (2, 5), (3, 5), (4, 60_000)] {
        world.clock().set(at(ms));
        same("the stamp", stamp(world, "r", number).await?, at(ms))?;
    }
    Ok(())
}

async fn a_stamp_never_goes_back_when_the_clock_does(world: &World<'_>) -> Verdict {
    world.clock().set(at(5_000));
    stamp(world, "r", 1).await?;
    world.clock().set(at(1_000));
    same("the next stamp", stamp(world, "r", 2).await?, at(5_000))?;
    world.clock().set(Timestamp::EPOCH);
    same("the one after", stamp(world, "r", 3).await?, at(5_000))?;
    same("the stamps in the log", stamps(world, "r").await?, vec![at(5_000); 3])
}

async fn stamps_go_on_when_the_clock_has_caught_up(world: &World<'_>) -> Verdict {
    world.clock().set(at(5_000));
    stamp(world, "r", 1).await?;
    for (number, ms, expected) in [(2, 4_000, 5_000), (3, 5_001, 5_001)] {
        world.clock().set(at(ms));
        same("the stamp", stamp(world, "r", number).await?, at(expected))?;
    }
    Ok(())
}

async fn one_run_ahead_of_the_clock_leaves_others_alone(world: &World<'_>) -> Verdict {
    world.clock().set(at(5_000));
    stamp(world, "r", 1).await?;
    stamp(world, "s", 1).await?;
    world.clock().set(at(1_000));
    same("a new run", stamp(world, "t", 1).await?, at(1_000))?;
    let answers = world.append_events(vec![event("u", 1), event("s", 2)]).await?;
    let said: Vec<_> = answers.iter().map(|answer| answer.result.persisted_at).collect();
    same("a new run and an old one in a commit", said, vec![at(1_000), at(5_000)])
}

async fn the_head_shows_the_last_stamp(world: &World<'_>) -> Verdict {
    for (number, ms, expected) in [(1, 10, 10), (2, 30, 30), (3, 20, 30)] {
        world.clock().set(at(ms));
        stamp(world, "r", number).await?;
        same("the stamp of the head", world.head("r").await?.last_persisted_at, at(expected))?;
    }
    Ok(())
}

async fn the_first_and_the_last_instant_can_be_stamped(world: &World<'_>) -> Verdict {
    for (run, time) in [("r", Timestamp::MIN), ("s", Timestamp::MAX)] {
        world.clock().set(time);
        stamp(world, run, 1).await?;
        same("the stamps in the log", stamps(world, run).await?, vec![time])?;
        same("the stamp of the head", world.head(run).await?.last_persisted_at, time)?;
    }
    Ok(())
}

/// The event as it was emitted at this instant, in these letters.
fn emitted(number: u32, text: &str) -> RunEventWrite {
    RunEventWrite { emitted_at: id(text), ..event("r", number) }
}

async fn what_the_producer_says_is_kept_to_the_letter(world: &World<'_>) -> Verdict {
    let texts = [
        "2026-03-01T12:00:00Z",
        "2026-03-01t12:00:00z",
        "2026-03-01T12:00:00+00:00",
        "2026-03-01T12:00:00.0Z",
        "2026-03-01T12:00:00.100Z",
        "2026-03-01T12:00:00.123456789Z",
        "2026-03-01T12:00:00.000000001+00:00",
    ];
    world.append_events((1..).zip(texts).map(|(number, text)| emitted(number, text)).collect()).await?;
    let log = world.log("r").await?;
    let kept: Vec<&str> = log.iter().map(|record| record.event.emitted_at.as_str()).collect();
    same("the texts in the log", kept, texts.to_vec())
}

async fn what_the_producer_says_may_be_far_away(world: &World<'_>) -> Verdict {
    let instants = [Timestamp::MIN, Timestamp::EPOCH, Timestamp::MAX].map(EmittedAt::from);
    let events = (1..).zip(&instants).map(|(number, at)| emitted(number, at.as_str()));
    world.append_events(events.collect()).await?;
    let kept: Vec<EmittedAt> = world.log("r").await?.into_iter().map(|record| record.event.emitted_at).collect();
    same("the instants in the log", kept, instants.to_vec())
}

async fn what_the_producer_says_stamps_nothing(world: &World<'_>) -> Verdict {
    let answers =
        world.append_events(vec![emitted(1, "2999-01-01T00:00:00Z"), emitted(2, "1999-01-01T00:00:00Z")]).await?;
    let said: Vec<Timestamp> = answers.iter().map(|answer| answer.result.persisted_at).collect();
    same("the stamps", said, vec![at(0), at(0)])
}
