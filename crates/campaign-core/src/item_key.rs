//! Idempotency key of an item: equal on every retry, different for everything else.

use std::fmt;

use onward_base::hex::write_hex;
use sha2::{Digest as _, Sha256};

/// The idempotency key of an item: a digest of the parts that identify it.
///
/// Each part has a fixed position and is prefixed with its length, so that no two different items
/// share a key. A retry of a job has the same parts and therefore the same key; another run of the
/// campaign has different ones. The first eight bytes are a digest of the run alone: the keys of a
/// run are neighbours in the unique index, however many other runs there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemKey([u8; 32]);

/// Length in bytes of the key prefix that is a digest of the run alone.
const RUN_PREFIX_BYTES: usize = 8;

impl ItemKey {
    /// The key of an email: one asset to one lead.
    pub fn for_email(run: &str, lead: &str, asset: &str, scheduled_for: &str) -> Self {
        Self::from_parts([run, lead, asset, scheduled_for])
    }

    /// The key of a voice call: one script version to one lead.
    pub fn for_voice(run: &str, lead: &str, script_version: &str, scheduled_for: &str) -> Self {
        Self::from_parts([run, lead, script_version, scheduled_for])
    }

    /// The key of a post on one social channel.
    pub fn for_social_post(run: &str, post: &str, channel: &str, scheduled_for: &str) -> Self {
        Self::from_parts([run, post, channel, scheduled_for])
    }

    fn from_parts(parts: [&str; 4]) -> Self {
        let (mut key, run) = (hash_parts(&parts), hash_parts(&parts[..1]));
        key[..RUN_PREFIX_BYTES].copy_from_slice(&run[..RUN_PREFIX_BYTES]);
        Self(key)
    }
}

/// SHA-256 over the parts, each prefixed with its length, so that different lists of parts have
/// different digests.
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
        write_hex(f, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn keys_are_stable_and_keys_of_a_run_share_a_prefix() {
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
