//! Identities: an execution is named by a hash, each of its operations by its place in the call tree.
//!
//! Ids are *positions*, not serial numbers: the same code making the same calls gets the same ids on every replay,
//! which is what lets a recorded result be found again without comparing call by call.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use thiserror::Error;

use crate::ComponentDigest;
use onward_base::excerpt::excerpt_text;
use onward_base::hex;

/// How deep a call tree may grow. A deeper one is a runaway recursion.
pub const CALL_DEPTH_MAX: usize = 64;

/// One invocation of a workflow; the root of its call tree and the name of its journal.
///
/// ```
/// use onward_journal::{ComponentDigest, ExecutionId};
/// let digest = ComponentDigest::of(b"component bytes");
/// let first = ExecutionId::derive(&digest, None, "order-42");
/// assert_eq!(first, ExecutionId::derive(&digest, None, "order-42"));
/// assert_ne!(first, ExecutionId::derive(&digest, None, "order-43"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExecutionId([u8; 32]);

impl ExecutionId {
    /// The id made of these bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The id of the execution that `key` starts on `component`, under `parent` if it is a child.
    ///
    /// SHA-256 over length-prefixed fields, so that no two different triples share an encoding.
    pub fn derive(component: &ComponentDigest, parent: Option<&PromiseId>, key: &str) -> Self {
        let mut hash = Sha256::new();
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_be_bytes());
            hash.update(bytes);
        };
        field(component.as_bytes());
        match parent {
            None => field(&[]),
            Some(parent) => {
                field(parent.root.as_bytes());
                let path: Vec<u8> = parent
                    .path
                    .iter()
                    .flat_map(|part| part.to_be_bytes())
                    .collect();
                field(&path);
            }
        }
        field(key.as_bytes());
        Self(hash.finalize().into())
    }

    /// The bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The last id that is smaller than this one.
    pub fn previous_id(self) -> Option<Self> {
        let last = self.0.iter().rposition(|byte| *byte != 0)?;
        let mut bytes = self.0;
        bytes[last] -= 1;
        bytes[last + 1..].fill(u8::MAX);
        Some(Self(bytes))
    }

    /// The execution itself as a promise: what its parent awaits.
    pub fn root_promise(self) -> PromiseId {
        PromiseId {
            root: self,
            path: SmallVec::new(),
        }
    }

    /// The `number`-th operation of this execution.
    pub fn child_promise(self, number: u32) -> PromiseId {
        PromiseId {
            root: self,
            path: SmallVec::from_slice(&[number]),
        }
    }
}

impl fmt::Display for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write_hex(f, &self.0)
    }
}

impl fmt::Debug for ExecutionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExecutionId({self})")
    }
}

impl FromStr for ExecutionId {
    type Err = JournalIdError;

    fn from_str(text: &str) -> Result<Self, JournalIdError> {
        hex::decode_hex_array(text)
            .map(Self)
            .ok_or_else(|| JournalIdError::Root(excerpt_text(text)))
    }
}

/// One operation of an execution: the execution's root and the path of call positions below it.
///
/// ```
/// use onward_journal::{ExecutionId, PromiseId};
/// let own = ExecutionId::default();
/// let id = PromiseId::parse("root.1.0", own)?;
/// assert_eq!(id.parent(), Some(own.child(1)));
/// assert_eq!(id.relative_to(own).to_string(), "root.1.0");
/// # Ok::<(), onward_journal::IdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromiseId {
    root: ExecutionId,
    path: SmallVec<[u32; 4]>,
}

impl PromiseId {
    /// The operation at `path` below `root`; refused beyond [`DEPTH_MAX`].
    pub fn new(root: ExecutionId, path: &[u32]) -> Result<Self, JournalIdError> {
        if path.len() > CALL_DEPTH_MAX {
            return Err(JournalIdError::TooDeep { depth: path.len() });
        }
        Ok(Self {
            root,
            path: SmallVec::from_slice(path),
        })
    }

    /// The `number`-th operation below this one; refused beyond [`DEPTH_MAX`].
    pub fn child_promise(&self, number: u32) -> Result<Self, JournalIdError> {
        if self.path.len() == CALL_DEPTH_MAX {
            return Err(JournalIdError::TooDeep {
                depth: CALL_DEPTH_MAX + 1,
            });
        }
        let mut path = self.path.clone();
        path.push(number);
        Ok(Self {
            root: self.root,
            path,
        })
    }

