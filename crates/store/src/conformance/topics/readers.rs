//! How far readers have come in each run, and the lists of runs they work from.

use super::prelude::*;
use crate::conformance::sample::step;
use crate::{Limits, RunHead};

super::checks!(Readers:
    a_new_run_is_behind_for_every_reader,
    a_head_says_whose_run_it_is,
    a_reader_moves_forward,
    readers_move_without_each_other,
    both_readers_move_in_one_commit,
    a_reader_may_stay_where_it_is,
    a_reader_cannot_move_from_where_it_is_not,
    a_reader_cannot_move_backwards,
    a_reader_cannot_move_beyond_the_end,
    a_reader_cannot_move_in_a_run_that_is_not_there,
    a_reader_cannot_move_to_events_of_the_same_commit,
    a_move_and_new_events_of_one_run_are_both_stored,
    a_move_and_a_repeat_of_one_run_are_both_answered,
    a_position_moved_twice_in_one_commit_is_refused,
    only_runs_behind_are_listed,
    a_run_that_gets_an_event_is_behind_again,
    an_event_is_in_the_outbox_from_its_commit_on,
    runs_are_listed_in_the_order_of_their_bytes,
    a_list_goes_on_after_a_run,
    a_list_goes_on_after_a_run_that_is_not_there,
    a_list_holds_at_most_its_limit,
    a_list_is_cut_at_the_policy,
    a_list_of_runs_behind_is_not_cut_before_it_is_narrowed,
    pages_together_are_all_runs,
    a_head_in_a_list_is_the_head_of_the_run,
    racing_readers_move_once,
    racing_moves_and_appends_lose_nothing,
);

const BUS: Reader = Reader::EventBus;
const PROJECTOR: Reader = Reader::Projector;

async fn filled(world: &World<'_>, runs: &[&str]) -> Verdict {
    world.append_events(runs.iter().flat_map(|run| events(run, 1, 3)).collect()).await?;
    Ok(())
}

async fn moved(world: &World<'_>, reader: Reader, from: u64, to: u64) -> Result<crate::Receipt, Error> {
    world.commit(Commit::new().advance(step("r", reader, from, to))).await
}

