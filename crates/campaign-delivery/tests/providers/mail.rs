//! Campaigns by mail to an independent SMTP server, unencrypted and encrypted.

use std::path::PathBuf;

use onward_campaign_core::ItemStatus;
use onward_campaign_file::CampaignRetries;
use onward_testing::TestMailServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::fixture::{ProviderFixture, statuses};

/// Writes a certificate for this machine and its key to files.
fn write_certificate(folder: &TempDir) -> [PathBuf; 2] {
    let generated =
        rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
            .unwrap();
    let files = [
        folder.path().join("cert.pem"),
        folder.path().join("key.pem"),
    ];
    std::fs::write(&files[0], generated.cert.pem()).unwrap();
    std::fs::write(&files[1], generated.signing_key.serialize_pem()).unwrap();
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
async fn every_recipient_receives_one_mail() {
    let server = TestMailServer::start_server(&[]).unwrap();
    let fixture = ProviderFixture::new(spec(
        &format!("smtp://127.0.0.1:{}", server.port()),
        &json!({ "tls": "none" }),
    ));
    let recipients: Vec<(String, String)> = (0..25)
        .map(|it| (format!("r{it}"), format!("r{it}@example.org")))
        .collect();
    let mut all: Vec<(&str, &str)> = recipients
        .iter()
        .map(|(id, to)| (id.as_str(), to.as_str()))
        .collect();
    all.push(("invalid", "no address"));
    let items = fixture.send(&all).await;
    assert_eq!(items["invalid"], "failed invalid_message");
    assert_eq!(
        items.values().filter(|it| *it == "sent").count(),
        25,
        "{items:?}"
    );
    let mails = server.received_mails().unwrap();
    assert_eq!(mails.len(), 25);
    for row in fixture
        .item_rows()
        .await
        .iter()
        .filter(|row| row.status == ItemStatus::Sent)
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
async fn mail_is_encrypted_by_implicit_tls_or_starttls() {
    let folder = tempfile::tempdir().unwrap();
    let [certificate, key] = write_certificate(&folder);
    let (cert, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let implicit = TestMailServer::start_server(&["--smtpscert", cert, "--smtpskey", key]).unwrap();
    let starttls = TestMailServer::start_server(&["--tlscert", cert, "--tlskey", key]).unwrap();
    for (scheme, server) in [("smtps", &implicit), ("smtp", &starttls)] {
        let url = format!("{scheme}://localhost:{}", server.port());
        let fixture = ProviderFixture::new(spec(&url, &json!({ "ca_file": cert })));
        assert_eq!(
            fixture.send(&[("ada", "ada@example.org")]).await,
            statuses(&[("ada", "sent")]),
            "{scheme}"
        );
        assert_eq!(server.received_mails().unwrap().len(), 1);
        // Without the file, the certificate is not trusted. The server counts as unreachable.
        let retries = CampaignRetries {
            max_sends: 1,
            max_attempts: 1,
            ..CampaignRetries::default()
        };
        let fixture = ProviderFixture::with_retries(
            spec(&url, &json!({ "policy": { "max_unreachable_ms": 0 } })),
            retries,
        );
        assert_eq!(
            fixture.send(&[("ada", "ada@example.org")]).await,
            statuses(&[("ada", "failed exhausted")]),
            "{scheme}"
        );
        assert_eq!(server.received_mails().unwrap().len(), 1);
    }
}
