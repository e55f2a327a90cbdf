//! Checks of the reader positions in each run, and of the lists of runs that readers work from.

use super::prelude::*;
use crate::conformance::fixtures::reader_advance;
use crate::{RunHead, StoreLimits};

super::checks!(Readers:
    every_reader_is_behind_in_a_new_run,
    a_head_has_the_scope_of_its_run,
    a_reader_advances,
    readers_advance_independently,
    both_readers_advance_in_one_commit,
    advancing_a_reader_to_its_own_position_is_accepted,
    advancing_a_reader_from_another_position_is_rejected,
    moving_a_reader_backwards_is_rejected,
    moving_a_reader_beyond_the_end_is_rejected,
    advancing_a_reader_of_a_missing_run_is_rejected,
    advancing_a_reader_to_events_of_the_same_commit_is_rejected,
    a_reader_advance_and_new_events_of_one_run_are_both_stored,
    a_reader_advance_and_a_duplicate_of_one_run_are_both_accepted,
    advancing_a_reader_twice_in_one_commit_is_rejected,
    only_runs_with_unread_events_are_listed,
    a_run_with_a_new_event_is_listed_again,
    an_event_is_in_the_outbox_as_soon_as_it_is_committed,
    runs_are_listed_in_byte_order,
    a_list_continues_after_a_run,
    a_list_continues_after_a_missing_run,
    a_list_has_at_most_limit_runs,
    a_list_is_capped_by_the_policy,
    the_limit_of_a_list_applies_after_its_filter,
    the_pages_of_a_list_add_up_to_all_runs,
    a_listed_head_equals_the_head_of_the_run,
    of_concurrent_reader_advances_exactly_one_succeeds,
    concurrent_reader_advances_and_appends_lose_nothing,
);

const EVENT_BUS: RunEventReader = RunEventReader::EventBus;
const PROJECTOR: RunEventReader = RunEventReader::Projector;

async fn fill_runs(world: &CheckContext<'_>, runs: &[&str]) -> CheckResult {
    world
        .append_events(runs.iter().flat_map(|run| step_events(run, 1, 3)).collect())
        .await?;
    Ok(())
}

async fn commit_advance(
    world: &CheckContext<'_>,
    reader: RunEventReader,
    from: u64,
    to: u64,
) -> Result<crate::CommitReceipt, Error> {
    world
        .commit(Commit::new().advance_reader(reader_advance("r", reader, from, to)))
        .await
}