async fn listed(
    world: &World<'_>,
    behind: Option<Reader>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, Failure> {
    let after = after.map(id);
    let heads = world.runs(behind, after.as_ref(), limit).await?;
    Ok(heads.iter().map(|head| head.run_id.to_string()).collect())
}

async fn positions(world: &World<'_>) -> Result<[u64; 2], Failure> {
    let head = world.head("r").await?;
    Ok([head.position(PROJECTOR).get(), head.position(BUS).get()])
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

async fn a_new_run_is_behind_for_every_reader(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    same("the positions", positions(world).await?, [0, 0])?;
    for reader in Reader::ALL {
        same("runs behind", listed(world, Some(reader), None, 9).await?, names(&["r"]))?;
    }
    Ok(())
}

async fn a_head_says_whose_run_it_is(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    let expected = RunHead {
        run_id: id("r"),
        tenant_id: id("acme"),
        project_id: id("shop"),
        environment_id: id("prod"),
        last_seq: seq(3),
        last_persisted_at: at(0),
        projected_seq: RunSeq::ZERO,
        delivered_seq: RunSeq::ZERO,
    };
    same("the head", world.head("r").await?, expected)
}

async fn a_reader_moves_forward(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    moved(world, PROJECTOR, 0, 1).await?;
    moved(world, PROJECTOR, 1, 3).await?;
    same("the positions", positions(world).await?, [3, 0])
}

async fn readers_move_without_each_other(world: &World<'_>) -> Verdict {
    filled(world, &["r", "s"]).await?;
    moved(world, BUS, 0, 2).await?;
    moved(world, PROJECTOR, 0, 1).await?;
    same("the positions", positions(world).await?, [1, 2])?;
    let other = world.head("s").await?;
    same("in the other run", (other.projected_seq, other.delivered_seq), (RunSeq::ZERO, RunSeq::ZERO))
}

async fn both_readers_move_in_one_commit(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    world.commit(Commit::new().advance(step("r", BUS, 0, 2)).advance(step("r", PROJECTOR, 0, 3))).await?;
    same("the positions", positions(world).await?, [3, 2])
}

async fn a_reader_may_stay_where_it_is(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    moved(world, BUS, 0, 0).await?;
    moved(world, BUS, 0, 2).await?;
    moved(world, BUS, 2, 2).await?;
    same("the positions", positions(world).await?, [0, 2])
}

async fn a_reader_cannot_move_from_where_it_is_not(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    moved(world, BUS, 0, 2).await?;
    for from in [0, 1, 3] {
        let conflict = Conflict::Position { run: id("r"), reader: BUS, expected: seq(from), found: seq(2) };
        refused(moved(world, BUS, from, 3).await, conflict)?;
    }
    same("the positions", positions(world).await?, [0, 2])
}

async fn a_reader_cannot_move_backwards(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    moved(world, BUS, 0, 2).await?;
    let error = Invalid::Move { run: id("r"), reader: BUS, from: seq(2), to: seq(1), last: seq(3) };
    refused(moved(world, BUS, 2, 1).await, error)?;
    same("the positions", positions(world).await?, [0, 2])
}

async fn a_reader_cannot_move_beyond_the_end(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    for to in [seq(4), RunSeq::MAX] {
        let error = Invalid::Move { run: id("r"), reader: BUS, from: seq(0), to, last: seq(3) };
        refused(moved(world, BUS, 0, to.get()).await, error)?;
    }
    same("the positions", positions(world).await?, [0, 0])
}

async fn a_reader_cannot_move_in_a_run_that_is_not_there(world: &World<'_>) -> Verdict {
    refused(moved(world, BUS, 0, 0).await, Invalid::NoSuchRun(id("r")))?;
    same("the head", world.run(&id("r")).await?, None)
}

async fn a_reader_cannot_move_to_events_of_the_same_commit(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    let error = Invalid::Move { run: id("r"), reader: BUS, from: seq(0), to: seq(4), last: seq(3) };
    let commit = Commit::new().events(events("r", 4, 4)).advance(step("r", BUS, 0, 4));
    refused(world.commit(commit).await, error)?;
    let commit = Commit::new().events(events("new", 1, 1)).advance(step("new", BUS, 0, 1));
    refused(world.commit(commit).await, Invalid::NoSuchRun(id("new")))
}

async fn a_move_and_new_events_of_one_run_are_both_stored(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    world.commit(Commit::new().events(events("r", 4, 5)).advance(step("r", BUS, 0, 3))).await?;
    same("the positions", positions(world).await?, [0, 3])?;
    same("the last place", world.head("r").await?.last_seq, seq(5))
}

async fn a_move_and_a_repeat_of_one_run_are_both_answered(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    let receipt = world.commit(Commit::new().events(events("r", 2, 2)).advance(step("r", BUS, 0, 3))).await?;
    same("places", receipt.events.iter().map(|it| it.result.run_seq).collect(), vec![seq(2)])?;
    same("the positions", positions(world).await?, [0, 3])?;
    same("the last place", world.head("r").await?.last_seq, seq(3))
}

async fn a_position_moved_twice_in_one_commit_is_refused(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    let twice = Commit::new().advance(step("r", BUS, 0, 1)).advance(step("r", BUS, 1, 2));
    refused(world.commit(twice).await, Invalid::Twice("the event bus of run r".to_owned()))?;
    same("the positions", positions(world).await?, [0, 0])
}

async fn only_runs_behind_are_listed(world: &World<'_>) -> Verdict {
    filled(world, &["q", "r", "s"]).await?;
    moved(world, BUS, 0, 3).await?;
    moved(world, PROJECTOR, 0, 2).await?;
    same("behind the bus", listed(world, Some(BUS), None, 9).await?, names(&["q", "s"]))?;
    same("behind the projector", listed(world, Some(PROJECTOR), None, 9).await?, names(&["q", "r", "s"]))?;
    same("all", listed(world, None, None, 9).await?, names(&["q", "r", "s"]))
}

async fn a_run_that_gets_an_event_is_behind_again(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    moved(world, BUS, 0, 3).await?;
    same("before", listed(world, Some(BUS), None, 9).await?, Vec::new())?;
    world.append_event(event("r", 4)).await?;
    same("after", listed(world, Some(BUS), None, 9).await?, names(&["r"]))?;
    same("the positions", positions(world).await?, [0, 3])
}

async fn an_event_is_in_the_outbox_from_its_commit_on(world: &World<'_>) -> Verdict {
    let pair = world.pair().await?;
    world.append_event(event("r", 1)).await?;
    let heads = pair.other().runs(Some(BUS), None, 9).await?;
    same("what the other handle has to deliver", heads.len(), 1)
}

async fn runs_are_listed_in_the_order_of_their_bytes(world: &World<'_>) -> Verdict {
    let ordered = [" ", "!", "10", "9", "A", "B", "Z", "_", "a", "aa", "b", "z", "~", "é", "中", "😀"];
    for name in ordered.iter().rev() {
        world.append_event(event(name, 1)).await?;
    }
    same("the runs", listed(world, None, None, 99).await?, names(&ordered))?;
    same("after Z", listed(world, None, Some("Z"), 3).await?, names(&["_", "a", "aa"]))
}

async fn a_list_goes_on_after_a_run(world: &World<'_>) -> Verdict {
    filled(world, &["q", "r", "s"]).await?;
    same("after q", listed(world, None, Some("q"), 9).await?, names(&["r", "s"]))?;
    same("after s", listed(world, Some(BUS), Some("s"), 9).await?, Vec::new())
}

async fn a_list_goes_on_after_a_run_that_is_not_there(world: &World<'_>) -> Verdict {
    filled(world, &["q", "s"]).await?;
    same("after r", listed(world, None, Some("r"), 9).await?, names(&["s"]))
}

async fn a_list_holds_at_most_its_limit(world: &World<'_>) -> Verdict {
    filled(world, &["q", "r", "s"]).await?;
    for (limit, expected) in [(0, vec![]), (1, vec!["q"]), (2, vec!["q", "r"]), (9, vec!["q", "r", "s"])] {
        same("the runs", listed(world, None, None, limit).await?, names(&expected))?;
    }
    Ok(())
}

async fn a_list_is_cut_at_the_policy(world: &World<'_>) -> Verdict {
    let limits = Limits { page_max: 2, ..Limits::default() };
    let world = world.fresh(Policy { limits, ..Policy::default() }).await?;
    filled(&world, &["q", "r", "s"]).await?;
    for limit in [3, usize::MAX] {
        same("the runs", listed(&world, Some(BUS), None, limit).await?, names(&["q", "r"]))?;
    }
    Ok(())
}

async fn a_list_of_runs_behind_is_not_cut_before_it_is_narrowed(world: &World<'_>) -> Verdict {
    let runs: Vec<String> = (10..30).map(|number| format!("r{number}")).collect();
    filled(world, &runs.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let delivered = runs[..18].iter().map(|run| step(run, BUS, 0, 3));
    world.commit(delivered.fold(Commit::new(), Commit::advance)).await?;
    same("the runs", listed(world, Some(BUS), None, 3).await?, names(&["r28", "r29"]))
}

async fn pages_together_are_all_runs(world: &World<'_>) -> Verdict {
    let runs: Vec<String> = (10..27).map(|number| format!("r{number}")).collect();
    filled(world, &runs.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for limit in [1, 4, 17] {
        let mut all: Vec<String> = Vec::new();
        while all.len() < 99 {
            let page = listed(world, Some(PROJECTOR), all.last().map(String::as_str), limit).await?;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        same("the runs", all, runs.clone())?;
    }
    Ok(())
}

async fn a_head_in_a_list_is_the_head_of_the_run(world: &World<'_>) -> Verdict {
    filled(world, &["q", "r"]).await?;
    moved(world, BUS, 0, 2).await?;
    let heads = world.runs(None, None, 9).await?;
    same("the heads", heads, vec![world.head("q").await?, world.head("r").await?])
}

async fn racing_readers_move_once(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    let pair = world.pair().await?;
    let answers = pair.race(16, |store, _| store.commit(Commit::new().advance(step("r", BUS, 0, 2)))).await;
    same("how many moved", answers.iter().filter(|answer| answer.is_ok()).count(), 1)?;
    for answer in answers.into_iter().filter(Result::is_err) {
        refused(answer, Conflict::Position { run: id("r"), reader: BUS, expected: seq(0), found: seq(2) })?;
    }
    Ok(())
}

async fn racing_moves_and_appends_lose_nothing(world: &World<'_>) -> Verdict {
    filled(world, &["r"]).await?;
    let pair = world.pair().await?;
    let part = |nth: usize| match nth {
        0 => Commit::new().advance(step("r", BUS, 0, 3)),
        1 => Commit::new().advance(step("r", PROJECTOR, 0, 2)),
        _ => Commit::new().events(events(
            "r",
            u32::try_from(nth).unwrap_or(0) + 10,
            u32::try_from(nth).unwrap_or(0) + 10,
        )),
    };
    for answer in pair.race(12, |store, nth| store.commit(part(nth))).await {
        answer?;
    }
    same("the positions", positions(world).await?, [2, 3])?;
    same("the places in the log", world.places("r", 0, 99).await?, (1..=13).collect())
}
