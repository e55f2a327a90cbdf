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

struct Known;

impl SecretSource for Known {
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
    spec.build_provider("mail", &Known).unwrap()
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
        item: "j.0",
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

fn kind(answer: &SendOutcome) -> &'static str {
    match answer {
        SendOutcome::Accepted(_) => "accepted",
        SendOutcome::Refused(_) => "refused",
        SendOutcome::Deferred(_) => "later",
        SendOutcome::Throttled(..) => "busy",
        SendOutcome::Unknown(_) => "unknown",
        SendOutcome::InvalidMessage(_) => "unfit",
    }
}

#[tokio::test]
async fn a_message_that_the_server_takes_is_accepted_by_its_id() {
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
async fn what_the_server_says_at_each_moment_is_answered() {
    let table = [
        (SmtpFaultPoint::Greeting, "421 too many", "busy"),
        (SmtpFaultPoint::Greeting, "450 not now", "busy"),
        (SmtpFaultPoint::Greeting, "554 go away", "busy"),
        (SmtpFaultPoint::Ehlo, "421 closing", "busy"),
        (SmtpFaultPoint::Ehlo, "550 who?", "busy"),
        (SmtpFaultPoint::Mail, "421 closing", "busy"),
        (SmtpFaultPoint::Mail, "452 full", "busy"),
        (SmtpFaultPoint::Mail, "550 no such sender", "refused"),
        (SmtpFaultPoint::Recipient, "450 greylisted", "later"),
        (SmtpFaultPoint::Recipient, "421 closing", "busy"),
        (SmtpFaultPoint::Recipient, "550 no such user", "refused"),
        (SmtpFaultPoint::Data, "451 try again", "later"),
        (SmtpFaultPoint::Data, "554 no", "refused"),
        (SmtpFaultPoint::Data, "250 what?", "later"),
        (SmtpFaultPoint::EndOfData, "451 try again", "later"),
        (SmtpFaultPoint::EndOfData, "421 closing", "later"),
        (SmtpFaultPoint::EndOfData, "554 spam", "refused"),
        (SmtpFaultPoint::EndOfData, "nonsense", "unknown"),
        (SmtpFaultPoint::EndOfData, "354 what?", "unknown"),
        (SmtpFaultPoint::Mail, "nonsense", "later"),
    ];
    for (at, said, expected) in table {
        let server = ScriptedSmtpServer::start_with_fault(at, SmtpFault::Reply(said)).await;
        let answer = send(&provider(server.port, &json!({}))).await;
        assert_eq!(kind(&answer), expected, "{at:?} {said}: {answer:?}");
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
        let answer = send(&provider(server.port, &json!({}))).await;
        assert_eq!(kind(&answer), "later", "{at:?}: {answer:?}");
        assert_eq!(server.message_count(), 0);
    }
    let server =
        ScriptedSmtpServer::start_with_fault(SmtpFaultPoint::EndOfData, SmtpFault::Disconnect)
            .await;
    let answer = send(&provider(server.port, &json!({}))).await;
    assert_eq!(kind(&answer), "unknown", "{answer:?}");
    assert_eq!(server.message_count(), 1);
}

#[tokio::test]
async fn a_long_message_that_could_not_be_written_whole_was_not_sent() {
    let server =
        ScriptedSmtpServer::start_with_fault(SmtpFaultPoint::Content, SmtpFault::Disconnect).await;
    let long = "A line of text that is repeated very often.\r\n".repeat(300_000);
    let answer = send_to(&provider(server.port, &json!({})), "ada@example.org", &long).await;
    assert_eq!(kind(&answer), "later", "{answer:?}");
    // The outcome of a short message is unknown: all of it was written before the client noticed
    // the lost connection.
    let answer = send(&provider(server.port, &json!({}))).await;
    assert_eq!(kind(&answer), "unknown", "{answer:?}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_in_time_leaves_doubt_only_at_the_end() {
    for (at, expected) in [
        (SmtpFaultPoint::Greeting, "later"),
        (SmtpFaultPoint::Mail, "later"),
        (SmtpFaultPoint::Recipient, "later"),
        (SmtpFaultPoint::Data, "later"),
        (SmtpFaultPoint::EndOfData, "unknown"),
    ] {
        let server = ScriptedSmtpServer::start_with_fault(at, SmtpFault::Hang).await;
        let answer = send(&provider(server.port, &json!({ "timeout_ms": 300 }))).await;
        assert_eq!(kind(&answer), expected, "{at:?}: {answer:?}");
        assert!(format!("{answer:?}").contains("in time"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_has_taken_nothing() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let answer = send(&provider(port, &json!({}))).await;
    let words = format!("could not connect to 127.0.0.1:{port}: Connection refused");
    assert!(
        matches!(&answer, SendOutcome::Deferred(said) if said.starts_with(&words)),
        "{answer:?}"
    );
}

#[tokio::test]
async fn messages_share_a_connection_and_a_refused_recipient_does_not_spoil_it() {
    let whim = |at, said| ScriptedFault {
        connection: Some(0),
        point: at,
        fault: SmtpFault::Reply(said),
    };
    let server =
        ScriptedSmtpServer::start(vec![whim(SmtpFaultPoint::Recipient, "550 no such user")]).await;
    let smtp = provider(server.port, &json!({}));
    for _ in 0..3 {
        assert_eq!(kind(&send(&smtp).await), "refused");
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
        assert_eq!(kind(&send(&smtp).await), "accepted");
    }
    assert_eq!((server.connection_count(), server.message_count()), (1, 3));
}

#[tokio::test]
async fn a_connection_that_the_server_has_closed_meanwhile_is_replaced() {
    for act in [
        SmtpFault::Disconnect,
        SmtpFault::Reply("421 idle for too long"),
    ] {
        let whim = ScriptedFault {
            connection: Some(0),
            point: SmtpFaultPoint::Mail,
            fault: act,
        };
        let server = ScriptedSmtpServer::start(vec![whim]).await;
        let smtp = provider(server.port, &json!({}));
        // A connection on which the server injects the fault at the next `MAIL FROM`.
        let stale = smtp
            .pool
            .open_connection(Instant::now() + Duration::from_secs(5))
            .await
            .unwrap();
        smtp.pool.return_connection(stale, Instant::now());
        assert_eq!(kind(&send(&smtp).await), "accepted");
        assert_eq!((server.connection_count(), server.message_count()), (2, 1));
    }
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_not_kept() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({ "idle_ms": 0 }));
    for _ in 0..2 {
        assert_eq!(kind(&send(&smtp).await), "accepted");
    }
    assert_eq!(server.connection_count(), 2);
}

#[tokio::test]
async fn a_connection_that_nobody_uses_is_closed_even_if_nobody_sends_any_more() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({ "idle_ms": 100 }));
    assert_eq!(kind(&send(&smtp).await), "accepted");
    while server.log.lock().unwrap().closed == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.connection_count(), 1);
}

#[tokio::test]
async fn no_more_connections_are_made_than_there_may_be() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({ "connections": 2, "timeout_ms": 200 }));
    let all = smtp.connection_permits.acquire_many(2).await.unwrap();
    let crowded = send(&smtp).await;
    assert!(
        matches!(crowded, SendOutcome::Throttled(_, Some(1..))),
        "waiting for a connection is no try: {crowded:?}"
    );
    assert_eq!(server.connection_count(), 0);
    drop(all);
    let answers = futures_util::future::join_all((0..10).map(|_| send(&smtp))).await;
    assert!(
        answers.iter().all(|answer| kind(answer) == "accepted"),
        "{answers:?}"
    );
    assert_eq!((server.connection_count(), server.message_count()), (2, 10));
}

