//! Runs the suite on the memory store, and checks the number of its checks.

use onward_store::conformance::{self, MemoryStoreFactory};

#[tokio::test]
async fn the_store_in_memory_passes_every_check() {
    conformance::run_checks(&MemoryStoreFactory, None)
        .await
        .expect_all_passed();
}

#[tokio::test]
async fn checks_can_be_selected_by_topic_or_by_name() {
    let fencing = conformance::run_checks(&MemoryStoreFactory, Some("fencing")).await;
    fencing.expect_all_passed();
    assert_eq!(fencing.passed.len(), 1, "{fencing}");
    let one =
        conformance::run_checks(&MemoryStoreFactory, Some("the_first_event_has_sequence_1")).await;
    assert_eq!(one.passed.values().sum::<usize>(), 1, "{one}");
}

#[tokio::test]
#[should_panic(expected = "no check was run")]
async fn running_no_checks_is_a_failure() {
    conformance::run_checks(&MemoryStoreFactory, Some("no check has this name"))
        .await
        .expect_all_passed();
}

#[test]
fn the_suite_has_the_documented_number_of_checks() {
    let checks = conformance::all_checks();
    let are_sentences = checks.iter().all(|check| check.name.contains('_'));
    assert!(
        checks.len() >= 250 && are_sentences,
        "{} checks",
        checks.len()
    );
}
