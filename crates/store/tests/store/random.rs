//! Random sequences: does the generator make everything happen, and does a difference come out
//! short?

use onward_store::conformance::MemoryStoreFactory;
use onward_store::conformance::differential::{CaseCoverage, run_differential};

#[tokio::test]
async fn everything_happens_sometimes_and_the_store_in_memory_agrees_with_itself() {
    let mut all = CaseCoverage::default();
    for seed in 0..250 {
        let sometimes = run_differential(&[&MemoryStoreFactory, &MemoryStoreFactory], seed, 120)
            .await
            .unwrap_or_else(|found| panic!("{found}"));
        all.merge_counts(sometimes);
    }
    assert_eq!(all.uncovered_cases(), [], "{all}");
}
