//! Ids: a hash identifies an execution, and the position in the call tree identifies each of its
//! operations.
//!
//! Ids are *positions*, not serial numbers: the same code making the same calls gets the same ids
//! on every replay, so a recorded result can be found without comparing call by call.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use smallvec::SmallVec;
use thiserror::Error;

use crate::ComponentDigest;
use onward_base::excerpt::excerpt_text;
use onward_base::hex;

/// Maximum depth of a call tree. A deeper one is a runaway recursion.
pub const CALL_DEPTH_MAX: usize = 64;

/// The id of an execution (one invocation of a workflow): the root of its call tree and the name of
/// its journal.
///
/// ```
/// use onward_journal::{ComponentDigest, ExecutionId};
/// let digest = ComponentDigest::from_component(b"component bytes");
/// let first = ExecutionId::derive(&digest, None, "order-42");
/// assert_eq!(first, ExecutionId::derive(&digest, None, "order-42"));
/// assert_ne!(first, ExecutionId::derive(&digest, None, "order-43"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ExecutionId([u8; 32]);

impl ExecutionId {
    /// Creates an id from the bytes of its hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Derives the id of the execution that the idempotency key `key` starts on `component`, under
    /// `parent` if it is a child.
    ///
    /// The id is a SHA-256 over length-prefixed fields, so that no two different triples share an
    /// encoding.
    pub fn derive(component: &ComponentDigest, parent: Option<&PromiseId>, key: &str) -> Self {
        let mut hash = Sha256::new();
        push_field(&mut hash, component.as_bytes());
        match parent {
            None => push_field(&mut hash, &[]),
            Some(parent) => {
                push_field(&mut hash, parent.root.as_bytes());
                let path: Vec<u8> = parent
                    .path
                    .iter()
                    .flat_map(|part| part.to_be_bytes())
                    .collect();
                push_field(&mut hash, &path);
            }
        }
        push_field(&mut hash, key.as_bytes());
        Self(hash.finalize().into())
    }

    /// Derives the id of an execution that a client starts on `component`, without a parent.
    /// `owner` are the fields that make the idempotency key unique: the tenant, the project, the
    /// environment and the function.
    ///
    /// As with [`derive`](Self::derive), each field is preceded by its length.
    pub fn derive_start(component: &ComponentDigest, owner: [&str; 4], key: &str) -> Self {
        let mut hash = Sha256::new();
        push_field(&mut hash, component.as_bytes());
        push_field(&mut hash, &[]);
        for field in owner {
            push_field(&mut hash, field.as_bytes());
        }
        push_field(&mut hash, key.as_bytes());
        Self(hash.finalize().into())
    }

    /// Returns the 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the largest id that is smaller than this one; `None` if all bytes are zero.
    pub fn previous_id(self) -> Option<Self> {
        let last = self.0.iter().rposition(|byte| *byte != 0)?;
        let mut bytes = self.0;
        bytes[last] -= 1;
        bytes[last + 1..].fill(u8::MAX);
        Some(Self(bytes))
    }

    /// Returns the promise that stands for the whole execution: the parent awaits it.
    pub fn root_promise(self) -> PromiseId {
        PromiseId {
            root: self,
            path: SmallVec::new(),
        }
    }

    /// Returns the id of the operation with this number in the execution; 0 is the first.
    pub fn child_promise(self, number: u32) -> PromiseId {
        PromiseId {
            root: self,
            path: SmallVec::from_slice(&[number]),
        }
    }
}

/// Adds a field to the hash of an id, preceded by its length.
fn push_field(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
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

/// The id of one operation: the root of its execution and the path of call positions below it.
///
/// ```
/// use onward_journal::{ExecutionId, PromiseId};
/// let own = ExecutionId::default();
/// let id = PromiseId::parse("root.1.0", own)?;
/// assert_eq!(id.parent(), Some(own.child_promise(1)));
/// assert_eq!(id.relative_to(own).to_string(), "root.1.0");
/// # Ok::<(), onward_journal::JournalIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PromiseId {
    root: ExecutionId,
    path: SmallVec<[u32; 4]>,
}

