//! Error messages for the configuration document of a provider, for its authors. They never repeat
//! a value of the document: it may be a secret in place of its name.

use serde_path_to_error::Error;

/// Describes the position of an error and the expected value.
pub(crate) fn describe_spec_error(error: &Error<serde_json::Error>) -> String {
    let (place, said) = (error.path().to_string(), error.inner().to_string());
    let place = if place == "." {
        "the provider".to_owned()
    } else {
        format!("`{place}`")
    };
    if let Some(field) = said.strip_prefix("missing field ") {
        return format!("{place} needs {field}");
    }
    if said.starts_with("unknown field ") {
        return format!("{place}: {said}");
    }
    match said.split_once("expected ") {
        Some((_, expected)) => format!("{place} has to be {}", describe_expected(expected)),
        None if said.contains("untagged enum") => {
            format!("{place} has to be a status such as 409, or a range such as \"500-599\"")
        }
        None => format!("{place}: {said}"),
    }
}

/// Rephrases an expected type without programming terms.
fn describe_expected(expected: &str) -> &str {
    match expected {
        "a string" | "path string" => "a text",
        "a boolean" => "true or false",
        "a sequence" => "a list",
        "u16" | "u32" | "u64" | "usize" => "a whole number, from 0 on",
        "a map" => "fields with their values",
        _ if expected.starts_with("struct ") || expected.starts_with("string or map") => {
            "fields with their values"
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
    fn what_is_wrong_is_told_in_words_and_never_repeats_what_may_be_a_secret() {
        let smtp = |more: serde_json::Value| {
            let mut smtp = json!({ "url": "smtps://mail.example.org" });
            smtp.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            json!({ "smtp": smtp })
        };
        let http = |auth: serde_json::Value| json!({ "http": { "url": "https://api.example.org", "auth": auth } });
        let reference = "has to be a reference: { secret: NAME }";
        for (document, words) in [
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
                "`http.auth` has to be one of `bearer`, `basic`, `header`".to_owned(),
            ),
            (
                http(json!({ "basic": "shop:hunter2" })),
                "`http.auth.basic` has to be fields with their values".to_owned(),
            ),
            (
                smtp(json!({ "connections": "many" })),
                "`smtp.connections` has to be a whole number, from 0 on".to_owned(),
            ),
            (
                smtp(json!({ "limits": { "per_second": -1 } })),
                "`smtp.limits.per_second` has to be a whole number, from 0 on".to_owned(),
            ),
            (
                smtp(json!({ "url": 5 })),
                "`smtp.url` has to be a text".to_owned(),
            ),
            (
                smtp(json!({ "limits": 5 })),
                "`smtp.limits` has to be fields with their values".to_owned(),
            ),
            (json!({ "smtp": {} }), "`smtp` needs `url`".to_owned()),
            (
                json!({ "folder": { "path": 1 } }),
                "`folder.path` has to be a text".to_owned(),
            ),
        ] {
            let refused = serde_json::from_value::<ProviderSpec>(document.clone())
                .unwrap_err()
                .to_string();
            assert_eq!(refused, words, "{document}");
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
            kind.ends_with("has to be one of `smtp`, `http`, `folder`"),
            "{kind}"
        );
        let status =
            json!({ "http": { "url": "https://api.example.org", "answers": { "later": [{}] } } });
        let status = serde_json::from_value::<ProviderSpec>(status)
            .unwrap_err()
            .to_string();
        assert!(
            status.contains("has to be a status such as 409"),
            "{status}"
        );
    }
}
