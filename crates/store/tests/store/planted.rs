//! Every planted bug is caught, and by the check that is about it.

use onward_store::Commit;
use onward_store::conformance::differential::run_differential;
use onward_store::conformance::{self, MemoryStoreFactory};

use crate::flawed::{Faultless, Flaw, Planted, events as e, reads as r, writes as w};

type Plant = fn() -> Box<dyn Flaw>;

/// A bug, and the check that is about it.
const PLANTED: &[(Plant, &str)] = &[
    (
        || Box::new(w::IgnoresFences),
        "a_stale_epoch_commits_nothing_even_when_every_version_matches",
    ),
    (
        || Box::new(w::LetsFutureEpochsPass),
        "an_epoch_from_the_future_commits_nothing",
    ),
    (
        || Box::new(w::IgnoresJournalLength),
        "a_right_epoch_with_a_wrong_journal_length_commits_nothing",
    ),
    (
        || Box::new(w::AmendsAllColumns),
        "an_amendment_leaves_what_others_changed_alone",
    ),
    (
        || Box::new(w::IgnoresVersions),
        "a_right_epoch_with_a_wrong_row_version_commits_nothing",
    ),
    (
        || Box::new(w::IgnoresPositions),
        "a_right_epoch_with_a_wrong_position_commits_nothing",
    ),
    (
        || Box::new(w::OnlyPretendsToRemove),
        "rows_of_job_queue_are_gone_after_a_removal",
    ),
    (
        || Box::new(w::RemovesOnlyTheFirstVersion),
        "a_row_is_removed_whatever_its_version",
    ),
    (
        || Box::new(w::LosesRemovalsAmongOthers),
        "the_rest_of_a_commit_goes_on_beside_removals",
    ),
    (
        || Box::new(w::RefusesToRemoveNothing),
        "removing_what_is_absent_changes_nothing_and_is_no_conflict",
    ),
    (
        || Box::new(w::StoresPart(only_changes)),
        "wrong_position_beside_update_leaves_nothing",
    ),
    (
        || Box::new(w::StoresPart(only_journals)),
        "not_unique_beside_journal_leaves_nothing",
    ),
    (
        || Box::new(w::StoresPart(only_moves)),
        "foreign_run_beside_move_leaves_nothing",
    ),
    (
        || Box::new(w::StoresPart(only_events)),
        "stale_fence_beside_event_of_new_run_leaves_nothing",
    ),
    (
        || Box::new(w::StoresPart(first_events)),
        "foreign_run_after_event_of_known_run_leaves_nothing",
    ),
    (
        || Box::new(w::WritesTwice),
        "stale_update_beside_event_of_known_run_leaves_nothing",
    ),
    (
        || Box::new(w::IgnoresUniqueColumns),
        "rows_of_inbox_are_unique_in_execution_id_and_dedup_key",
    ),
    (
        || Box::new(w::KeepsByKeyOnly),
        "racing_starts_under_other_ids_make_one_execution",
    ),
    (
        || Box::new(w::OverwritesWhatShouldBeKept),
        "insert_or_keep_keeps_the_row_with_its_key",
    ),
    (
        || Box::<w::ReusesSerials>::default(),
        "a_serial_is_not_repeated_when_the_last_row_is_deleted",
    ),
    (
        || Box::new(w::LetsReadersGoBack),
        "a_reader_cannot_move_backwards",
    ),
    (
        || Box::new(w::StopsReadersAtTheEnd),
        "a_reader_cannot_move_beyond_the_end",
    ),
    (
        || Box::new(w::CutsInstants),
        "the_first_and_the_last_instant_are_kept_in_rows",
    ),
    (
        || Box::new(w::TrimsText),
        "text_that_looks_alike_is_different_in_keys",
    ),
    (
        || Box::new(w::DeletesInCascade),
        "deleting_the_row_of_an_execution_deletes_nothing_else",
    ),
    (
        || Box::new(w::OnlyPretendsToPurge),
        "purging_a_run_removes_its_events_its_head_and_its_snapshot",
    ),
    (
        || Box::new(w::PurgesByPrefix),
        "purging_a_run_leaves_runs_with_similar_names",
    ),
    (
        || Box::new(w::PurgesOnlyTheRow),
        "purging_an_execution_removes_all_that_is_its_own",
    ),
    (
        || Box::<e::KeepsTheSecondPayload>::default(),
        KEEPS_THE_FIRST,
    ),
    (
        || Box::new(e::LeavesAGap),
        "a_hundred_single_appends_are_numbered_in_their_order",
    ),
    (
        || Box::new(e::DeniesRepeats),
        "a_repeat_is_answered_with_the_first_answer",
    ),
    (
        || Box::new(e::HidesDifferences),
        "every_differing_repeat_is_reported",
    ),
    (
        || Box::new(e::ComparesPayloadsByTheirText),
        "members_in_another_order_do_not_differ",
    ),
    (
        || Box::<e::TakesKeysOfOtherRunsForRepeats>::default(),
        OTHER_RUN,
    ),
    (
        || Box::new(e::SharesEventIds),
        "an_event_id_belongs_to_one_event_of_all_runs",
    ),
    (
        || Box::new(e::CrossesTenants),
        "an_event_of_another_tenant_is_refused",
    ),
    (
        || Box::new(e::CrossesTenants),
        "a_repeat_by_another_tenant_is_refused_and_told_nothing",
    ),
    (
        || Box::new(e::LooksForForeignEventsFirst),
        "the_first_event_that_does_not_fit_is_the_answer",
    ),
    (
        || Box::<e::StampsBackwards>::default(),
        "a_stamp_never_goes_back_when_the_clock_does",
    ),
    (
        || Box::new(e::BelievesTheProducersClock),
        "what_the_producer_says_stamps_nothing",
    ),
    (
        || Box::new(e::ParsesPayloads),
        "an_integer_beyond_64_bits_is_kept_in_a_payload",
    ),
    (
        || Box::new(e::DropsUnknownMembers),
        "unknown_members_are_kept",
    ),
    (
        || Box::new(e::RewritesEmittedAt),
        "what_the_producer_says_is_kept_to_the_letter",
    ),
    (
        || Box::new(e::ReversesPages),
        "events_come_in_the_order_of_their_places",
    ),
    (
        || Box::new(e::RepeatsTheWatermark),
        "a_watermark_skips_what_was_read",
    ),
    (
        || Box::new(e::TrustsKeys),
        "a_wrong_key_is_refused_unless_told_otherwise",
    ),
    (
        || Box::new(r::ForgetsUntil),
        "timers_by_shard_and_fire_at_and_execution_id_and_promise_end_at_until",
    ),
    (
        || Box::new(r::TakesUntilForBefore),
        "what_is_due_is_found_before_what_is_not",
    ),
    (
        || Box::new(r::ForgetsAfter),
        "job_queue_by_id_are_paged_without_loss_or_repetition",
    ),
    (|| Box::new(r::PagesWithoutTheKey), PAGED_BY_INDEX),
    (
        || Box::new(r::OrdersWithoutCase),
        "text_is_ordered_by_its_bytes",
    ),
    (|| Box::new(r::CutsLimits), "a_scan_is_cut_at_the_policy"),
    (
        || Box::new(r::IgnoresThePagePolicy),
        "a_page_without_limit_is_cut_at_the_policy",
    ),
    (
        || Box::new(r::IgnoresTheOtherLimits),
        "a_row_may_not_pass_the_limit",
    ),
    (
        || Box::new(r::SkipsTheChunkInTheMiddle),
        "a_journal_is_read_from_the_middle_of_a_chunk",
    ),
    (
        || Box::new(r::IgnoresFrom),
        "reading_from_the_end_finds_nothing",
    ),
    (
        || Box::new(r::ListsEveryRunAsBehind),
        "only_runs_behind_are_listed",
    ),
    (
        || Box::new(r::CutsBeforeNarrowing),
        "a_list_of_runs_behind_is_not_cut_before_it_is_narrowed",
    ),
    (
        || Box::new(r::RepeatsTheLastRun),
        "a_list_goes_on_after_a_run",
    ),
    (
        || Box::new(r::ConfusesReaders),
        "readers_move_without_each_other",
    ),
];

