//! Metrics of items: counts of items that become sent, failed, skipped or in doubt.

use metrics::counter;
use onward_campaign_core::{ItemChange, ItemState};

/// Increments the counters of the states that these changes lead to.
pub(crate) fn count_item_changes<'a>(changes: impl Iterator<Item = &'a ItemChange>) {
    let mut counts = [0_u64; 4];
    for change in changes {
        match change.new_state {
            ItemState::Sent => counts[0] += 1,
            ItemState::Failed => counts[1] += 1,
            ItemState::Skipped => counts[2] += 1,
            ItemState::InDoubt => counts[3] += 1,
            ItemState::Unreserved | ItemState::Deferred | ItemState::Reserved => {}
        }
    }
    for (state, count) in ["sent", "failed", "skipped", "in-doubt"]
        .into_iter()
        .zip(counts)
    {
        if count > 0 {
            counter!("onward_campaign_items_total", "state" => state).increment(count);
        }
    }
}
