//! Secrets: documents contain only their names, and they are resolved only when a provider is
//! built.

use std::fmt;

use onward_base::SharedText;
use serde::{Deserialize, Serialize};

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

impl SecretRef {
    /// Resolves the secret. Fails if the name is invalid, or if the secret is missing or empty.
    pub(crate) fn resolve(&self, secrets: &dyn SecretSource) -> Result<SecretValue, String> {
        let name = &self.secret;
        if !is_secret_name(name) {
            // The error does not repeat the name: it may be the secret itself.
            return Err(
                "what is there is not the name of a secret: names have capital letters, digits and underscores"
                    .to_owned(),
            );
        }
        match secrets.lookup_secret(name) {
            Some(secret) if !secret.is_empty() => Ok(SecretValue(secret)),
            _ => Err(format!(
                "there is no secret {name}: set the variable {SECRET_ENV_PREFIX}{name}"
            )),
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
        let covered = self.0.iter().fold(text.to_owned(), |text, form| {
            text.replace(form.reveal(), "(secret)")
        });
        sanitize_text(&covered)
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
    use super::{EnvironmentSecrets, SecretRedactor, SecretRef, SecretSource, encode_base64};

    struct One;

    impl SecretSource for One {
        fn lookup_secret(&self, name: &str) -> Option<String> {
            match name {
                "KEY" => Some("hunter2".to_owned()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }
    }

    fn named(name: &str) -> SecretRef {
        SecretRef {
            secret: name.to_owned(),
        }
    }

    #[test]
    fn a_secret_that_was_looked_up_is_never_printed() {
        let secret = named("KEY").resolve(&One).unwrap();
        assert_eq!(secret.reveal(), "hunter2");
        assert_eq!(format!("{secret:?}"), "(secret)");
    }

    #[test]
    fn a_missing_empty_or_badly_named_secret_is_refused_with_what_to_do() {
        for name in ["NONE", "EMPTY"] {
            assert!(
                named(name)
                    .resolve(&One)
                    .unwrap_err()
                    .contains(&format!("set the variable ONWARD_SECRET_{name}"))
            );
        }
        for name in ["", "key", "A B", "../KEY", "KEY=1", "hunter2"] {
            let words = named(name).resolve(&One).unwrap_err();
            assert!(
                words.contains("is not the name of a secret"),
                "{name}: {words}"
            );
            assert!(name.len() < 4 || !words.contains(name), "{words}");
        }
    }

    #[test]
    fn no_other_variable_of_the_environment_can_be_read() {
        for name in ["PATH", "", "../PATH"] {
            assert_eq!(EnvironmentSecrets.lookup_secret(name), None);
        }
    }

    #[test]
    fn what_is_heard_is_without_the_secret_however_it_is_written() {
        let veil = SecretRedactor::for_secret(&named("KEY").resolve(&One).unwrap(), Some("shop"));
        for echo in [
            "hunter2",
            "c2hvcDpodW50ZXIy",
            "AHNob3AAaHVudGVyMg==",
            "aHVudGVyMg==",
        ] {
            assert_eq!(&*veil.redact_text(&format!("no: {echo}!")), "no: (secret)!");
            // Text is redacted before it is truncated.
            let at_the_end = format!("{}{echo}", "x".repeat(497));
            assert!(
                veil.redact_text(&at_the_end).ends_with("x(se"),
                "{}",
                veil.redact_text(&at_the_end)
            );
        }
        assert_eq!(format!("{veil:?}").matches("(secret)").count(), 4);
    }

    #[test]
    fn names_and_passwords_are_encoded_as_rfc_4648_says() {
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
    fn a_reference_has_one_field_and_no_other() {
        let named: SecretRef = serde_json::from_str(r#"{"secret":"KEY"}"#).unwrap();
        assert_eq!(named.secret, "KEY");
        assert!(
            serde_json::from_str::<SecretRef>(r#"{"secret":"KEY","value":"hunter2"}"#).is_err()
        );
        assert!(serde_json::from_str::<SecretRef>(r#""hunter2""#).is_err());
    }
}
