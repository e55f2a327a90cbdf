//! Secrets: documents contain only their names, and they are resolved only when a provider is
//! built.

use std::fmt;

use onward_base::SharedText;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::outgoing_item::sanitize_text;

/// Prefix of the environment variables that contain secrets.
const SECRET_ENV_PREFIX: &str = "ONWARD_SECRET_";

/// Reference to a secret by its name, in place of the secret itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a reference: { secret: NAME }")]
pub struct SecretRef {
    /// Name of the secret: uppercase letters, digits and underscores.
    pub secret: String,
}

/// Resolves secrets by name.
pub trait SecretSource {
    /// Returns the secret with this name, or `None` if there is none.
    fn lookup_secret(&self, name: &str) -> Option<String>;
}

/// Secrets in environment variables named `ONWARD_SECRET_<NAME>`; no other variable can be read.
#[derive(Debug, Clone, Copy, Default)]
pub struct EnvironmentSecrets;

impl SecretSource for EnvironmentSecrets {
    fn lookup_secret(&self, name: &str) -> Option<String> {
        is_secret_name(name)
            .then(|| std::env::var(format!("{SECRET_ENV_PREFIX}{name}")).ok())
            .flatten()
    }
}

fn is_secret_name(name: &str) -> bool {
    !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// A resolved secret. Its `Debug` output does not contain it.
#[derive(Clone)]
pub(crate) struct SecretValue(String);

impl SecretValue {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The reason why a reference to a secret cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum SecretError {
    /// The name is invalid. The error does not repeat it: it may be the secret itself.
    #[error(
        "`{setting}.secret` is not the name of a secret: \
         a name consists of uppercase letters, digits and underscores"
    )]
    InvalidName {
        /// Path of the setting that has the reference.
        setting: &'static str,
    },
    /// The secret is missing or empty.
    #[error(
        "`{setting}`: secret {name} not found: \
         set the environment variable {SECRET_ENV_PREFIX}{name}"
    )]
    NotFound {
        /// Path of the setting that has the reference.
        setting: &'static str,
        /// Name of the secret.
        name: String,
    },
}

impl SecretRef {
    /// Resolves the secret of the setting at this path. Fails if the name is invalid, or if the
    /// secret is missing or empty.
    pub(crate) fn resolve(
        &self,
        setting: &'static str,
        secrets: &dyn SecretSource,
    ) -> Result<SecretValue, SecretError> {
        let name = &self.secret;
        if !is_secret_name(name) {
            return Err(SecretError::InvalidName { setting });
        }
        match secrets.lookup_secret(name) {
            Some(secret) if !secret.is_empty() => Ok(SecretValue(secret)),
            _ => Err(SecretError::NotFound {
                setting,
                name: name.clone(),
            }),
        }
    }
}

/// Redacts secrets in responses of a provider: some providers repeat what they received.
#[derive(Debug, Default)]
pub(crate) struct SecretRedactor(Vec<SecretValue>);

impl SecretRedactor {
    /// Redacts a secret, and its Base64 forms, alone and combined with the user name as in
    /// authentication protocols.
    pub(crate) fn for_secret(secret: &SecretValue, user: Option<&str>) -> Self {
        let plain = secret.reveal();
        let mut forms = vec![plain.to_owned(), encode_base64(plain)];
        if let Some(user) = user {
            forms.extend([
                encode_base64(&format!("{user}:{plain}")),
                encode_base64(&format!("\0{user}\0{plain}")),
            ]);
        }
        // The longest form first: a shorter form may be part of it.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self(forms.into_iter().map(SecretValue).collect())
    }

    /// Returns the text of a response without secrets, on one line and truncated.
    pub(crate) fn redact_text(&self, text: &str) -> SharedText {
        let redacted = self.0.iter().fold(text.to_owned(), |text, form| {
            text.replace(form.reveal(), "(secret)")
        });
        sanitize_text(&redacted)
    }
}