#[test]
fn there_is_room_for_as_many_items_as_there_are_connections() {
    for connections in [1, 4, 7] {
        let smtp = provider(2525, &json!({ "connections": connections }));
        let (room, again) = (smtp.send_permits().unwrap(), smtp.send_permits().unwrap());
        assert_eq!(room.available_permits(), connections);
        let _taken = room.try_acquire_many_owned(1).unwrap();
        assert_eq!(
            again.available_permits(),
            connections - 1,
            "all lanes share it"
        );
    }
}

#[tokio::test]
async fn a_password_is_sent_and_never_printed_and_a_wrong_one_refuses_nobody() {
    let login = json!({ "user": "shop", "password": { "secret": "MAIL" } });
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &login);
    assert_eq!(kind(&send(&smtp).await), "accepted");
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
    let answer = send(&provider(server.port, &login)).await;
    assert_eq!(kind(&answer), "busy");
    assert!(
        format!("{answer:?}").contains("wrong password (secret) (secret)"),
        "{answer:?}"
    );
}

#[tokio::test]
async fn a_server_without_encryption_is_not_used_unless_somebody_says_so() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let answer = send(&provider(server.port, &json!({ "tls": "starttls" }))).await;
    assert_eq!(kind(&answer), "busy");
    assert!(format!("{answer:?}").contains("STARTTLS"), "{answer:?}");
    let commands = server.log.lock().unwrap().commands.clone();
    assert!(
        !commands
            .iter()
            .any(|it| it.starts_with("MAIL") || it.starts_with("AUTH")),
        "{commands:?}"
    );
}

