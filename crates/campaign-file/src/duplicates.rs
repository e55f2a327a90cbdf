//! Who is named more than once, found while an audience of any length goes by.
//!
//! A filter of bits (Bloom's, in blocks of one cache line each) takes the same memory for ten people and for millions. It never
//! overlooks somebody; that it takes somebody new for known is next to impossible as long as it is not too full, and then it
//! looks no further.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use onward_campaign_core::AudienceRecipient;
use serde::{Deserialize, Serialize};

/// Rows that are looked at: then about one of a million would be taken for known though it is not.
const CHECKED_ROWS_MAX: u64 = 2_000_000;

/// Bits of a hash that say which block: 32 MiB altogether, of which only those pages are used that somebody is in.
const BLOCK_BITS: u32 = 19;
/// Words of 64 bits in a block.
const BLOCK_WORDS: usize = 8;
/// Bits of a block that somebody sets, each chosen by nine bits of a hash.
const BITS_PER_KEY: u32 = 7;

/// Rows that name somebody who was named before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DuplicateCounts {
    /// By the same id: they are reached once.
    pub ids: u64,
    /// At the same address by another id: they are reached there once more.
    pub addresses: u64,
    /// How many of the rows that can be used were looked at: the first ones.
    pub of: u64,
}

/// Looks for repeats.
#[derive(Debug, Default)]
pub(crate) struct DuplicateDetector {
    bloom_words: Vec<u64>,
    counts: DuplicateCounts,
}

impl DuplicateDetector {
    /// Here is somebody.
    pub(crate) fn add_recipient(&mut self, recipient: &AudienceRecipient) {
        if self.counts.of >= CHECKED_ROWS_MAX {
            return;
        }
        if self.bloom_words.is_empty() {
            self.bloom_words = vec![0; BLOCK_WORDS << BLOCK_BITS];
        }
        self.counts.of += 1;
        let knows_id = self.insert_key(&("id", &recipient.id));
        let knows_address = self.insert_key(&("address", recipient.address.to_lowercase()));
        self.counts.ids += u64::from(knows_id);
        self.counts.addresses += u64::from(knows_address && !knows_id);
    }

    /// What was found so far.
    pub(crate) const fn duplicate_counts(&self) -> DuplicateCounts {
        self.counts
    }

    /// Remembers something, and tells whether it was known.
    fn insert_key(&mut self, what: &impl std::hash::Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let first = hasher.finish();
        first.hash(&mut hasher);
        let second = hasher.finish();
        let block = usize::try_from(first >> (u64::BITS - BLOCK_BITS)).unwrap_or(0) * BLOCK_WORDS;
        let mut is_known = true;
        for mark in 0..BITS_PER_KEY {
            let place = usize::try_from(second >> (mark * 9) & 511).unwrap_or(0);
            let (word, bit) = (&mut self.bloom_words[block + place / 64], 1 << (place % 64));
            is_known &= *word & bit != 0;
            *word |= bit;
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody(id: &dyn ToString, address: &dyn ToString) -> AudienceRecipient {
        AudienceRecipient {
            id: id.to_string(),
            address: address.to_string(),
            data: serde_json::Map::new(),
        }
    }

    #[test]
    fn nobody_of_a_million_is_taken_for_another() {
        let mut repeats = DuplicateDetector::default();
        for number in 0..1_000_000 {
            repeats.add_recipient(&somebody(&number, &format_args!("{number}@example.org")));
        }
        assert_eq!(
            repeats.duplicate_counts(),
            DuplicateCounts {
                ids: 0,
                addresses: 0,
                of: 1_000_000
            }
        );
        for number in (0..1_000_000).step_by(1_000) {
            repeats.add_recipient(&somebody(&number, &format_args!("new{number}@example.org")));
            repeats.add_recipient(&somebody(
                &format_args!("new{number}"),
                &format_args!("{number}@EXAMPLE.org"),
            ));
        }
        assert_eq!(
            repeats.duplicate_counts(),
            DuplicateCounts {
                ids: 1_000,
                addresses: 1_000,
                of: 1_002_000
            }
        );
    }

    #[test]
    fn it_looks_no_further_when_it_could_be_wrong() {
        let mut repeats = DuplicateDetector {
            counts: DuplicateCounts {
                of: CHECKED_ROWS_MAX,
                ..DuplicateCounts::default()
            },
            ..DuplicateDetector::default()
        };
        repeats.add_recipient(&somebody(&1, &"a@example.org"));
        assert_eq!(
            (repeats.duplicate_counts().of, repeats.bloom_words.len()),
            (CHECKED_ROWS_MAX, 0)
        );
    }
}