impl PromiseId {
    /// Returns the id of the operation at `path` below `root`. Fails if the path is longer than
    /// [`CALL_DEPTH_MAX`].
    pub fn new(root: ExecutionId, path: &[u32]) -> Result<Self, JournalIdError> {
        if path.len() > CALL_DEPTH_MAX {
            return Err(JournalIdError::TooDeep { depth: path.len() });
        }
        Ok(Self {
            root,
            path: SmallVec::from_slice(path),
        })
    }

    /// Returns the id of the operation with this number below this one. Fails if it would be deeper
    /// than [`CALL_DEPTH_MAX`].
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

    /// Returns the operation one level up, which is notified on completion; `None` for a root.
    pub fn parent(&self) -> Option<Self> {
        let (_, above) = self.path.split_last()?;
        Some(Self {
            root: self.root,
            path: SmallVec::from_slice(above),
        })
    }

    /// Returns the execution whose journal records the operation.
    pub const fn execution_root(&self) -> ExecutionId {
        self.root
    }

    /// Returns the call positions from the root down; empty for a root.
    pub fn path(&self) -> &[u32] {
        &self.path
    }

    /// Returns the number of levels between the root and this operation; 0 for a root.
    pub fn depth(&self) -> usize {
        self.path.len()
    }

    /// Returns the operation's number if it is a direct child of `own`, otherwise `None`.
    pub fn child_number_in(&self, own: ExecutionId) -> Option<u32> {
        match self.path.as_slice() {
            [number] if self.root == own => Some(*number),
            _ => None,
        }
    }

    /// Parses `root.1.0` relative to `own`, or the absolute form with a root of 64 hex digits.
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

    /// Displays the id as `root.1.0` if it belongs to `own`, otherwise in the absolute form.
    pub fn relative_to(&self, own: ExecutionId) -> impl fmt::Display + '_ {
        RelativePromiseId { id: self, own }
    }
}

/// Parses a position. Each position has one spelling: no sign, no leading zeros.
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

    /// Parses the absolute form only; see [`PromiseId::parse`] for the relative form.
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

/// The id of a join set. A join set has a position in the call tree like any operation, but cannot
/// be awaited, completed or submitted; the separate type prevents it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct JoinSetId(pub PromiseId);

/// The error for a text or path that is not a valid id.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum JournalIdError {
    /// The part before the first dot is neither `root` nor a hash of 64 hex digits.
    #[error("`{0}` is not an id: expected `root` or 64 hex digits, then `.NUMBER` for each level")]
    Root(String),
    /// A part after the first dot is not a valid position.
    #[error(
        "`{0}` is not an id: after the root each part is a number from 0 to 4294967295, without leading zeros"
    )]
    Position(String),
    /// The id would be deeper in the call tree than [`CALL_DEPTH_MAX`].
    #[error("a call tree is at most {CALL_DEPTH_MAX} levels deep, this id has {depth}")]
    TooDeep {
        /// The depth of the refused id.
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
    fn invalid_ids_are_refused() {
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

    #[test]
    fn ids_of_starts_are_golden_and_no_field_runs_into_the_next() {
        let digest = ComponentDigest::from_bytes([7; 32]);
        let id = |function, key| ExecutionId::derive_start(&digest, ["t", "p", "e", function], key);
        assert_eq!(id("order", "key").to_string(), GOLDEN_START);
        assert_ne!(id("a|b", "c"), id("a", "b|c"));
        assert_ne!(id("ab", "c"), id("a", "bc"));
    }

    const GOLDEN_START: &str = "80013fcbb8eec29bfeea22ea86196ae5268fa74f49bdf3968889001fd1e7061f";
    const GOLDEN_ROOT: &str = "afe572754c9514662059a2a988521bd9a23ad1a0580673467fb076a36dc5f5a8";
    const GOLDEN_CHILD: &str = "f868bea6b2b7c657a7856cd96dfc6f3dd1a9265dad547cca0e69618cb744af87";
}
