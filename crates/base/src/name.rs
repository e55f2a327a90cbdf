//! Names of functions, signals and error kinds, as users choose them. The length is limited because
//! the journal state keeps some of them in memory for the lifetime of the journal.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use thiserror::Error;

use crate::SharedText;
use crate::excerpt::excerpt_text;

/// A name of 1 to [`BoundedName::BYTES_MAX`] bytes without control characters. A clone increments a
/// reference count and does not copy the text.
///
/// ```
/// use onward_base::BoundedName;
/// let name: BoundedName = "user_approval".parse()?;
/// assert_eq!(&*name, "user_approval");
/// assert!("".parse::<BoundedName>().is_err());
/// # Ok::<(), onward_base::NameError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BoundedName(SharedText);

impl BoundedName {
    /// Maximum length in bytes; a longer text is a message, not a name.
    pub const BYTES_MAX: usize = 1_024;
}

impl FromStr for BoundedName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let is_name =
            (1..=Self::BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
        if is_name {
            Ok(Self(SharedText::from(text)))
        } else {
            Err(NameError(excerpt_text(text)))
        }
    }
}

impl Deref for BoundedName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for BoundedName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BoundedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for BoundedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

/// The error for a text that is empty, longer than [`BoundedName::BYTES_MAX`] or contains control
/// characters.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not a name: expected 1 to {max} bytes without control characters", max = BoundedName::BYTES_MAX)]
pub struct NameError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_short_and_printable() {
        let longest = "x".repeat(BoundedName::BYTES_MAX);
        assert_eq!(longest.parse::<BoundedName>().unwrap().to_string(), longest);
        for text in ["", &format!("{longest}x"), "a\nb", "\u{1b}[2J"] {
            assert!(text.parse::<BoundedName>().is_err(), "{text:?}");
        }
    }
}
