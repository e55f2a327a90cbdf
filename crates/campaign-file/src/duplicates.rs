//! Detection of duplicate recipients in an audience of any length.
//!
//! A blocked Bloom filter (one cache line per block) uses the same memory for ten recipients and
//! for millions. It has no false negatives. False positives are very unlikely while the filter is
//! not too full; after that the detector stops checking.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use onward_campaign_core::AudienceRecipient;
use serde::{Deserialize, Serialize};

/// Maximum number of rows that are checked: at this size about one row of a million would be a
/// false positive.
const CHECKED_ROWS_MAX: u64 = 2_000_000;

/// Bits of the hash that select the block. The filter has 32 MiB in total, of which the operating
/// system allocates only the pages in use.
const BLOCK_BITS: u32 = 19;
/// 64-bit words per block.
const BLOCK_WORDS: usize = 8;
/// Bits that each key sets in its block, each selected by nine bits of a hash.
const BITS_PER_KEY: u32 = 7;

/// Number of rows whose recipient has already occurred in the audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DuplicateCounts {
    /// Rows with an id that has already occurred: the recipient gets one message.
    pub ids: u64,
    /// Rows with a new id and an address that has already occurred: the address gets one more
    /// message.
    pub addresses: u64,
    /// Number of valid rows that were checked, counted from the start of the audience.
    pub checked: u64,
}

/// Counts duplicate recipients while the audience is read.
#[derive(Debug, Default)]
pub(crate) struct DuplicateDetector {
    bloom_words: Vec<u64>,
    counts: DuplicateCounts,
}

impl DuplicateDetector {
    /// Checks the recipient of one valid row. No effect after [`CHECKED_ROWS_MAX`] rows. Returns
    /// whether the id has (probably) occurred before.
    pub(crate) fn add_recipient(&mut self, recipient: &AudienceRecipient) -> bool {
        if self.counts.checked >= CHECKED_ROWS_MAX {
            return false;
        }
        if self.bloom_words.is_empty() {
            self.bloom_words = vec![0; BLOCK_WORDS << BLOCK_BITS];
        }
        self.counts.checked += 1;
        let is_known_id = self.insert_key(&("id", &recipient.id));
        let is_known_address = self.insert_key(&("address", recipient.address.to_lowercase()));
        self.counts.ids += u64::from(is_known_id);
        self.counts.addresses += u64::from(is_known_address && !is_known_id);
        is_known_id
    }

    /// The counts of all rows checked so far.
    pub(crate) const fn duplicate_counts(&self) -> DuplicateCounts {
        self.counts
    }

    /// Inserts a key into the filter and returns whether it was (probably) present before.
    fn insert_key(&mut self, key: &impl std::hash::Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let first = hasher.finish();
        first.hash(&mut hasher);
        let second = hasher.finish();
        let block = usize::try_from(first >> (u64::BITS - BLOCK_BITS)).unwrap_or(0) * BLOCK_WORDS;
        let mut is_known = true;
        for number in 0..BITS_PER_KEY {
            let index = usize::try_from(second >> (number * 9) & 511).unwrap_or(0);
            let (word, bit) = (&mut self.bloom_words[block + index / 64], 1 << (index % 64));
            is_known &= *word & bit != 0;
            *word |= bit;
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recipient(id: &dyn ToString, address: &dyn ToString) -> AudienceRecipient {
        AudienceRecipient {
            id: id.to_string(),
            address: address.to_string(),
            data: serde_json::Map::new(),
        }
    }

    #[test]
    fn a_million_recipients_have_no_false_positives() {
        let mut detector = DuplicateDetector::default();
        for number in 0..1_000_000 {
            detector.add_recipient(&recipient(&number, &format_args!("{number}@example.org")));
        }
        assert_eq!(
            detector.duplicate_counts(),
            DuplicateCounts {
                ids: 0,
                addresses: 0,
                checked: 1_000_000
            }
        );
        for number in (0..1_000_000).step_by(1_000) {
            detector.add_recipient(&recipient(
                &number,
                &format_args!("new{number}@example.org"),
            ));
            detector.add_recipient(&recipient(
                &format_args!("new{number}"),
                &format_args!("{number}@EXAMPLE.org"),
            ));
        }
        assert_eq!(
            detector.duplicate_counts(),
            DuplicateCounts {
                ids: 1_000,
                addresses: 1_000,
                checked: 1_002_000
            }
        );
    }

    #[test]
    fn recipients_beyond_the_maximum_are_not_checked() {
        let mut detector = DuplicateDetector {
            counts: DuplicateCounts {
                checked: CHECKED_ROWS_MAX,
                ..DuplicateCounts::default()
            },
            ..DuplicateDetector::default()
        };
        detector.add_recipient(&recipient(&1, &"a@example.org"));
        assert_eq!(
            (
                detector.duplicate_counts().checked,
                detector.bloom_words.len()
            ),
            (CHECKED_ROWS_MAX, 0)
        );
    }
}
