//! Every planted bug is detected, and by the check that covers it.

use onward_store::Commit;
use onward_store::conformance::differential::run_differential;
use onward_store::conformance::{self, MemoryStoreFactory};

use crate::flawed::{FlawedStoreFactory, NoFlaw, StoreFlaw, events as e, reads as r, writes as w};

type Plant = fn() -> Box<dyn StoreFlaw>;

/// A bug, and the check that detects it.
const PLANTED_BUGS: &[(Plant, &str)] = &[
    (
        || Box::new(w::IgnoresFences),
        "a_stale_epoch_is_rejected_even_if_every_version_matches",
    ),
    (
        || Box::new(w::AcceptsFutureEpochs),
        "a_future_epoch_is_rejected",
    ),
    (
        || Box::new(w::IgnoresJournalLength),
        "a_wrong_journal_length_is_rejected_despite_a_current_epoch",
    ),
    (
        || Box::new(w::UpdatesAllColumns),
        "a_column_update_keeps_concurrent_changes_of_other_columns",
    ),
    (
        || Box::new(w::IgnoresVersions),
        "a_wrong_row_version_is_rejected_despite_a_current_epoch",
    ),
    (
        || Box::new(w::IgnoresReaderPositions),
        "a_wrong_reader_position_is_rejected_despite_a_current_epoch",
    ),
    (
        || Box::new(w::SkipsDeleteIfExists),
        "rows_of_job_queue_are_deleted_by_delete_if_exists",
    ),
    (
        || Box::new(w::DeletesOnlyFirstVersion),
        "delete_if_exists_deletes_a_row_at_any_version",
    ),
    (
        || Box::new(w::LosesDeletesAmongOtherChanges),
        "the_rest_of_a_commit_is_stored_beside_delete_if_exists",
    ),
    (
        || Box::new(w::RejectsDeleteOfMissingRow),
        "delete_if_exists_of_a_missing_row_succeeds_and_changes_nothing",
    ),
    (
        || Box::new(w::StoresPartOfCommit(only_changes)),
        "wrong_reader_position_beside_update_stores_nothing",
    ),
    (
        || Box::new(w::StoresPartOfCommit(only_journals)),
        "not_unique_beside_journal_stores_nothing",
    ),
    (
        || Box::new(w::StoresPartOfCommit(only_moves)),
        "foreign_run_beside_reader_advance_stores_nothing",
    ),
    (
        || Box::new(w::StoresPartOfCommit(only_events)),
        "stale_fence_beside_event_of_new_run_stores_nothing",
    ),
    (
        || Box::new(w::StoresPartOfCommit(first_events)),
        "foreign_run_after_event_of_known_run_stores_nothing",
    ),
    (
        || Box::new(w::StoresInTwoTransactions),
        "stale_update_beside_event_of_known_run_stores_nothing",
    ),
    (
        || Box::new(w::IgnoresUniqueColumns),
        "rows_of_inbox_are_unique_in_execution_id_and_dedup_key",
    ),
    (
        || Box::new(w::KeepsByKeyOnly),
        "concurrent_starts_with_different_ids_create_one_execution",
    ),
    (
        || Box::new(w::OverwritesInsertOrKeep),
        "insert_or_keep_keeps_the_row_with_its_key",
    ),
    (
        || Box::<w::ReusesSerials>::default(),
        "a_serial_is_not_reused_after_the_last_row_is_deleted",
    ),
    (
        || Box::new(w::AcceptsReadersMovingBack),
        "moving_a_reader_backwards_is_rejected",
    ),
    (
        || Box::new(w::ClampsReadersToEnd),
        "moving_a_reader_beyond_the_end_is_rejected",
    ),
    (
        || Box::new(w::TruncatesTimestamps),
        "the_smallest_and_the_largest_timestamp_are_stored_unchanged_in_rows",
    ),
    (
        || Box::new(w::TrimsText),
        "lookalike_texts_are_different_keys",
    ),
    (
        || Box::new(w::DeletesInCascade),
        "a_delete_of_an_execution_row_deletes_nothing_else",
    ),
    (
        || Box::new(w::SkipsPurge),
        "purging_a_run_removes_its_events_its_head_and_its_snapshot",
    ),
    (
        || Box::new(w::PurgesByPrefix),
        "purging_a_run_keeps_runs_with_similar_names",
    ),
    (
        || Box::new(w::PurgesOnlyRow),
        "purging_an_execution_removes_all_its_data",
    ),
    (|| Box::<e::KeepsSecondPayload>::default(), KEEPS_THE_FIRST),
    (
        || Box::new(e::LeavesAGap),
        "a_hundred_single_appends_are_numbered_in_order",
    ),
    (
        || Box::new(e::ReportsDuplicatesAsNew),
        "a_duplicate_returns_the_first_result",
    ),
    (
        || Box::new(e::HidesDifferences),
        "every_differing_duplicate_is_reported",
    ),
    (
        || Box::new(e::ComparesPayloadText),
        "payloads_with_reordered_members_are_equal",
    ),
    (
        || Box::<e::DetectsDuplicatesAcrossRuns>::default(),
        OTHER_RUN,
    ),
    (
        || Box::new(e::SharesEventIds),
        "an_event_id_belongs_to_one_event_of_all_runs",
    ),
    (
        || Box::new(e::IgnoresTenants),
        "an_event_of_another_tenant_is_rejected",
    ),
    (
        || Box::new(e::IgnoresTenants),
        "a_duplicate_from_another_tenant_is_rejected_without_details",
    ),
    (
        || Box::new(e::ChecksTenantsFirst),
        "the_first_rejected_event_is_reported",
    ),
    (
        || Box::<e::TimestampsGoBackwards>::default(),
        "timestamps_do_not_go_backwards_when_the_clock_does",
    ),
    (
        || Box::new(e::UsesProducerClock),
        "emitted_at_does_not_affect_persisted_at",
    ),
    (
        || Box::new(e::ParsesPayloads),
        "an_integer_beyond_64_bits_is_stored_unchanged_in_a_payload",
    ),
    (
        || Box::new(e::DropsUnknownMembers),
        "unknown_members_are_stored_unchanged",
    ),
    (
        || Box::new(e::RewritesEmittedAt),
        "emitted_at_is_stored_as_the_producer_wrote_it",
    ),
    (
        || Box::new(e::ReversesPages),
        "events_are_returned_in_sequence_order",
    ),
    (
        || Box::new(e::IncludesWatermark),
        "a_read_after_a_watermark_skips_earlier_events",
    ),
    (
        || Box::new(e::SkipsKeyCheck),
        "a_wrong_key_is_rejected_by_default",
    ),
    (
        || Box::new(r::IgnoresUpperBound),
        "tasks_by_leased_until_and_execution_id_and_promise_and_attempt_end_at_the_upper_bound",
    ),
    (
        || Box::new(r::ExcludesUpperBound),
        "a_scan_returns_due_rows_before_later_rows",
    ),
    (
        || Box::new(r::IgnoresPagePosition),
        "job_queue_by_id_are_paged_without_gaps_or_duplicates",
    ),
    (|| Box::new(r::PagesWithoutKey), PAGED_BY_INDEX),
    (
        || Box::new(r::OrdersCaseInsensitively),
        "text_is_ordered_by_its_bytes",
    ),
    (
        || Box::new(r::TruncatesLimits),
        "a_scan_is_capped_by_the_policy",
    ),
    (
        || Box::new(r::IgnoresPagePolicy),
        "a_page_without_a_limit_is_capped_by_the_policy",
    ),
    (
        || Box::new(r::IgnoresCommitLimits),
        "a_row_must_not_exceed_the_limit",
    ),
    (
        || Box::new(r::SkipsPartialChunk),
        "a_journal_is_read_from_the_middle_of_a_chunk",
    ),
    (
        || Box::new(r::IgnoresFirstSequence),
        "reading_from_the_end_returns_nothing",
    ),
    (
        || Box::new(r::ListsEveryRunAsBehind),
        "only_runs_with_unread_events_are_listed",
    ),
    (
        || Box::new(r::LimitsBeforeFiltering),
        "the_limit_of_a_list_applies_after_its_filter",
    ),
    (
        || Box::new(r::RepeatsLastRun),
        "a_list_continues_after_a_run",
    ),
    (
        || Box::new(r::ConfusesReaders),
        "readers_advance_independently",
    ),
];

