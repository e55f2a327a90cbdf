//! Tests of the SMTP provider's outcomes, against a server with a fault at every possible point of
//! the protocol.

use std::time::Duration;

use onward_campaign_core::{RenderedMessage, SendOutcome};
use onward_campaign_dispatch::Provider as _;
use serde_json::json;
use tokio::time::Instant;

use super::scripted_server::{ScriptedFault, ScriptedSmtpServer, SmtpFault, SmtpFaultPoint};
use super::{SmtpProvider, SmtpSpec};
use crate::outgoing_item::OutgoingItem;
use crate::secret::SecretSource;

struct SmtpTestSecrets;

impl SecretSource for SmtpTestSecrets {
    fn lookup_secret(&self, name: &str) -> Option<String> {
        (name == "MAIL").then(|| "hunter2".to_owned())
    }
}

fn spec(more: &serde_json::Value) -> Result<SmtpSpec, serde_json::Error> {
    let mut spec = json!({ "url": "smtp://127.0.0.1:2525", "tls": "none", "timeout_ms": 5_000 });
    spec.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    serde_json::from_value(spec)
}

fn provider(port: u16, more: &serde_json::Value) -> SmtpProvider {
    let mut spec = spec(more).unwrap();
    spec.url = format!("smtp://127.0.0.1:{port}");
    spec.build_provider("mail", &SmtpTestSecrets).unwrap()
}

async fn send_to(smtp: &SmtpProvider, to: &str, text: &str) -> SendOutcome {
    let parts = [
        ("from", "shop@example.com"),
        ("subject", "Hello"),
        ("text", text),
    ];
    let message = RenderedMessage {
        parts: parts
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .to_vec(),
    };
    smtp.send_mail(&OutgoingItem {
        item_id: "j.0",
        key: "ab12",
        to,
        recipient: "ada",
        message: &message,
    })
    .await
}

async fn send(smtp: &SmtpProvider) -> SendOutcome {
    send_to(smtp, "ada@example.org", "Hi").await
}

fn outcome_name(outcome: &SendOutcome) -> &'static str {
    match outcome {
        SendOutcome::Accepted(_) => "accepted",
        SendOutcome::Refused(_) => "refused",
        SendOutcome::Deferred(_) => "deferred",
        SendOutcome::Unreachable(_) => "unreachable",
        SendOutcome::Throttled(..) => "throttled",
        SendOutcome::Unknown(_) => "unknown",
        SendOutcome::InvalidMessage(_) => "invalid",
    }
}

#[tokio::test]
async fn an_accepted_message_is_reported_with_its_message_id() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({}));
    assert_eq!(
        send_to(&smtp, "ada@example.org", "Hi\r\n.\r\nQUIT\r\n..\n").await,
        SendOutcome::Accepted(Some("ab12@example.com".into()))
    );
    let message = server.log.lock().unwrap().messages[0].clone();
    assert!(
        message.contains("Message-ID: <ab12@example.com>"),
        "{message}"
    );
    assert!(message.contains("\r\n..\r\nQUIT\r\n"), "{message}");
}

#[tokio::test]
async fn each_reply_of_the_server_maps_to_an_outcome() {
    let table = [
        (SmtpFaultPoint::Greeting, "421 too many", "throttled"),
        (SmtpFaultPoint::Greeting, "450 not now", "throttled"),
        (SmtpFaultPoint::Greeting, "554 not allowed", "throttled"),
        (SmtpFaultPoint::Ehlo, "421 closing", "throttled"),
        (SmtpFaultPoint::Ehlo, "550 unknown client", "throttled"),
        (SmtpFaultPoint::Mail, "421 closing", "throttled"),
        (SmtpFaultPoint::Mail, "452 full", "throttled"),
        (SmtpFaultPoint::Mail, "550 no such sender", "refused"),
        (SmtpFaultPoint::Recipient, "450 greylisted", "deferred"),
        (SmtpFaultPoint::Recipient, "421 closing", "throttled"),
        (SmtpFaultPoint::Recipient, "550 no such user", "refused"),
        (SmtpFaultPoint::Data, "451 try again", "deferred"),
        (SmtpFaultPoint::Data, "554 no", "refused"),
        (SmtpFaultPoint::Data, "250 what?", "deferred"),
        (SmtpFaultPoint::EndOfData, "451 try again", "deferred"),
        (SmtpFaultPoint::EndOfData, "421 closing", "deferred"),
        (SmtpFaultPoint::EndOfData, "554 spam", "refused"),
        (SmtpFaultPoint::EndOfData, "nonsense", "unknown"),
        (SmtpFaultPoint::EndOfData, "354 what?", "unknown"),
        (SmtpFaultPoint::Mail, "nonsense", "deferred"),
    ];
    for (at, reply, expected) in table {
        let server = ScriptedSmtpServer::start_with_fault(at, SmtpFault::Reply(reply)).await;
        let outcome = send(&provider(server.port, &json!({}))).await;
        assert_eq!(
            outcome_name(&outcome),
            expected,
            "{at:?} {reply}: {outcome:?}"
        );
        assert_eq!(
            server.message_count(),
            usize::from(at == SmtpFaultPoint::EndOfData)
        );
    }
}

