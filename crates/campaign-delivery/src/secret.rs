//! Secrets: documents name them, and only whoever builds a provider looks them up.

use std::fmt;

use onward_base::SharedText;
use serde::{Deserialize, Serialize};

use crate::outgoing_item::sanitize_text;

/// What the variables of the environment begin with that hold secrets.
const SECRET_ENV_PREFIX: &str = "ONWARD_SECRET_";

/// Where a secret is, in place of the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, expecting = "a reference: { secret: NAME }")]
pub struct SecretRef {
    /// What it is called: capital letters, digits and underscores.
    pub secret: String,
}

/// Knows secrets by name.
pub trait SecretSource {
    /// The secret of this name, if there is one.
    fn lookup_secret(&self, name: &str) -> Option<String>;
}

/// Secrets in variables of the environment: `ONWARD_SECRET_<NAME>`, and no others.
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

/// A secret that was looked up. It is never printed.
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
    /// The secret itself.
    pub(crate) fn resolve(&self, secrets: &dyn SecretSource) -> Result<SecretValue, String> {
        let name = &self.secret;
        if !is_secret_name(name) {
            // It is not repeated: it may be the secret itself.
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

/// What must not be seen in what a provider says: some repeat what they were sent.
#[derive(Debug, Default)]
pub(crate) struct SecretRedactor(Vec<SecretValue>);

impl SecretRedactor {
    /// Covers a secret, also where it is encoded with who it belongs to as protocols do.
    pub(crate) fn for_secret(secret: &SecretValue, user: Option<&str>) -> Self {
        let plain = secret.reveal();
        let mut forms = vec![plain.to_owned(), encode_base64(plain)];
        if let Some(user) = user {
            forms.extend([
                encode_base64(&format!("{user}:{plain}")),
                encode_base64(&format!("\0{user}\0{plain}")),
            ]);
        }
        // The longest first: another may be a part of it.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Self(forms.into_iter().map(SecretValue).collect())
    }

    /// An answer's words, without secrets: on one line, and not too long.
    pub(crate) fn redact_text(&self, text: &str) -> SharedText {
        let covered = self.0.iter().fold(text.to_owned(), |text, form| {
            text.replace(form.reveal(), "(secret)")
        });
        sanitize_text(&covered)
    }
}

/// As RFC 4648 encodes it.
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
            // What is cut off is cut off after it is covered.
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
