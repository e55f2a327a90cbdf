//! Id types: each id has a type of its own, so that a plan id cannot be passed as a run id.

use thiserror::Error;

use crate::excerpt::quote_excerpt;

/// The error for a text that is not a valid value of an id, counter or timestamp type.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{found} is not valid: expected {expected}")]
pub struct ValueError {
    found: String,
    expected: &'static str,
}

impl ValueError {
    /// Creates the error for `found`, which is not a valid `T`. The message contains an excerpt of
    /// `found`.
    pub fn new<T: ExpectedFormat>(found: &str) -> Self {
        Self {
            found: quote_excerpt(found),
            expected: T::EXPECTED,
        }
    }
}

/// Describes the valid format of a type, for error messages.
pub trait ExpectedFormat {
    /// The description that follows "expected" in an error message, such as "64 lowercase hex
    /// digits".
    const EXPECTED: &'static str;
}

impl ExpectedFormat for bool {
    const EXPECTED: &'static str = "true or false";
}

/// Implements serde for a type that is a JSON string and that `FromStr` parses.
#[macro_export]
macro_rules! serde_as_text {
    ($name:ident, |$this:ident| $text:expr) => {
        impl $crate::serde::Serialize for $name {
            fn serialize<S: $crate::serde::Serializer>(
                &self,
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                let $this = self;
                serializer.serialize_str($text)
            }
        }

        impl<'de> $crate::serde::Deserialize<'de> for $name {
            fn deserialize<D: $crate::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                <String as $crate::serde::Deserialize>::deserialize(deserializer)?
                    .parse()
                    .map_err($crate::serde::de::Error::custom)
            }
        }
    };
}

/// Declares id types: shared text of a limited length that must not contain `|`, the separator of
/// the parts of an idempotency key.
#[macro_export]
macro_rules! text_ids {
    ($($(#[$doc:meta])* $name:ident: $bytes_max:literal bytes, except $reserved:expr, $expected:literal;)+) => {$(
        $(#[$doc])*
        ///
        /// Shared text: a clone is a counter, not a copy.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name($crate::SharedText);

        impl $name {
            /// Maximum length of an id, in bytes.
            pub const BYTES_MAX: usize = $bytes_max;

            /// Returns the id as shared text, which can be cloned without copying.
            pub const fn as_text(&self) -> &$crate::SharedText {
                &self.0
            }
        }

        impl $crate::ExpectedFormat for $name {
            const EXPECTED: &'static str = $expected;
        }

        impl std::str::FromStr for $name {
            type Err = $crate::ValueError;

            fn from_str(text: &str) -> Result<Self, $crate::ValueError> {
                let reserved: &[&str] = $reserved;
                let fits = $crate::is_key_part(text, Self::BYTES_MAX) && !reserved.contains(&text);
                if fits { Ok(Self($crate::SharedText::from(text))) } else { Err($crate::ValueError::new::<Self>(text)) }
            }
        }

        impl std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Debug::fmt(&self.0, f)
            }
        }

        $crate::serde_as_text!($name, |id| id);
    )+};
}

/// Returns whether a text can be one part of an idempotency key: 1 to `bytes_max` bytes, without
/// control characters and without `|`.
pub fn is_key_part(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len())
        && !text.chars().any(|char| char.is_control() || char == '|')
}