#[tokio::test]
async fn a_lost_connection_is_in_doubt_only_after_the_end_of_the_message() {
    for at in [
        SmtpFaultPoint::Greeting,
        SmtpFaultPoint::Ehlo,
        SmtpFaultPoint::Mail,
        SmtpFaultPoint::Recipient,
        SmtpFaultPoint::Data,
    ] {
        let server = ScriptedSmtpServer::start_with_fault(at, SmtpFault::Disconnect).await;
        let outcome = send(&provider(server.port, &json!({}))).await;
        let expected = match at {
            SmtpFaultPoint::Greeting | SmtpFaultPoint::Ehlo => "unreachable",
            _ => "deferred",
        };
        assert_eq!(outcome_name(&outcome), expected, "{at:?}: {outcome:?}");
        assert_eq!(server.message_count(), 0);
    }
    let server =
        ScriptedSmtpServer::start_with_fault(SmtpFaultPoint::EndOfData, SmtpFault::Disconnect)
            .await;
    let outcome = send(&provider(server.port, &json!({}))).await;
    assert_eq!(outcome_name(&outcome), "unknown", "{outcome:?}");
    assert_eq!(server.message_count(), 1);
}

#[tokio::test]
async fn a_long_message_that_was_not_written_completely_was_not_sent() {
    let server =
        ScriptedSmtpServer::start_with_fault(SmtpFaultPoint::Content, SmtpFault::Disconnect).await;
    let long = "A line of text that is repeated very often.\r\n".repeat(300_000);
    let outcome = send_to(&provider(server.port, &json!({})), "ada@example.org", &long).await;
    assert_eq!(outcome_name(&outcome), "deferred", "{outcome:?}");
    // The outcome of a short message is unknown: all of it was written before the client noticed
    // the lost connection.
    let outcome = send(&provider(server.port, &json!({}))).await;
    assert_eq!(outcome_name(&outcome), "unknown", "{outcome:?}");
}

#[tokio::test]
async fn a_timeout_is_in_doubt_only_after_the_end_of_the_message() {
    for (at, expected) in [
        (SmtpFaultPoint::Greeting, "unreachable"),
        (SmtpFaultPoint::Mail, "deferred"),
        (SmtpFaultPoint::Recipient, "deferred"),
        (SmtpFaultPoint::Data, "deferred"),
        (SmtpFaultPoint::EndOfData, "unknown"),
    ] {
        let server = ScriptedSmtpServer::start_with_fault(at, SmtpFault::Hang).await;
        let outcome = send(&provider(server.port, &json!({ "timeout_ms": 300 }))).await;
        assert_eq!(outcome_name(&outcome), expected, "{at:?}: {outcome:?}");
        assert!(
            format!("{outcome:?}").contains("did not reply before the timeout"),
            "{outcome:?}"
        );
    }
}