async fn list_run_ids(
    world: &CheckContext<'_>,
    behind: Option<RunEventReader>,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, ConformanceFailure> {
    let after = after.map(parse_id);
    let heads = world.list_run_heads(behind, after.as_ref(), limit).await?;
    Ok(heads.iter().map(|head| head.run_id.to_string()).collect())
}

async fn reader_positions(world: &CheckContext<'_>) -> Result<[u64; 2], ConformanceFailure> {
    let head = world.expect_head("r").await?;
    Ok([
        head.reader_position(PROJECTOR).as_u64(),
        head.reader_position(EVENT_BUS).as_u64(),
    ])
}

fn owned_names(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

async fn every_reader_is_behind_in_a_new_run(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    expect_same("the positions", reader_positions(world).await?, [0, 0])?;
    for reader in RunEventReader::ALL {
        expect_same(
            "runs behind the reader",
            list_run_ids(world, Some(reader), None, 9).await?,
            owned_names(&["r"]),
        )?;
    }
    Ok(())
}

async fn a_head_has_the_scope_of_its_run(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    let expected = RunHead {
        run_id: parse_id("r"),
        tenant_id: parse_id("acme"),
        project_id: parse_id("shop"),
        environment_id: parse_id("prod"),
        last_seq: run_sequence(3),
        last_persisted_at: timestamp_after_ms(0),
        projected_seq: RunSeq::ZERO,
        delivered_seq: RunSeq::ZERO,
    };
    expect_same("the head", world.expect_head("r").await?, expected)
}

async fn a_reader_advances(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    commit_advance(world, PROJECTOR, 0, 1).await?;
    commit_advance(world, PROJECTOR, 1, 3).await?;
    expect_same("the positions", reader_positions(world).await?, [3, 0])
}

async fn readers_advance_independently(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r", "s"]).await?;
    commit_advance(world, EVENT_BUS, 0, 2).await?;
    commit_advance(world, PROJECTOR, 0, 1).await?;
    expect_same("the positions", reader_positions(world).await?, [1, 2])?;
    let other = world.expect_head("s").await?;
    expect_same(
        "the position in the other run",
        (other.projected_seq, other.delivered_seq),
        (RunSeq::ZERO, RunSeq::ZERO),
    )
}

async fn both_readers_advance_in_one_commit(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    world
        .commit(
            Commit::new()
                .advance_reader(reader_advance("r", EVENT_BUS, 0, 2))
                .advance_reader(reader_advance("r", PROJECTOR, 0, 3)),
        )
        .await?;
    expect_same("the positions", reader_positions(world).await?, [3, 2])
}

async fn advancing_a_reader_to_its_own_position_is_accepted(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    commit_advance(world, EVENT_BUS, 0, 0).await?;
    commit_advance(world, EVENT_BUS, 0, 2).await?;
    commit_advance(world, EVENT_BUS, 2, 2).await?;
    expect_same("the positions", reader_positions(world).await?, [0, 2])
}

async fn advancing_a_reader_from_another_position_is_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    commit_advance(world, EVENT_BUS, 0, 2).await?;
    for from in [0, 1, 3] {
        let conflict = CommitConflict::ReaderPosition {
            run: parse_id("r"),
            reader: EVENT_BUS,
            expected: run_sequence(from),
            found: run_sequence(2),
        };
        expect_refused(commit_advance(world, EVENT_BUS, from, 3).await, conflict)?;
    }
    expect_same("the positions", reader_positions(world).await?, [0, 2])
}

async fn moving_a_reader_backwards_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    commit_advance(world, EVENT_BUS, 0, 2).await?;
    let error = InvalidRequest::ReaderAdvance {
        run: parse_id("r"),
        reader: EVENT_BUS,
        from: run_sequence(2),
        to: run_sequence(1),
        last: run_sequence(3),
    };
    expect_refused(commit_advance(world, EVENT_BUS, 2, 1).await, error)?;
    expect_same("the positions", reader_positions(world).await?, [0, 2])
}

async fn moving_a_reader_beyond_the_end_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    for to in [run_sequence(4), RunSeq::MAX] {
        let error = InvalidRequest::ReaderAdvance {
            run: parse_id("r"),
            reader: EVENT_BUS,
            from: run_sequence(0),
            to,
            last: run_sequence(3),
        };
        expect_refused(
            commit_advance(world, EVENT_BUS, 0, to.as_u64()).await,
            error,
        )?;
    }
    expect_same("the positions", reader_positions(world).await?, [0, 0])
}

async fn advancing_a_reader_of_a_missing_run_is_rejected(world: &CheckContext<'_>) -> CheckResult {
    expect_refused(
        commit_advance(world, EVENT_BUS, 0, 0).await,
        InvalidRequest::NoSuchRun(parse_id("r")),
    )?;
    expect_same("the head", world.read_run_head(&parse_id("r")).await?, None)
}

async fn advancing_a_reader_to_events_of_the_same_commit_is_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    let error = InvalidRequest::ReaderAdvance {
        run: parse_id("r"),
        reader: EVENT_BUS,
        from: run_sequence(0),
        to: run_sequence(4),
        last: run_sequence(3),
    };
    let commit = Commit::new()
        .append_events(step_events("r", 4, 4))
        .advance_reader(reader_advance("r", EVENT_BUS, 0, 4));
    expect_refused(world.commit(commit).await, error)?;
    let commit = Commit::new()
        .append_events(step_events("new", 1, 1))
        .advance_reader(reader_advance("new", EVENT_BUS, 0, 1));
    expect_refused(
        world.commit(commit).await,
        InvalidRequest::NoSuchRun(parse_id("new")),
    )
}

async fn a_reader_advance_and_new_events_of_one_run_are_both_stored(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    world
        .commit(
            Commit::new()
                .append_events(step_events("r", 4, 5))
                .advance_reader(reader_advance("r", EVENT_BUS, 0, 3)),
        )
        .await?;
    expect_same("the positions", reader_positions(world).await?, [0, 3])?;
    expect_same(
        "the last sequence",
        world.expect_head("r").await?.last_seq,
        run_sequence(5),
    )
}