#[tokio::test]
async fn what_cannot_be_made_is_not_sent() {
    let server = ScriptedSmtpServer::start(Vec::new()).await;
    let smtp = provider(server.port, &json!({}));
    for to in ["nobody", "ada@example.org\r\nRCPT TO:<eve@example.org>"] {
        assert_eq!(kind(&send_to(&smtp, to, "Hi").await), "unfit");
    }
    let answer = send_to(&smtp, "ädä@example.org", "Hi").await;
    assert_eq!(kind(&answer), "refused", "{answer:?}");
    assert_eq!(server.message_count(), 0);
}

#[test]
fn what_is_wrong_in_a_document_is_said() {
    let refused = |more: serde_json::Value| {
        spec(&more)
            .unwrap()
            .build_provider("mail", &Known)
            .unwrap_err()
    };
    for (more, said) in [
        (json!({ "url": "smtp://mail.example.org" }), "in the clear"),
        (json!({ "url": "smtp://10.0.0.1" }), "in the clear"),
        (
            json!({ "url": "smtps://mail.example.org" }),
            "leave tls out",
        ),
        (
            json!({ "url": "http://mail.example.org" }),
            "not the URL of a server of mail",
        ),
        (
            json!({ "url": "smtp://127.0.0.1/x" }),
            "not the URL of a server of mail",
        ),
        (json!({ "url": "mail.example.org" }), "not a URL"),
        (
            json!({ "url": "smtp://shop:hunter2@127.0.0.1" }),
            "no place for a password",
        ),
        (json!({ "user": "shop" }), "no password"),
        (json!({ "password": { "secret": "MAIL" } }), "no user"),
        (
            json!({ "user": "shop", "password": { "secret": "NONE" } }),
            "ONWARD_SECRET_NONE",
        ),
        (json!({ "from": "nobody" }), "is not an address"),
        (json!({ "domain": "a b" }), "is not a domain"),
        (json!({ "connections": 0 }), "connections"),
        (json!({ "ca_file": "nowhere.pem" }), "nowhere.pem"),
    ] {
        let words = refused(more.clone());
        assert!(words.contains(said), "{more}: {words}");
        assert!(!words.contains("hunter2"));
    }
    assert!(
        spec(&json!({ "url": "smtp://mail.example.org", "allow_plaintext": true }))
            .unwrap()
            .build_provider("m", &Known)
            .is_ok()
    );
    assert!(spec(&json!({ "passwort": "x" })).is_err());
    assert!(spec(&json!({ "user": "shop", "password": "hunter2" })).is_err());
}