const KEEPS_THE_FIRST: &str = "a_duplicate_with_another_payload_keeps_the_first_and_is_reported";
const OTHER_RUN: &str = "a_key_in_another_run_is_another_event";
const PAGED_BY_INDEX: &str =
    "executions_by_shard_and_wake_at_and_execution_id_are_paged_without_gaps_or_duplicates";

/// Bugs that no sequence of operations can show, because they concern direct writes to the
/// database.
const DIRECT_WRITE_BUGS: &[(Plant, &str)] = &[
    (
        || Box::new(e::AllowsTampering),
        "a_direct_update_of_an_event_is_rejected",
    ),
    (
        || Box::new(e::AllowsTampering),
        "a_direct_delete_of_a_journal_is_rejected",
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
async fn a_store_without_a_bug_passes() {
    conformance::run_checks(&FlawedStoreFactory(|| Box::new(NoFlaw)), None)
        .await
        .expect_all_passed();
}

#[tokio::test]
async fn every_planted_bug_fails_its_check() {
    let mut missed: Vec<&str> = Vec::new();
    for (plant, check) in PLANTED_BUGS.iter().chain(DIRECT_WRITE_BUGS) {
        let report = conformance::run_checks(&FlawedStoreFactory(*plant), Some(check)).await;
        missed.extend((!report.has_failed(check)).then_some(*check));
    }
    assert!(
        missed.is_empty(),
        "bugs that their checks did not detect: {missed:#?}"
    );
}

#[tokio::test]
async fn random_sequences_find_the_same_bugs_and_are_shrunk() {
    for (plant, check) in PLANTED_BUGS {
        let (mut found, mut seeds) = (None, 0..400);
        while let Some(seed) = seeds.next().filter(|_| found.is_none()) {
            found = run_differential(
                &[&MemoryStoreFactory, &FlawedStoreFactory(*plant)],
                seed,
                100,
            )
            .await
            .err();
        }
        let found = found.unwrap_or_else(|| panic!("no random sequence found the bug of {check}"));
        assert!(found.operations.len() <= 8, "{check}: {found}");
    }
}