#[tokio::test]
async fn an_unreachable_server_has_accepted_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let outcome = send(&provider(port, &json!({}))).await;
    let expected = format!("cannot connect to 127.0.0.1:{port}: Connection refused");
    assert!(
        matches!(&outcome, SendOutcome::Unreachable(error) if error.starts_with(&expected)),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_connection_is_reused_also_after_a_rejected_recipient() {
    let fault = |point, reply| ScriptedFault {
        connection: Some(0),
        point,
        fault: SmtpFault::Reply(reply),
    };
    let server =
        ScriptedSmtpServer::start(vec![fault(SmtpFaultPoint::Recipient, "550 no such user")]).await;
    let smtp = provider(server.port, &json!({}));
    for _ in 0..3 {
        assert_eq!(outcome_name(&send(&smtp).await), "refused");
    }
    assert_eq!(server.connection_count(), 1);
    let resets = server
        .log
        .lock()
        .unwrap()
        .commands
        .iter()
        .filter(|it| *it == "RSET")
        .count();
    assert_eq!(resets, 3);
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({}));
    for _ in 0..3 {
        assert_eq!(outcome_name(&send(&smtp).await), "accepted");
    }
    assert_eq!((server.connection_count(), server.message_count()), (1, 3));
}

#[tokio::test]
async fn an_idle_connection_that_the_server_closed_is_replaced() {
    for fault in [
        SmtpFault::Disconnect,
        SmtpFault::Reply("421 idle for too long"),
    ] {
        let scripted = ScriptedFault {
            connection: Some(0),
            point: SmtpFaultPoint::Mail,
            fault,
        };
        let server = ScriptedSmtpServer::start(vec![scripted]).await;
        let smtp = provider(server.port, &json!({}));
        // A connection on which the server injects the fault at the next `MAIL FROM`.
        let stale = smtp
            .pool
            .open_connection(Instant::now() + Duration::from_secs(5))
            .await
            .unwrap();
        smtp.pool.return_connection(stale, Instant::now());
        assert_eq!(outcome_name(&send(&smtp).await), "accepted");
        assert_eq!((server.connection_count(), server.message_count()), (2, 1));
    }
}

#[tokio::test]
async fn an_idle_timeout_of_zero_keeps_no_connection() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({ "idle_timeout_ms": 0 }));
    for _ in 0..2 {
        assert_eq!(outcome_name(&send(&smtp).await), "accepted");
    }
    assert_eq!(server.connection_count(), 2);
}

#[tokio::test]
async fn an_idle_connection_is_closed_without_another_send() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({ "idle_timeout_ms": 100 }));
    assert_eq!(outcome_name(&send(&smtp).await), "accepted");
    while server.log.lock().unwrap().closed == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn the_number_of_connections_never_exceeds_the_maximum() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(
        server.port,
        &json!({ "max_connections": 2, "timeout_ms": 200 }),
    );
    let all = smtp.connection_permits.acquire_many(2).await.unwrap();
    let throttled = send(&smtp).await;
    assert!(
        matches!(throttled, SendOutcome::Throttled(_, Some(1..))),
        "a wait for a connection is not counted as a send: {throttled:?}"
    );
    assert_eq!(server.connection_count(), 0);
    drop(all);
    let outcomes = futures_util::future::join_all((0..10).map(|_| send(&smtp))).await;
    assert!(
        outcomes
            .iter()
            .all(|outcome| outcome_name(outcome) == "accepted"),
        "{outcomes:?}"
    );
    assert_eq!((server.connection_count(), server.message_count()), (2, 10));
}

#[test]
fn there_are_as_many_send_permits_as_connections() {
    for connections in [1, 4, 7] {
        let smtp = provider(2525, &json!({ "max_connections": connections }));
        let (first, second) = (smtp.send_permits().unwrap(), smtp.send_permits().unwrap());
        assert_eq!(first.available_permits(), connections);
        let _taken = first.try_acquire_many_owned(1).unwrap();
        assert_eq!(
            second.available_permits(),
            connections - 1,
            "all workers share the permits"
        );
    }
}

