//! What is counted while campaigns are sent, for whoever watches.

use metrics::counter;
use onward_dispatch::{Change, Standing};

/// Items have come to stand so.
pub(crate) fn changes<'a>(changes: impl Iterator<Item = &'a Change>) {
    let mut counts = [0_u64; 4];
    for change in changes {
        match change.to {
            Standing::Served => counts[0] += 1,
            Standing::Failed => counts[1] += 1,
            Standing::Skipped => counts[2] += 1,
            Standing::InDoubt => counts[3] += 1,
            Standing::Unreserved | Standing::Free | Standing::Held => {}
        }
    }
    for (standing, count) in ["served", "failed", "skipped", "in_doubt"].into_iter().zip(counts) {
        if count > 0 {
            counter!("onward_campaign_items_total", "standing" => standing).increment(count);
        }
    }
}
