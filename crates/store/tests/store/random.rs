//! Random sequences: does the generator make everything happen, and does a difference come out short?

use onward_store::conformance::OnMemory;
use onward_store::conformance::differential::{Sometimes, differential};

#[tokio::test]
async fn everything_happens_sometimes_and_the_store_in_memory_agrees_with_itself() {
    let mut all = Sometimes::default();
    for seed in 0..250 {
        let sometimes =
            differential(&[&OnMemory, &OnMemory], seed, 120).await.unwrap_or_else(|found| panic!("{found}"));
        all.add(sometimes);
    }
    assert_eq!(all.missing(), [], "{all}");
}
