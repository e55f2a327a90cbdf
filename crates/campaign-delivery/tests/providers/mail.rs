//! Mail to a server that others wrote, in the clear and encrypted.

use std::path::PathBuf;

use onward_testing::TestMailServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{World, expect};

/// A certificate for this machine and its key, in files.
fn certificate(folder: &TempDir) -> [PathBuf; 2] {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .unwrap();
    let files = [
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    ];
    std::fs::write(&files[0], made.cert.pem()).unwrap();
    std::fs::write(&files[1], made.signing_key.serialize_pem()).unwrap();
    files
}

fn spec(url: &str, more: &Value) -> Value {
    let mut spec = json!({ "url": url, "timeout_ms": 10_000 });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    json!({ "smtp": spec })
}

#[tokio::test]
async fn a_campaign_reaches_everybody_once_by_mail() {
    let sink = TestMailServer::start_server(&[]).unwrap();
    let world = World::new(spec(
        &format!("smtp://127.0.0.1:{}", sink.port()),
        &json!({ "tls": "none" }),
    ));
    let recipients: Vec<(String, String)> = (0..25)
        .map(|it| (format!("r{it}"), format!("r{it}@example.org")))
        .collect();
    let mut all: Vec<(&str, &str)> = recipients
        .iter()
        .map(|(id, to)| (id.as_str(), to.as_str()))
        .collect();
    all.push(("nobody", "no address"));
    let items = world.send(&all).await;
    assert_eq!(items["nobody"], "failed unfit");
    assert_eq!(
        items.values().filter(|it| *it == "sent").count(),
        25,
        "{items:?}"
    );
    let mails = sink.received_mails().unwrap();
    assert_eq!(mails.len(), 25);
    for row in world
        .rows()
        .await
        .iter()
        .filter(|row| &*row.status == "sent")
    {
        let id = format!("Message-ID: <{}@example.com>", row.idempotency_key);
        assert_eq!(mails.iter().filter(|mail| mail.contains(&id)).count(), 1);
        assert_eq!(
            row.provider_message_id.as_deref(),
            Some(&*format!("{}@example.com", row.idempotency_key))
        );
    }
    for part in [
        "multipart/alternative",
        "List-Unsubscribe-Post: List-Unsubscribe=One-Click",
        "Subject: =?utf-8?b?",
    ] {
        assert!(mails[0].contains(part), "{part}: {}", mails[0]);
    }
}

#[tokio::test]
async fn mail_is_encrypted_from_the_first_byte_or_by_starttls() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = certificate(&folder);
    let (cert, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let wrapped = TestMailServer::start_server(&["--smtpscert", cert, "--smtpskey", key]).unwrap();
    let upgraded = TestMailServer::start_server(&["--tlscert", cert, "--tlskey", key]).unwrap();
    for (scheme, sink) in [("smtps", &wrapped), ("smtp", &upgraded)] {
        let url = format!("{scheme}://localhost:{}", sink.port());
        let world = World::new(spec(&url, &json!({ "ca_file": cert })));
        assert_eq!(
            world.send(&[("ada", "ada@example.org")]).await,
            expect(&[("ada", "sent")]),
            "{scheme}"
        );
        assert_eq!(sink.received_mails().unwrap().len(), 1);
        // Without the file, the certificate is one that nobody trusts.
        let terms = json!({ "attempts_max": 1, "calls_max": 1 });
        let world = World::new(spec(&url, &json!({ "terms": terms })));
        assert_eq!(
            world.send(&[("ada", "ada@example.org")]).await,
            expect(&[("ada", "failed exhausted")]),
            "{scheme}"
        );
        assert_eq!(sink.received_mails().unwrap().len(), 1);
    }
}
