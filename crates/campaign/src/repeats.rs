//! Who is named more than once, found while an audience of any length goes by.
//!
//! A filter of bits (Bloom's, in blocks of one cache line each) takes the same memory for ten people and for millions. It never
//! overlooks somebody; that it takes somebody new for known is next to impossible as long as it is not too full, and then it
//! looks no further.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use onward_dispatcher::Recipient;
use serde::{Deserialize, Serialize};

/// Rows that are looked at: then about one of a million would be taken for known though it is not.
const ROWS_MAX: u64 = 2_000_000;

/// Bits of a hash that say which block: 32 MiB altogether, of which only those pages are used that somebody is in.
const BLOCK_BITS: u32 = 19;
/// Words of 64 bits in a block.
const WORDS: usize = 8;
/// Bits of a block that somebody sets, each chosen by nine bits of a hash.
const MARKS: u32 = 7;

/// Rows that name somebody who was named before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Repeated {
    /// By the same id: they are reached once.
    pub ids: u64,
    /// At the same address by another id: they are reached there once more.
    pub addresses: u64,
    /// How many of the rows that can be used were looked at: the first ones.
    pub of: u64,
}

/// Looks for repeats.
#[derive(Debug, Default)]
pub(crate) struct Repeats {
    words: Vec<u64>,
    found: Repeated,
}

impl Repeats {
    /// Here is somebody.
    pub(crate) fn add(&mut self, recipient: &Recipient) {
        if self.found.of >= ROWS_MAX {
            return;
        }
        if self.words.is_empty() {
            self.words = vec![0; WORDS << BLOCK_BITS];
        }
        self.found.of += 1;
        let knows_id = self.mark(&("id", &recipient.id));
        let knows_address = self.mark(&("address", recipient.address.to_lowercase()));
        self.found.ids += u64::from(knows_id);
        self.found.addresses += u64::from(knows_address && !knows_id);
    }

    /// What was found so far.
    pub(crate) const fn found(&self) -> Repeated {
        self.found
    }

    /// Remembers something, and tells whether it was known.
    fn mark(&mut self, what: &impl std::hash::Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        what.hash(&mut hasher);
        let first = hasher.finish();
        first.hash(&mut hasher);
        let second = hasher.finish();
        let block = usize::try_from(first >> (u64::BITS - BLOCK_BITS)).unwrap_or(0) * WORDS;
        let mut is_known = true;
        for mark in 0..MARKS {
            let place = usize::try_from(second >> (mark * 9) & 511).unwrap_or(0);
            let (word, bit) = (&mut self.words[block + place / 64], 1 << (place % 64));
            is_known &= *word & bit != 0;
            *word |= bit;
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn somebody(id: &dyn ToString, address: &dyn ToString) -> Recipient {
        Recipient { id: id.to_string(), address: address.to_string(), data: serde_json::Map::new() }
    }

    #[test]
    fn nobody_of_a_million_is_taken_for_another() {
        let mut repeats = Repeats::default();
        for number in 0..1_000_000 {
            repeats.add(&somebody(&number, &format_args!("{number}@example.org")));
        }
        assert_eq!(repeats.found(), Repeated { ids: 0, addresses: 0, of: 1_000_000 });
        for number in (0..1_000_000).step_by(1_000) {
            repeats.add(&somebody(&number, &format_args!("new{number}@example.org")));
            repeats.add(&somebody(&format_args!("new{number}"), &format_args!("{number}@EXAMPLE.org")));
        }
        assert_eq!(repeats.found(), Repeated { ids: 1_000, addresses: 1_000, of: 1_002_000 });
    }

    #[test]
    fn it_looks_no_further_when_it_could_be_wrong() {
        let mut repeats = Repeats { found: Repeated { of: ROWS_MAX, ..Repeated::default() }, ..Repeats::default() };
        repeats.add(&somebody(&1, &"a@example.org"));
        assert_eq!((repeats.found().of, repeats.words.len()), (ROWS_MAX, 0));
    }
}