const KEEPS_THE_FIRST: &str = "a_repeat_with_another_payload_keeps_the_first_and_is_reported";
const OTHER_RUN: &str = "the_same_key_in_another_run_is_another_event";
const PAGED_BY_INDEX: &str =
    "executions_by_shard_and_wake_at_and_execution_id_are_paged_without_loss_or_repetition";

/// Bugs that no sequence of operations can show, because they are about what is done by hand.
const BY_HAND: &[(Plant, &str)] = &[
    (
        || Box::new(e::LetsHistoryBeChanged),
        "a_stored_event_cannot_be_changed_by_hand",
    ),
    (
        || Box::new(e::LetsHistoryBeChanged),
        "a_journal_cannot_be_deleted_by_hand",
    ),
];

fn only_changes(commit: Commit) -> Commit {
    Commit {
        changes: commit.changes,
        ..Commit::new()
    }
}

fn only_journals(commit: Commit) -> Commit {
    Commit {
        journals: commit.journals,
        ..Commit::new()
    }
}

fn only_moves(commit: Commit) -> Commit {
    Commit {
        reader_advances: commit.reader_advances,
        ..Commit::new()
    }
}

fn only_events(commit: Commit) -> Commit {
    Commit {
        events: commit.events,
        ..Commit::new()
    }
}

fn first_events(mut commit: Commit) -> Commit {
    commit.events.truncate(1);
    only_events(commit)
}

#[tokio::test]
async fn a_store_without_a_flaw_passes() {
    conformance::run_checks(&Planted(|| Box::new(Faultless)), None)
        .await
        .expect_all_passed();
}

#[tokio::test]
async fn every_planted_bug_is_caught_by_the_check_that_is_about_it() {
    let mut missed: Vec<&str> = Vec::new();
    for (plant, check) in PLANTED.iter().chain(BY_HAND) {
        let report = conformance::run_checks(&Planted(*plant), Some(check)).await;
        missed.extend((!report.has_failed(check)).then_some(*check));
    }
    assert!(
        missed.is_empty(),
        "bugs that their checks did not notice: {missed:#?}"
    );
}

#[tokio::test]
async fn random_sequences_come_upon_the_same_bugs_and_are_shown_short() {
    for (plant, check) in PLANTED {
        let (mut found, mut seeds) = (None, 0..400);
        while let Some(seed) = seeds.next().filter(|_| found.is_none()) {
            found = run_differential(&[&MemoryStoreFactory, &Planted(*plant)], seed, 100)
                .await
                .err();
        }
        let found = found.unwrap_or_else(|| panic!("not found: what {check} is about"));
        assert!(found.operations.len() <= 8, "{check}: {found}");
    }
}
