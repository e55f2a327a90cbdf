//! The suite on the store in memory, and how large the suite is.

use onward_store::conformance::{self, MemoryStoreFactory};

#[tokio::test]
async fn the_store_in_memory_passes_every_check() {
    conformance::run_checks(&MemoryStoreFactory, None)
        .await
        .expect_all_passed();
}

#[tokio::test]
async fn a_part_of_the_suite_can_be_run_by_topic_or_by_name() {
    let fencing = conformance::run_checks(&MemoryStoreFactory, Some("fencing")).await;
    fencing.expect_all_passed();
    assert_eq!(fencing.passed.len(), 1, "{fencing}");
    let one =
        conformance::run_checks(&MemoryStoreFactory, Some("the_first_event_has_place_1")).await;
    assert_eq!(one.passed.values().sum::<usize>(), 1, "{one}");
}

#[tokio::test]
#[should_panic(expected = "no check was run")]
async fn a_run_without_checks_is_no_success() {
    conformance::run_checks(&MemoryStoreFactory, Some("no check is called this"))
        .await
        .expect_all_passed();
}

#[test]
fn the_suite_is_as_large_as_promised() {
    let checks = conformance::all_checks();
    let are_sentences = checks.iter().all(|check| check.name.contains('_'));
    assert!(
        checks.len() >= 250 && are_sentences,
        "{} checks",
        checks.len()
    );
}
