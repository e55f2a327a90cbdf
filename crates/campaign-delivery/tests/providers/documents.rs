//! Documents of providers: what is in them, and what follows from it.

use std::process::Command;
use std::time::Duration;

use onward_campaign_delivery::{EnvironmentSecrets, ProviderSpec, SecretSource};
use serde_json::{Value, json};

use crate::world::Nothing;

fn spec(document: Value) -> ProviderSpec {
    serde_json::from_value(document).unwrap()
}

fn refused(document: Value) -> String {
    spec(document).build_provider("p", &Nothing).err().unwrap()
}

#[test]
fn a_document_is_read_and_written_alike() {
    for document in [
        json!({ "folder": { "path": "out", "limits": { "per_second": 5 } } }),
        json!({ "smtp": { "url": "smtps://mail.example.org", "user": "shop", "password": { "secret": "MAIL" } } }),
        json!({ "http": {
            "url": "https://api.example.org/send", "auth": { "bearer": { "secret": "API" } },
            "answers": { "later": [500, "502-504"] }, "limits": { "per_domain": { "per_minute": 60 } },
        } }),
    ] {
        let read = spec(document);
        let written = serde_json::to_value(&read).unwrap();
        assert_eq!(spec(written), read);
    }
    for document in [
        json!({ "pigeon": {} }),
        json!({ "folder": { "path": "out", "mode": 7 } }),
        json!({ "folder": { "path": "out" }, "smtp": { "url": "smtp://x" } }),
        json!({ "smtp": { "url": "smtp://x", "password": "hunter2" } }),
    ] {
        assert!(
            serde_json::from_value::<ProviderSpec>(document.clone()).is_err(),
            "{document}"
        );
    }
}

#[test]
fn a_document_says_whom_it_connects_to_and_which_secrets_it_needs() {
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
fn how_it_is_gone_about_fits_the_kind_of_provider_and_what_the_document_says() {
    let mail =
        spec(json!({ "smtp": { "url": "smtp://x", "connections": 6, "timeout_ms": 20_000 } }));
    let terms = mail.dispatch_policy();
    assert_eq!(
        (terms.window, terms.resend_in_doubt, terms.lookup_after_ms),
        (6, false, None)
    );
    assert_eq!(mail.send_timeout(), Duration::from_secs(45));
    let api = spec(json!({ "http": {
        "url": "https://x/{{ key }}", "takes_keys_once": true, "look": { "url": "https://x/{{ key }}", "nothing": [404] },
        "batch": { "max": 20, "items": "", "id": "/id", "status": "/status" },
        "terms": { "calls_max": 9, "attempts_max": 2, "looks_after_ms": 5 },
    } }));
    let terms = api.dispatch_policy();
    assert_eq!(
        (terms.window, terms.resend_in_doubt, terms.lookup_after_ms),
        (160, true, Some(5))
    );
    assert_eq!((terms.max_sends, terms.max_attempts), (9, 2));
    assert_eq!(api.send_timeout(), Duration::from_secs(35));
    let folder =
        spec(json!({ "folder": { "path": "out", "terms": { "window": 3 } } })).dispatch_policy();
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
fn what_makes_no_sense_is_refused_with_the_name_of_the_provider() {
    for (more, said) in [
        (json!({ "limits": { "per_second": 0 } }), "lets nobody pass"),
        (json!({ "terms": { "window": 0 } }), "window"),
        (json!({ "terms": { "calls_max": 0 } }), "calls_max"),
        (
            json!({ "terms": { "looks_after_ms": 5 } }),
            "cannot be asked",
        ),
        (json!({ "timeout_ms": 0 }), "timeout_ms"),
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
        let words = refused(document);
        assert!(
            words.starts_with("provider p: ") && words.contains(said),
            "{more}: {words}"
        );
    }
}

/// Run by the test below with a secret in the environment, and without.
#[test]
fn the_secret_of_this_process() {
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
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "documents::the_secret_of_this_process"])
        .envs([
            ("ONWARD_SECRET_TEST_ONLY", "hunter2"),
            ("EXPECTED_SECRET", "hunter2"),
        ])
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stdout)
    );
}
