//! Provider documents: parsing, validation, and the derived policy.

use std::process::Command;
use std::time::Duration;

use onward_campaign_delivery::{EnvironmentSecrets, ProviderSpec, SecretSource};
use onward_campaign_file::CampaignRetries;
use serde_json::{Value, json};

use crate::fixture::NoSecrets;

fn spec(document: Value) -> ProviderSpec {
    serde_json::from_value(document).unwrap()
}

fn build_error(document: Value) -> String {
    spec(document)
        .build_provider("p", &NoSecrets)
        .err()
        .unwrap()
        .to_string()
}

#[test]
fn a_document_is_equal_after_a_round_trip() {
    for document in [
        json!({ "folder": { "path": "out", "rate_limits": { "per_second": 5 } } }),
        json!({ "smtp": { "url": "smtps://mail.example.org", "user": "shop", "password": { "secret": "MAIL" } } }),
        json!({ "http": {
            "url": "https://api.example.org/send", "auth": { "bearer": { "secret": "API" } },
            "responses": { "deferred": [500, "502-504"] }, "rate_limits": { "per_domain": { "per_minute": 60 } },
        } }),
    ] {
        let parsed = spec(document);
        let written = serde_json::to_value(&parsed).unwrap();
        assert_eq!(spec(written), parsed);
    }
    for document in [
        json!({ "pigeon": {} }),
        json!({ "folder": { "path": "out", "mode": 7 } }),
        json!({ "folder": { "path": "out" }, "smtp": { "url": "smtp://x" } }),
        json!({ "smtp": { "url": "smtp://x", "password": "hunter2" } }),
        json!({ "smtp": { "url": "smtp://x", "policy": { "max_sends": 1 } } }),
    ] {
        assert!(
            serde_json::from_value::<ProviderSpec>(document.clone()).is_err(),
            "{document}"
        );
    }
}

#[test]
fn a_document_has_a_host_and_secret_names() {
    let mail = json!({ "smtp": { "url": "smtp://mail.example.org", "user": "u", "password": { "secret": "MAIL" } } });
    let api = json!({ "http": { "url": "https://api.example.org/{{ to }}", "auth": { "header": { "name": "k", "value": { "secret": "API" } } } } });
    for (document, host, secrets) in [
        (mail, Some("mail.example.org:587"), &["MAIL"][..]),
        (
            json!({ "smtp": { "url": "smtp://[::1]:25" } }),
            Some("[::1]:25"),
            &[],
        ),
        (api, Some("api.example.org:443"), &["API"]),
        (json!({ "http": { "url": "https://{{ to }}/" } }), None, &[]),
        (json!({ "folder": { "path": "out" } }), None, &[]),
    ] {
        let spec = spec(document);
        assert_eq!(spec.host_port().as_deref(), host);
        assert_eq!(spec.secret_names(), secrets);
    }
}

#[test]
fn the_policy_follows_from_the_kind_of_provider_its_document_and_the_retries() {
    let mail =
        spec(json!({ "smtp": { "url": "smtp://x", "max_connections": 6, "timeout_ms": 20_000 } }));
    let retries = CampaignRetries {
        max_sends: 9,
        max_attempts: 2,
        ..CampaignRetries::default()
    };
    let policy = mail.dispatch_policy(&retries);
    assert_eq!(
        (
            policy.window,
            policy.resend_in_doubt,
            policy.lookup_after_ms
        ),
        (6, false, None)
    );
    assert_eq!(mail.send_timeout(), Duration::from_secs(45));
    let api = spec(json!({ "http": {
        "url": "https://x/{{ key }}", "idempotent": true,
        "status_lookup": { "url": "https://x/{{ key }}", "not_found": [404] },
        "batch": { "max_items": 20, "items": "", "id": "/id", "status": "/status" },
        "policy": { "lookup_after_ms": 5 },
    } }));
    let policy = api.dispatch_policy(&retries);
    assert_eq!(
        (
            policy.window,
            policy.resend_in_doubt,
            policy.lookup_after_ms
        ),
        (160, true, Some(5))
    );
    assert_eq!((policy.max_sends, policy.max_attempts), (9, 2));
    assert_eq!(api.send_timeout(), Duration::from_secs(35));
    let folder = spec(json!({ "folder": { "path": "out", "policy": { "window": 3 } } }))
        .dispatch_policy(&retries);
    assert_eq!(
        (
            folder.window,
            folder.resend_in_doubt,
            folder.lookup_after_ms
        ),
        (3, true, Some(0))
    );
}

#[test]
fn an_invalid_setting_is_rejected_with_its_path_and_the_name_of_the_provider() {
    for (more, expected) in [
        (
            json!({ "rate_limits": { "per_second": 0 } }),
            "`smtp.rate_limits.per_second` must be at least 1",
        ),
        (
            json!({ "policy": { "window": 0 } }),
            "`smtp.policy.window` is 0",
        ),
        (
            json!({ "policy": { "lookup_after_ms": 5 } }),
            "`smtp.policy.lookup_after_ms` is not allowed",
        ),
        (
            json!({ "timeout_ms": 0 }),
            "`smtp.timeout_ms` must be at least 1",
        ),
        (
            json!({ "user": "u", "password": { "secret": "MAIL" } }),
            "ONWARD_SECRET_MAIL",
        ),
    ] {
        let mut document = json!({ "smtp": { "url": "smtps://mail.example.org" } });
        document["smtp"]
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        let error = build_error(document);
        assert!(
            error.starts_with("provider p: ") && error.contains(expected),
            "{more}: {error}"
        );
    }
}

/// The test below runs this test with a secret in the environment.
#[test]
fn the_environment_of_this_process_has_the_expected_secret() {
    if let Ok(expected) = std::env::var("EXPECTED_SECRET") {
        assert_eq!(
            EnvironmentSecrets.lookup_secret("TEST_ONLY"),
            Some(expected)
        );
    } else {
        assert_eq!(EnvironmentSecrets.lookup_secret("TEST_ONLY"), None);
    }
}

#[test]
fn secrets_are_read_from_the_environment() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "documents::the_environment_of_this_process_has_the_expected_secret",
        ])
        .envs([
            ("ONWARD_SECRET_TEST_ONLY", "hunter2"),
            ("EXPECTED_SECRET", "hunter2"),
        ])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}