async fn a_reader_advance_and_a_duplicate_of_one_run_are_both_accepted(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    let receipt = world
        .commit(
            Commit::new()
                .append_events(step_events("r", 2, 2))
                .advance_reader(reader_advance("r", EVENT_BUS, 0, 3)),
        )
        .await?;
    expect_same(
        "sequences",
        receipt.events.iter().map(|it| it.result.run_seq).collect(),
        vec![run_sequence(2)],
    )?;
    expect_same("the positions", reader_positions(world).await?, [0, 3])?;
    expect_same(
        "the last sequence",
        world.expect_head("r").await?.last_seq,
        run_sequence(3),
    )
}

async fn advancing_a_reader_twice_in_one_commit_is_rejected(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    let twice = Commit::new()
        .advance_reader(reader_advance("r", EVENT_BUS, 0, 1))
        .advance_reader(reader_advance("r", EVENT_BUS, 1, 2));
    expect_refused(
        world.commit(twice).await,
        InvalidRequest::TouchedTwice("the event bus of run r".to_owned()),
    )?;
    expect_same("the positions", reader_positions(world).await?, [0, 0])
}

async fn only_runs_with_unread_events_are_listed(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["q", "r", "s"]).await?;
    commit_advance(world, EVENT_BUS, 0, 3).await?;
    commit_advance(world, PROJECTOR, 0, 2).await?;
    expect_same(
        "runs behind the event bus",
        list_run_ids(world, Some(EVENT_BUS), None, 9).await?,
        owned_names(&["q", "s"]),
    )?;
    expect_same(
        "runs behind the projector",
        list_run_ids(world, Some(PROJECTOR), None, 9).await?,
        owned_names(&["q", "r", "s"]),
    )?;
    expect_same(
        "all",
        list_run_ids(world, None, None, 9).await?,
        owned_names(&["q", "r", "s"]),
    )
}

async fn a_run_with_a_new_event_is_listed_again(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    commit_advance(world, EVENT_BUS, 0, 3).await?;
    expect_same(
        "before",
        list_run_ids(world, Some(EVENT_BUS), None, 9).await?,
        Vec::new(),
    )?;
    world.append_event(step_event("r", 4)).await?;
    expect_same(
        "after",
        list_run_ids(world, Some(EVENT_BUS), None, 9).await?,
        owned_names(&["r"]),
    )?;
    expect_same("the positions", reader_positions(world).await?, [0, 3])
}

async fn an_event_is_in_the_outbox_as_soon_as_it_is_committed(
    world: &CheckContext<'_>,
) -> CheckResult {
    let pair = world.open_handle_pair().await?;
    world.append_event(step_event("r", 1)).await?;
    let heads = pair
        .second_handle()
        .list_run_heads(Some(EVENT_BUS), None, 9)
        .await?;
    expect_same("the runs that the second handle lists", heads.len(), 1)
}

async fn runs_are_listed_in_byte_order(world: &CheckContext<'_>) -> CheckResult {
    let ordered = [
        " ", "!", "10", "9", "A", "B", "Z", "_", "a", "aa", "b", "z", "~", "é", "中", "😀",
    ];
    for name in ordered.iter().rev() {
        world.append_event(step_event(name, 1)).await?;
    }
    expect_same(
        "the runs",
        list_run_ids(world, None, None, 99).await?,
        owned_names(&ordered),
    )?;
    expect_same(
        "after Z",
        list_run_ids(world, None, Some("Z"), 3).await?,
        owned_names(&["_", "a", "aa"]),
    )
}

async fn a_list_continues_after_a_run(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["q", "r", "s"]).await?;
    expect_same(
        "after q",
        list_run_ids(world, None, Some("q"), 9).await?,
        owned_names(&["r", "s"]),
    )?;
    expect_same(
        "the runs after s",
        list_run_ids(world, Some(EVENT_BUS), Some("s"), 9).await?,
        Vec::new(),
    )
}

async fn a_list_continues_after_a_missing_run(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["q", "s"]).await?;
    expect_same(
        "after r",
        list_run_ids(world, None, Some("r"), 9).await?,
        owned_names(&["s"]),
    )
}

