//! Cache of the heads of runs that a writer has appended to. A stale entry costs a second attempt
//! and nothing else.

use std::collections::HashMap;

use onward_runs::RunId;
use onward_store::RunHead;

/// Heads of the most recently used runs, in two generations; the older generation is evicted as a
/// whole.
#[derive(Default)]
pub(super) struct RunHeadCache {
    young: HashMap<RunId, RunHead>,
    old: HashMap<RunId, RunHead>,
}

/// Number of heads in a generation. One head takes a few hundred bytes.
const GENERATION_CAPACITY: usize = 10_000;

impl RunHeadCache {
    /// Returns the head of a run as this writer last saw it.
    pub(super) fn get(&self, run: &RunId) -> Option<&RunHead> {
        self.young.get(run).or_else(|| self.old.get(run))
    }

    /// Caches the head of a run.
    pub(super) fn insert(&mut self, head: RunHead) {
        if self.young.len() >= GENERATION_CAPACITY {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(head.run_id.clone(), head);
    }

    /// Evicts the head of a run.
    pub(super) fn remove(&mut self, run: &RunId) {
        self.young.remove(run);
        self.old.remove(run);
    }
}

#[cfg(test)]
mod tests {
    use onward_base::Timestamp;
    use onward_runs::RunSeq;
    use onward_store::RunHead;

    use super::{GENERATION_CAPACITY, RunHeadCache};

    fn head(run: usize, last_seq: u64) -> RunHead {
        RunHead {
            run_id: format!("run-{run}").parse().unwrap(),
            tenant_id: "t".parse().unwrap(),
            project_id: "p".parse().unwrap(),
            environment_id: "e".parse().unwrap(),
            last_seq: RunSeq::new(last_seq).unwrap(),
            last_persisted_at: Timestamp::EPOCH,
            projected_seq: RunSeq::ZERO,
            delivered_seq: RunSeq::ZERO,
        }
    }

    #[test]
    fn recently_used_heads_are_cached_and_memory_is_bounded() {
        let mut heads = RunHeadCache::default();
        for run in 0..3 * GENERATION_CAPACITY {
            heads.insert(head(run, 1));
            assert!(heads.young.len() + heads.old.len() <= 2 * GENERATION_CAPACITY);
        }
        assert!(heads.get(&head(0, 1).run_id).is_none());
        assert!(
            heads
                .get(&head(2 * GENERATION_CAPACITY, 1).run_id)
                .is_some()
        );
    }

    #[test]
    fn the_latest_head_wins_over_an_older_generation() {
        let mut heads = RunHeadCache::default();
        (0..=GENERATION_CAPACITY).for_each(|run| heads.insert(head(run, 1)));
        heads.insert(head(0, 2));
        assert_eq!(heads.get(&head(0, 0).run_id), Some(&head(0, 2)));
        heads.remove(&head(0, 0).run_id);
        assert_eq!(heads.get(&head(0, 0).run_id), None);
    }
}
