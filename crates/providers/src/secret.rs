//! Secrets: documents name them, and only whoever builds a provider looks them up.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What the variables of the environment begin with that hold secrets.
const PREFIX: &str = "ONWARD_SECRET_";

/// Where a secret is, in place of the secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    /// What it is called: capital letters, digits and underscores.
    pub secret: String,
}

/// Knows secrets by name.
pub trait Secrets {
    /// The secret of this name, if there is one.
    fn secret(&self, name: &str) -> Option<String>;
}

/// Secrets in variables of the environment: `ONWARD_SECRET_<NAME>`, and no others.
#[derive(Debug, Clone, Copy, Default)]
pub struct Environment;

impl Secrets for Environment {
    fn secret(&self, name: &str) -> Option<String> {
        is_name(name).then(|| std::env::var(format!("{PREFIX}{name}")).ok()).flatten()
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
}

/// A secret that was looked up. It is never printed.
#[derive(Clone)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

impl SecretRef {
    /// The secret itself.
    pub(crate) fn resolve(&self, secrets: &dyn Secrets) -> Result<Secret, String> {
        let name = &self.secret;
        if !is_name(name) {
            return Err(format!("`{name}` is not the name of a secret: use capital letters, digits and underscores"));
        }
        match secrets.secret(name) {
            Some(secret) if !secret.is_empty() => Ok(Secret(secret)),
            _ => Err(format!("there is no secret {name}: set the variable {PREFIX}{name}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Environment, SecretRef, Secrets};

    struct One;

    impl Secrets for One {
        fn secret(&self, name: &str) -> Option<String> {
            match name {
                "KEY" => Some("hunter2".to_owned()),
                "EMPTY" => Some(String::new()),
                _ => None,
            }
        }
    }

    fn named(name: &str) -> SecretRef {
        SecretRef { secret: name.to_owned() }
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
            assert!(named(name).resolve(&One).unwrap_err().contains(&format!("set the variable ONWARD_SECRET_{name}")));
        }
        for name in ["", "key", "A B", "../KEY", "KEY=1"] {
            assert!(named(name).resolve(&One).unwrap_err().contains("is not the name of a secret"), "{name}");
        }
    }

    #[test]
    fn no_other_variable_of_the_environment_can_be_read() {
        for name in ["PATH", "", "../PATH"] {
            assert_eq!(Environment.secret(name), None);
        }
    }

    #[test]
    fn a_reference_has_one_field_and_no_other() {
        let named: SecretRef = serde_json::from_str(r#"{"secret":"KEY"}"#).unwrap();
        assert_eq!(named.secret, "KEY");
        assert!(serde_json::from_str::<SecretRef>(r#"{"secret":"KEY","value":"hunter2"}"#).is_err());
        assert!(serde_json::from_str::<SecretRef>(r#""hunter2""#).is_err());
    }
}