async fn a_list_has_at_most_limit_runs(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["q", "r", "s"]).await?;
    for (limit, expected) in [
        (0, vec![]),
        (1, vec!["q"]),
        (2, vec!["q", "r"]),
        (9, vec!["q", "r", "s"]),
    ] {
        expect_same(
            "the runs",
            list_run_ids(world, None, None, limit).await?,
            owned_names(&expected),
        )?;
    }
    Ok(())
}

async fn a_list_is_capped_by_the_policy(world: &CheckContext<'_>) -> CheckResult {
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
    fill_runs(&world, &["q", "r", "s"]).await?;
    for limit in [3, usize::MAX] {
        expect_same(
            "the runs",
            list_run_ids(&world, Some(EVENT_BUS), None, limit).await?,
            owned_names(&["q", "r"]),
        )?;
    }
    Ok(())
}

async fn the_limit_of_a_list_applies_after_its_filter(world: &CheckContext<'_>) -> CheckResult {
    let runs: Vec<String> = (10..30).map(|number| format!("r{number}")).collect();
    fill_runs(world, &runs.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let delivered = runs[..18]
        .iter()
        .map(|run| reader_advance(run, EVENT_BUS, 0, 3));
    world
        .commit(delivered.fold(Commit::new(), Commit::advance_reader))
        .await?;
    expect_same(
        "the runs",
        list_run_ids(world, Some(EVENT_BUS), None, 3).await?,
        owned_names(&["r28", "r29"]),
    )
}

async fn the_pages_of_a_list_add_up_to_all_runs(world: &CheckContext<'_>) -> CheckResult {
    let runs: Vec<String> = (10..27).map(|number| format!("r{number}")).collect();
    fill_runs(world, &runs.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    for limit in [1, 4, 17] {
        let mut all: Vec<String> = Vec::new();
        while all.len() < 99 {
            let page = list_run_ids(
                world,
                Some(PROJECTOR),
                all.last().map(String::as_str),
                limit,
            )
            .await?;
            if page.is_empty() {
                break;
            }
            all.extend(page);
        }
        expect_same("the runs", all, runs.clone())?;
    }
    Ok(())
}

async fn a_listed_head_equals_the_head_of_the_run(world: &CheckContext<'_>) -> CheckResult {
    fill_runs(world, &["q", "r"]).await?;
    commit_advance(world, EVENT_BUS, 0, 2).await?;
    let heads = world.list_run_heads(None, None, 9).await?;
    expect_same(
        "the heads",
        heads,
        vec![world.expect_head("q").await?, world.expect_head("r").await?],
    )
}

async fn of_concurrent_reader_advances_exactly_one_succeeds(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    let pair = world.open_handle_pair().await?;
    let answers = pair
        .race_calls(16, |store, _| {
            store.commit(Commit::new().advance_reader(reader_advance("r", EVENT_BUS, 0, 2)))
        })
        .await;
    expect_same(
        "the number of successful advances",
        answers.iter().filter(|answer| answer.is_ok()).count(),
        1,
    )?;
    for answer in answers.into_iter().filter(Result::is_err) {
        expect_refused(
            answer,
            CommitConflict::ReaderPosition {
                run: parse_id("r"),
                reader: EVENT_BUS,
                expected: run_sequence(0),
                found: run_sequence(2),
            },
        )?;
    }
    Ok(())
}

async fn concurrent_reader_advances_and_appends_lose_nothing(
    world: &CheckContext<'_>,
) -> CheckResult {
    fill_runs(world, &["r"]).await?;
    let pair = world.open_handle_pair().await?;
    let part = |nth: usize| match nth {
        0 => Commit::new().advance_reader(reader_advance("r", EVENT_BUS, 0, 3)),
        1 => Commit::new().advance_reader(reader_advance("r", PROJECTOR, 0, 2)),
        _ => Commit::new().append_events(step_events(
            "r",
            u32::try_from(nth).unwrap_or(0) + 10,
            u32::try_from(nth).unwrap_or(0) + 10,
        )),
    };
    for answer in pair
        .race_calls(12, |store, nth| store.commit(part(nth)))
        .await
    {
        answer?;
    }
    expect_same("the positions", reader_positions(world).await?, [2, 3])?;
    expect_same(
        "the sequences in the log",
        world.read_sequences("r", 0, 99).await?,
        (1..=13).collect(),
    )
}
