//! `campaign watch` on runs that make no progress: the command reports why, and ends if only an
//! operator can continue.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;

use crate::http_server::{Server, create_token};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// Starts an HTTP service whose responses leave the outcome unknown. Returns its port.
pub(crate) fn start_failing_service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream
                .write_all(b"HTTP/1.1 500 No\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    port
}

/// Writes a campaign for three recipients with this provider.
pub(crate) fn write_campaign(folder: &TempDir, provider: &str) -> PathBuf {
    let (file, audience) = (
        folder.path().join("news.yaml"),
        folder.path().join("people.csv"),
    );
    std::fs::write(
        audience,
        "id,email\np1,a@people.example\np2,b@people.example\np3,c@people.example\n",
    )
    .unwrap();
    let template = "template: { from: news@people.example, subject: Hi, text: Hello }";
    let yaml = format!(
        "campaign: news\nchannel: email\nprovider: {provider}\n{template}\naudience: {{ file: people.csv }}\n"
    );
    std::fs::write(&file, yaml).unwrap();
    file
}

#[test]
fn watch_ends_when_only_items_in_doubt_are_left() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let provider = format!(
        "{{ http: {{ url: \"http://127.0.0.1:{}/\", body: \"{{}}\" }} }}",
        start_failing_service()
    );
    let file = write_campaign(&folder, &provider);
    let server = Server::start(&fixture, &["--inline-providers"]);
    let engineer = create_token(&fixture, "engineer", &[]);
    let deployed = server.run(
        &engineer,
        &["campaign", "deploy", file.to_str().unwrap(), "--watch"],
    );
    let stderr = text(&deployed.stderr);
    assert_eq!(deployed.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.ends_with(
            "3 items in doubt: list with onward outbox in-doubt, then record each outcome with \
             onward outbox settle\n"
        ),
        "{stderr}"
    );
    let run = text(&deployed.stdout).lines().next().unwrap().to_owned();
    let watched = server.run(&engineer, &["campaign", "watch", &run, "--json"]);
    assert_eq!(watched.status.code(), Some(1));
    let last: serde_json::Value =
        serde_json::from_str(text(&watched.stdout).lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["counts"]["inDoubt"], &last["status"]),
        (&3.into(), &"running".into())
    );
    // Settling the items completes the run.
    let settled = server.run(
        &engineer,
        &[
            "outbox",
            "settle",
            "--run",
            &run,
            "sent",
            "--reason",
            "provider log",
        ],
    );
    assert_eq!(settled.status.code(), Some(0), "{}", text(&settled.stderr));
    assert_eq!(
        server
            .run(&engineer, &["campaign", "watch", &run])
            .status
            .code(),
        Some(0)
    );
}

#[test]
fn watch_reports_why_no_server_can_send_the_run() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let file = write_campaign(&folder, "mailer");
    let deployed = fixture.run(&["campaign", "deploy", file.to_str().unwrap()]);
    let run = text(&deployed.stdout).trim().to_owned();
    let server = Server::start(&fixture, &[]);
    let operator = create_token(&fixture, "operator", &[]);
    let mut watch = server.command(&operator, &["campaign", "watch", &run]);
    let mut watching = watch
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(watching.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    let reported = lines
        .find(|line| line.contains("cannot send the run"))
        .unwrap();
    assert!(
        reported.ends_with(
            " cannot send the run: unknown provider mailer: this server has no providers"
        ),
        "{reported}"
    );
    // The command continues to watch.
    assert_eq!(
        server
            .run(&operator, &["campaign", "cancel", &run])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(watching.wait().unwrap().code(), Some(1));
    assert_eq!(
        lines
            .filter(|line| line.contains("cannot send the run"))
            .count(),
        0,
        "the reason is reported once"
    );
}