#[tokio::test]
async fn a_password_is_sent_but_never_printed_and_a_rejected_login_throttles() {
    let login = json!({ "user": "shop", "password": { "secret": "MAIL" } });
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &login);
    assert_eq!(outcome_name(&send(&smtp).await), "accepted");
    let printed = format!("{smtp:?}");
    assert!(
        !printed.contains("hunter2") && printed.contains("(secret)"),
        "{printed}"
    );
    let commands = server.log.lock().unwrap().commands.clone();
    // The decoded credentials: NUL shop NUL hunter2.
    assert!(
        commands.contains(&"AUTH PLAIN AHNob3AAaHVudGVyMg==".to_owned()),
        "{commands:?}"
    );
    let server = ScriptedSmtpServer::start_with_fault(
        SmtpFaultPoint::Auth,
        SmtpFault::Reply("535 wrong password hunter2 AHNob3AAaHVudGVyMg=="),
    )
    .await;
    let outcome = send(&provider(server.port, &login)).await;
    assert_eq!(outcome_name(&outcome), "throttled");
    assert!(
        format!("{outcome:?}").contains("wrong password (secret) (secret)"),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_server_without_starttls_is_not_used_unless_plaintext_is_allowed() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let outcome = send(&provider(server.port, &json!({ "tls": "starttls" }))).await;
    assert_eq!(outcome_name(&outcome), "throttled");
    assert!(format!("{outcome:?}").contains("STARTTLS"), "{outcome:?}");
    let commands = server.log.lock().unwrap().commands.clone();
    assert!(
        !commands
            .iter()
            .any(|it| it.starts_with("MAIL") || it.starts_with("AUTH")),
        "{commands:?}"
    );
}

#[tokio::test]
async fn a_mail_that_cannot_be_built_is_not_sent() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({}));
    for to in ["no-address", "ada@example.org\r\nRCPT TO:<eve@example.org>"] {
        assert_eq!(outcome_name(&send_to(&smtp, to, "Hi").await), "invalid");
    }
    let outcome = send_to(&smtp, "ädä@example.org", "Hi").await;
    assert_eq!(outcome_name(&outcome), "refused", "{outcome:?}");
    assert_eq!(server.message_count(), 0);
}

#[test]
fn an_invalid_configuration_is_rejected_with_the_name_of_the_setting() {
    let error_of = |more: serde_json::Value| {
        spec(&more)
            .unwrap()
            .build_provider("mail", &SmtpTestSecrets)
            .unwrap_err()
            .to_string()
    };
    for (more, expected) in [
        (
            json!({ "url": "smtp://mail.example.org" }),
            "would send mail unencrypted",
        ),
        (
            json!({ "url": "smtp://10.0.0.1" }),
            "would send mail unencrypted",
        ),
        (
            json!({ "url": "smtps://mail.example.org" }),
            "remove `smtp.tls`",
        ),
        (
            json!({ "url": "http://mail.example.org" }),
            "is not the URL of an SMTP server",
        ),
        (
            json!({ "url": "smtp://127.0.0.1/x" }),
            "is not the URL of an SMTP server",
        ),
        (
            json!({ "url": "mail.example.org" }),
            "`smtp.url` is not a URL",
        ),
        (
            json!({ "url": "smtp://shop:hunter2@127.0.0.1" }),
            "must not contain a user name or password",
        ),
        (
            json!({ "url": "smtp://shop:hunter2@127.0.0.1:99999" }),
            "`smtp.url` is not a URL",
        ),
        (json!({ "user": "shop" }), "requires `smtp.password`"),
        (
            json!({ "password": { "secret": "MAIL" } }),
            "requires `smtp.user`",
        ),
        (
            json!({ "user": "shop", "password": { "secret": "NONE" } }),
            "ONWARD_SECRET_NONE",
        ),
        (
            json!({ "from": "no-address" }),
            "`smtp.from` is not an email address",
        ),
        (
            json!({ "domain": "a b" }),
            "`smtp.domain` is not a domain name",
        ),
        (
            json!({ "max_connections": 0 }),
            "`smtp.max_connections` is 0",
        ),
        (json!({ "ca_file": "missing.pem" }), "missing.pem"),
    ] {
        let error = error_of(more.clone());
        assert!(error.contains(expected), "{more}: {error}");
        assert!(!error.contains("hunter2"));
    }
}

#[test]
fn plaintext_can_be_allowed_and_a_password_cannot_be_written_out() {
    assert!(
        spec(&json!({ "url": "smtp://mail.example.org", "allow_plaintext": true }))
            .unwrap()
            .build_provider("m", &SmtpTestSecrets)
            .is_ok()
    );
    assert!(spec(&json!({ "passwort": "x" })).is_err());
    assert!(spec(&json!({ "user": "shop", "password": "hunter2" })).is_err());
}
