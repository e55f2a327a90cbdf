//! Random sequences: checks that the generator covers every case and that two equal stores agree.

use onward_store::conformance::MemoryStoreFactory;
use onward_store::conformance::differential::{CaseCoverage, run_differential};

#[tokio::test]
async fn random_sequences_cover_every_operation_and_two_memory_stores_agree() {
    let mut all = CaseCoverage::default();
    for seed in 0..250 {
        let sometimes = run_differential(&[&MemoryStoreFactory, &MemoryStoreFactory], seed, 120)
            .await
            .unwrap_or_else(|found| panic!("{found}"));
        all.merge_counts(sometimes);
    }
    assert_eq!(all.uncovered_cases(), [], "{all}");
}