/// Encodes a text in Base64 (RFC 4648).
pub(crate) fn encode_base64(text: &str) -> String {
    const BASE64_DIGITS: &[u8; 64] =
        b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |group: &[u8]| -> String {
        let bits = group
            .iter()
            .chain([&0, &0])
            .take(3)
            .fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let digit =
            |place: usize| char::from(BASE64_DIGITS[(bits >> (18 - 6 * place)) as usize % 64]);
        (0..4)
            .map(|place| {
                if place <= group.len() {
                    digit(place)
                } else {
                    '='
                }
            })
            .collect()
    };
    text.as_bytes().chunks(3).map(digits).collect()
}

#[cfg(test)]
mod tests {
    use super::{
        EnvironmentSecrets, SecretError, SecretRedactor, SecretRef, SecretSource, SecretValue,
        encode_base64,
    };

    struct TestSecrets;

    impl SecretSource for TestSecrets {
        fn lookup_secret(&self, name: &str) -> Option<String> {
            match name {
                "KEY" => Some("hunter2".to_owned()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }
    }

    fn resolve(name: &str) -> Result<SecretValue, SecretError> {
        let reference = SecretRef {
            secret: name.to_owned(),
        };
        reference.resolve("smtp.password", &TestSecrets)
    }

    #[test]
    fn a_resolved_secret_is_never_printed() {
        let secret = resolve("KEY").unwrap();
        assert_eq!(secret.reveal(), "hunter2");
        assert_eq!(format!("{secret:?}"), "(secret)");
    }

    #[test]
    fn a_missing_or_empty_secret_and_an_invalid_name_are_rejected_with_what_to_do() {
        for name in ["NONE", "EMPTY"] {
            let error = resolve(name).unwrap_err().to_string();
            assert_eq!(
                error,
                format!(
                    "`smtp.password`: secret {name} not found: set the environment variable ONWARD_SECRET_{name}"
                )
            );
        }
        for name in ["", "key", "A B", "../KEY", "KEY=1", "hunter2"] {
            let error = resolve(name).unwrap_err().to_string();
            assert!(
                error.starts_with("`smtp.password.secret` is not the name of a secret"),
                "{name}: {error}"
            );
            assert!(name.len() < 4 || !error.contains(name), "{error}");
        }
    }

    #[test]
    fn no_other_environment_variable_can_be_read() {
        for name in ["PATH", "", "../PATH"] {
            assert_eq!(EnvironmentSecrets.lookup_secret(name), None);
        }
    }

    #[test]
    fn a_response_text_is_redacted_in_every_encoding_of_the_secret() {
        let redactor = SecretRedactor::for_secret(&resolve("KEY").unwrap(), Some("shop"));
        for echo in [
            "hunter2",
            "c2hvcDpodW50ZXIy",
            "AHNob3AAaHVudGVyMg==",
            "aHVudGVyMg==",
        ] {
            assert_eq!(
                &*redactor.redact_text(&format!("no: {echo}!")),
                "no: (secret)!"
            );
            // Text is redacted before it is truncated.
            let at_end = format!("{}{echo}", "x".repeat(497));
            assert!(
                redactor.redact_text(&at_end).ends_with("x(se"),
                "{}",
                redactor.redact_text(&at_end)
            );
        }
        assert_eq!(format!("{redactor:?}").matches("(secret)").count(), 4);
    }

    #[test]
    fn base64_follows_rfc_4648() {
        for (text, encoded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("Aladdin:open sesame", "QWxhZGRpbjpvcGVuIHNlc2FtZQ=="),
        ] {
            assert_eq!(encode_base64(text), encoded);
        }
    }

    #[test]
    fn a_secret_reference_has_one_field_and_no_other() {
        let reference: SecretRef = serde_json::from_str(r#"{"secret":"KEY"}"#).unwrap();
        assert_eq!(reference.secret, "KEY");
        assert!(
            serde_json::from_str::<SecretRef>(r#"{"secret":"KEY","value":"hunter2"}"#).is_err()
        );
        assert!(serde_json::from_str::<SecretRef>(r#""hunter2""#).is_err());
    }
}