    /// Whom to notify on completion: the operation one level up, or nobody for a root.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.path.split_last()?;
        Some(Self {
            root: self.root,
            path: SmallVec::from_slice(above),
        })
    }

    /// Which journal to load.
    pub const fn execution_root(&self) -> ExecutionId {
        self.root
    }

    /// The call positions from the root down.
    pub fn path(&self) -> &[u32] {
        &self.path
    }

    /// How many levels below the root this operation is.
    pub fn depth(&self) -> usize {
        self.path.len()
    }

    /// The operation's number, if it is a direct child of `own`.
    pub fn child_number_in(&self, own: ExecutionId) -> Option<u32> {
        match self.path.as_slice() {
            [number] if self.root == own => Some(*number),
            _ => None,
        }
    }

    /// Reads `root.1.0` relative to `own`, or the absolute form with a root of 64 hex digits.
    pub fn parse(text: &str, own: ExecutionId) -> Result<Self, JournalIdError> {
        let mut parts = text.split('.');
        let root = match parts.next() {
            Some("root") => own,
            root => root
                .and_then(hex::decode_hex_array)
                .map(ExecutionId)
                .ok_or_else(|| JournalIdError::Root(excerpt_text(text)))?,
        };
        let mut path = SmallVec::new();
        for part in parts {
            if path.len() == CALL_DEPTH_MAX {
                return Err(JournalIdError::TooDeep {
                    depth: CALL_DEPTH_MAX + 1,
                });
            }
            path.push(
                parse_position(part).ok_or_else(|| JournalIdError::Position(excerpt_text(text)))?,
            );
        }
        Ok(Self { root, path })
    }

    /// Shows the id as `root.1.0` where it belongs to `own`, absolutely elsewhere.
    pub fn relative_to(&self, own: ExecutionId) -> impl fmt::Display + '_ {
        RelativePromiseId { id: self, own }
    }
}

/// A position has one spelling: no sign, no leading zeros.
fn parse_position(text: &str) -> Option<u32> {
    let canonical =
        text == "0" || (!text.starts_with('0') && text.bytes().all(|b| b.is_ascii_digit()));
    if canonical { text.parse().ok() } else { None }
}

impl fmt::Display for PromiseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.root)?;
        write_positions(f, &self.path)
    }
}

impl fmt::Debug for PromiseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PromiseId({self})")
    }
}

impl FromStr for PromiseId {
    type Err = JournalIdError;

    /// Reads the absolute form only; see [`PromiseId::parse`] for the relative one.
    fn from_str(text: &str) -> Result<Self, JournalIdError> {
        let root = text.split('.').next().unwrap_or_default();
        Self::parse(text, root.parse()?)
    }
}

struct RelativePromiseId<'a> {
    id: &'a PromiseId,
    own: ExecutionId,
}

impl fmt::Display for RelativePromiseId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.id.root == self.own {
            f.write_str("root")?
        } else {
            write!(f, "{}", self.id.root)?
        }
        write_positions(f, &self.id.path)
    }
}

fn write_positions(f: &mut fmt::Formatter<'_>, path: &[u32]) -> fmt::Result {
    path.iter().try_for_each(|part| write!(f, ".{part}"))
}

