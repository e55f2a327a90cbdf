//! What makes calling a provider again a repetition.

use std::fmt;

use sha2::{Digest as _, Sha256};

/// The idempotency key of an item: a digest of what it is about.
///
/// Each part stands in its place and after its length, so that no two different items share a key. A retry of a job has the
/// same parts and so the same key; another run of the campaign has others. The first eight bytes are a digest of the run alone:
/// the keys of a run are neighbours in the index that refuses a second one, however many other runs there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey([u8; 32]);

/// Bytes of a key that say of which run it is.
const RUN_PREFIX_BYTES: usize = 8;

impl ItemKey {
    /// A mail: this asset to this lead.
    pub fn for_email(run: &str, lead: &str, asset: &str, scheduled_for: &str) -> Self {
        Self::from_parts([run, lead, asset, scheduled_for])
    }

    /// A call: this script to this lead.
    pub fn for_voice(run: &str, lead: &str, script_version: &str, scheduled_for: &str) -> Self {
        Self::from_parts([run, lead, script_version, scheduled_for])
    }

    /// A post on this channel.
    pub fn for_social_post(run: &str, post: &str, channel: &str, scheduled_for: &str) -> Self {
        Self::from_parts([run, post, channel, scheduled_for])
    }

    fn from_parts(parts: [&str; 4]) -> Self {
        let (mut key, run) = (hash_parts(&parts), hash_parts(&parts[..1]));
        key[..RUN_PREFIX_BYTES].copy_from_slice(&run[..RUN_PREFIX_BYTES]);
        Self(key)
    }
}

/// SHA-256 over parts, each after its length: no two different lists of parts have the same.
pub fn hash_parts(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hash.finalize().into()
}

impl fmt::Display for ItemKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_key_is_this() {
        let key = ItemKey::for_email("run-1", "lead-1", "asset-1", "2026-01-02T03:04:05Z");
        assert_eq!(key.to_string().len(), 64);
        assert_eq!(
            key,
            ItemKey::for_email("run-1", "lead-1", "asset-1", "2026-01-02T03:04:05Z")
        );
        let (sibling, other) = (
            ItemKey::for_email("run-1", "lead-2", "", ""),
            ItemKey::for_email("run-2", "lead-1", "", ""),
        );
        assert_eq!(key.0[..RUN_PREFIX_BYTES], sibling.0[..RUN_PREFIX_BYTES]);
        assert_ne!(key.0[..RUN_PREFIX_BYTES], other.0[..RUN_PREFIX_BYTES]);
    }

    proptest! {
        #[test]
        fn different_parts_make_different_keys(one in prop::array::uniform4("[ab|]{0,3}"), other in prop::array::uniform4("[ab|]{0,3}")) {
            let key = |parts: &[String; 4]| ItemKey::from_parts([&parts[0], &parts[1], &parts[2], &parts[3]]);
            prop_assert_eq!(key(&one) == key(&other), one == other);
        }
    }
}
