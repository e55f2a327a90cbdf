//! Errors of the configuration document of a provider, for its authors. They never repeat a value
//! of the document: it may be a secret in place of its name.

use thiserror::Error;

/// The reason why a document is not the configuration of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ProviderDocumentError {
    /// A required field is missing.
    #[error("{place}: the field {field} is required")]
    MissingField {
        /// Path of the object without the field.
        place: String,
        /// Name of the field.
        field: String,
    },
    /// A value has the wrong type, or is not one of the possible values.
    #[error("{place} must be {expected}")]
    UnexpectedValue {
        /// Path of the value.
        place: String,
        /// Description of a valid value.
        expected: String,
    },
    /// Any other error, such as an unknown field.
    #[error("{place}: {message}")]
    Invalid {
        /// Path of the object.
        place: String,
        /// What is wrong there.
        message: String,
    },
}

impl ProviderDocumentError {
    /// Describes the position of an error of the deserializer, and the expected value.
    pub(crate) fn from_serde(error: &serde_path_to_error::Error<serde_json::Error>) -> Self {
        let (path, message) = (error.path().to_string(), error.inner().to_string());
        let place = if path == "." {
            "the provider".to_owned()
        } else {
            format!("`{path}`")
        };
        if let Some(field) = message.strip_prefix("missing field ") {
            let field = field.to_owned();
            return Self::MissingField { place, field };
        }
        if message.starts_with("unknown field ") {
            return Self::Invalid { place, message };
        }
        let expected = match message.split_once("expected ") {
            Some((_, expected)) => describe_expected(expected).to_owned(),
            None if message.contains("untagged enum") => {
                "a status such as 409, or a range such as \"500-599\"".to_owned()
            }
            None => return Self::Invalid { place, message },
        };
        Self::UnexpectedValue { place, expected }
    }
}

/// Rephrases an expected type without the names of Rust types.
fn describe_expected(expected: &str) -> &str {
    match expected {
        "path string" => "a string",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "u16" | "u32" | "u64" | "usize" => "a non-negative integer",
        "a map" => "an object",
        _ if expected.starts_with("struct ") || expected.starts_with("string or map") => {
            "an object"
        }
        _ => expected,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::ProviderSpec;

    #[expect(
        clippy::too_many_lines,
        reason = "one scenario, or one list of cases, read from top to bottom"
    )]
    #[test]
    fn an_error_names_the_setting_and_never_repeats_a_value_that_may_be_a_secret() {
        let smtp = |more: serde_json::Value| {
            let mut smtp = json!({ "url": "smtps://mail.example.org" });
            smtp.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({ "smtp": smtp })
        };
        let http = |auth: serde_json::Value| json!({ "http": { "url": "https://api.example.org", "auth": auth } });
        let reference = "must be a reference: { secret: NAME }";
        for (document, expected) in [
            (
                smtp(json!({ "user": "shop", "password": "hunter2" })),
                format!("`smtp.password` {reference}"),
            ),
            (
                smtp(json!({ "user": "shop", "password": 7 })),
                format!("`smtp.password` {reference}"),
            ),
            (
                http(json!({ "bearer": "hunter2" })),
                format!("`http.auth.bearer` {reference}"),
            ),
            (
                http(json!({ "basic": { "user": "shop", "password": "hunter2" } })),
                format!("`http.auth.basic.password` {reference}"),
            ),
            (
                http(json!({ "header": { "name": "k", "value": "hunter2" } })),
                format!("`http.auth.header.value` {reference}"),
            ),
            (
                http(json!("hunter2")),
                "`http.auth` must be one of `bearer`, `basic`, `header`".to_owned(),
            ),
            (
                http(json!({ "basic": "shop:hunter2" })),
                "`http.auth.basic` must be an object".to_owned(),
            ),
            (
                smtp(json!({ "max_connections": "many" })),
                "`smtp.max_connections` must be a non-negative integer".to_owned(),
            ),
            (
                smtp(json!({ "rate_limits": { "per_second": -1 } })),
                "`smtp.rate_limits.per_second` must be a non-negative integer".to_owned(),
            ),
            (
                smtp(json!({ "url": 5 })),
                "`smtp.url` must be a string".to_owned(),
            ),
            (
                smtp(json!({ "rate_limits": 5 })),
                "`smtp.rate_limits` must be an object".to_owned(),
            ),
            (
                json!({ "smtp": {} }),
                "`smtp`: the field `url` is required".to_owned(),
            ),
            (
                json!({ "folder": { "path": 1 } }),
                "`folder.path` must be a string".to_owned(),
            ),
        ] {
            let error = serde_json::from_value::<ProviderSpec>(document.clone())
                .unwrap_err()
                .to_string();
            assert_eq!(error, expected, "{document}");
        }
        let misspelt =
            serde_json::from_value::<ProviderSpec>(smtp(json!({ "passwort": "hunter2" })))
                .unwrap_err();
        assert!(
            misspelt.to_string().contains("unknown field `passwort`"),
            "{misspelt}"
        );
        let kind = serde_json::from_value::<ProviderSpec>(json!({ "pigeon": {} }))
            .unwrap_err()
            .to_string();
        assert!(
            kind.ends_with("must be one of `smtp`, `http`, `folder`"),
            "{kind}"
        );
        let status = json!({ "http": {
            "url": "https://api.example.org", "responses": { "deferred": [{}] },
        } });
        let status = serde_json::from_value::<ProviderSpec>(status)
            .unwrap_err()
            .to_string();
        assert!(status.contains("must be a status such as 409"), "{status}");
    }
}