/// A join set. It takes a place in the call tree like any operation, but cannot be awaited, completed or submitted:
/// the separate type is what prevents it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JoinSetId(pub PromiseId);

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JournalIdError {
    /// The part before the first dot is neither `root` nor a hash.
    #[error("`{0}` is not an id: expected `root` or 64 hex digits, then `.NUMBER` for each level")]
    Root(String),
    /// A part after the first dot is not a position.
    #[error(
        "`{0}` is not an id: after the root each part is a number from 0 to 4294967295, without leading zeros"
    )]
    Position(String),
    /// The call tree would be deeper than [`DEPTH_MAX`].
    #[error("a call tree is at most {CALL_DEPTH_MAX} levels deep, this id has {depth}")]
    TooDeep {
        /// The depth that was asked for.
        depth: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ExecutionId {
        ExecutionId::from_bytes([0xab; 32])
    }

    #[test]
    fn text_form_round_trips_absolutely_and_relatively() {
        let id = PromiseId::new(own(), &[0, 1]).unwrap();
        assert_eq!(id.to_string(), format!("{}.0.1", "ab".repeat(32)));
        assert_eq!(id.to_string().parse(), Ok(id.clone()));
        assert_eq!(id.relative_to(own()).to_string(), "root.0.1");
        assert_eq!(PromiseId::parse("root.0.1", own()), Ok(id.clone()));
        let elsewhere = ExecutionId::from_bytes([1; 32]);
        assert_eq!(id.relative_to(elsewhere).to_string(), id.to_string());
    }

    #[test]
    fn a_promise_knows_its_parent_its_root_and_its_depth() {
        let id = PromiseId::new(own(), &[4, 7]).unwrap();
        assert_eq!(id.parent(), Some(own().child_promise(4)));
        assert_eq!(
            id.parent().and_then(|p| p.parent()),
            Some(own().root_promise())
        );
        assert_eq!(own().root_promise().parent(), None);
        assert_eq!(
            (id.execution_root(), id.depth(), id.path()),
            (own(), 2, &[4, 7][..])
        );
        assert_eq!(own().child_promise(4).child_promise(7), Ok(id));
    }

    #[test]
    fn promises_are_ordered_as_the_call_tree_is_walked() {
        let path = |path: &[u32]| PromiseId::new(own(), path).unwrap();
        let walked = [
            path(&[]),
            path(&[0]),
            path(&[0, 0]),
            path(&[0, 10]),
            path(&[1]),
            path(&[2]),
            path(&[10]),
        ];
        assert!(walked.is_sorted());
    }

    #[test]
    fn only_direct_children_have_a_number() {
        assert_eq!(own().child_promise(3).child_number_in(own()), Some(3));
        assert_eq!(own().root_promise().child_number_in(own()), None);
        assert_eq!(
            own()
                .child_promise(3)
                .child_promise(0)
                .unwrap()
                .child_number_in(own()),
            None
        );
        assert_eq!(
            own()
                .child_promise(3)
                .child_number_in(ExecutionId::default()),
            None
        );
    }

    #[test]
    fn a_call_tree_is_at_most_64_levels_deep() {
        let deepest = PromiseId::new(own(), &[0; CALL_DEPTH_MAX]).unwrap();
        assert_eq!(
            deepest.child_promise(0),
            Err(JournalIdError::TooDeep { depth: 65 })
        );
        assert_eq!(
            PromiseId::new(own(), &[0; CALL_DEPTH_MAX + 1]),
            Err(JournalIdError::TooDeep { depth: 65 })
        );
        let text = format!("root{}", ".0".repeat(CALL_DEPTH_MAX));
        assert_eq!(PromiseId::parse(&text, own()), Ok(deepest));
        assert_eq!(
            PromiseId::parse(&format!("{text}.0"), own()),
            Err(JournalIdError::TooDeep { depth: 65 })
        );
    }

    #[test]
    fn what_is_not_an_id_is_refused() {
        assert_eq!(
            PromiseId::parse(&"AB".repeat(32), ExecutionId::default()),
            Ok(own().root_promise())
        );
        for text in [
            "",
            "root.",
            "root..1",
            "root.01",
            "root.+1",
            "root.-1",
            "root.4294967296",
            "root.1 ",
            "root.1a",
        ] {
            assert!(PromiseId::parse(text, own()).is_err(), "{text:?} was read");
        }
        for text in ["Root", "roots.1", "abc", &"g".repeat(64), &"ab".repeat(33)] {
            assert_eq!(
                PromiseId::parse(text, own()),
                Err(JournalIdError::Root(excerpt_text(text)))
            );
        }
        assert!(
            "root.1".parse::<PromiseId>().is_err(),
            "an absolute id needs its root"
        );
    }

    #[test]
    fn derived_ids_are_golden_and_no_field_runs_into_the_next() {
        let digest = ComponentDigest::from_bytes([7; 32]);
        let id = ExecutionId::derive(&digest, None, "key");
        assert_eq!(id.to_string(), GOLDEN_ROOT);
        let parent = own().child_promise(1);
        assert_eq!(
            ExecutionId::derive(&digest, Some(&parent), "key").to_string(),
            GOLDEN_CHILD
        );
        let sibling = own().child_promise(2);
        assert_ne!(
            ExecutionId::derive(&digest, Some(&sibling), "key").to_string(),
            GOLDEN_CHILD
        );
        assert_ne!(
            ExecutionId::derive(&digest, Some(&own().root_promise()), "key"),
            id
        );
    }

    const GOLDEN_ROOT: &str = "afe572754c9514662059a2a988521bd9a23ad1a0580673467fb076a36dc5f5a8";
    const GOLDEN_CHILD: &str = "f868bea6b2b7c657a7856cd96dfc6f3dd1a9265dad547cca0e69618cb744af87";
}
