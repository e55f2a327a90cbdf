//! Watching campaign runs that do not go on by themselves: why is said, and nobody watches in vain.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Stdio;

use tempfile::TempDir;

use crate::server::{Server, token};
use crate::text;
use crate::work::Place;

/// A service that never says what became of a request.
pub(crate) fn service() -> u16 {
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

/// A campaign for three people by this provider.
pub(crate) fn campaign(folder: &TempDir, provider: &str) -> PathBuf {
    let (file, people) = (
        folder.path().join("news.yaml"),
        folder.path().join("people.csv"),
    );
    std::fs::write(
        people,
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
fn watching_ends_when_only_verdicts_are_left_to_be_given() {
    let (place, folder) = (Place::sqlite(), tempfile::tempdir().unwrap());
    let provider = format!(
        "{{ http: {{ url: \"http://127.0.0.1:{}/\", body: \"{{}}\" }} }}",
        service()
    );
    let file = campaign(&folder, &provider);
    let server = Server::of(&place, &["--inline-providers"]);
    let engineer = token(&place, "engineer", &[]);
    let deployed = server.run(
        &engineer,
        &["campaign", "deploy", file.to_str().unwrap(), "--watch"],
    );
    let said = text(&deployed.stderr);
    assert_eq!(deployed.status.code(), Some(1), "{said}");
    assert!(
        said.ends_with("3 in doubt wait for your verdict: onward outbox in-doubt\n"),
        "{said}"
    );
    let run = text(&deployed.stdout).lines().next().unwrap().to_owned();
    let watched = server.run(&engineer, &["campaign", "watch", &run, "--json"]);
    assert_eq!(watched.status.code(), Some(1));
    let last: serde_json::Value =
        serde_json::from_str(text(&watched.stdout).lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["tally"]["inDoubt"], &last["status"]),
        (&3.into(), &"running".into())
    );
    // Whoever has asked the provider says so, and it is over.
    let settled = server.run(
        &engineer,
        &[
            "outbox", "settle", "--run", &run, "sent", "--why", "its log",
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
fn whoever_watches_a_run_that_no_server_can_send_is_told_why() {
    let (place, folder) = (Place::sqlite(), tempfile::tempdir().unwrap());
    let file = campaign(&folder, "mailer");
    let deployed = place.run(&["campaign", "deploy", file.to_str().unwrap()]);
    let run = text(&deployed.stdout).trim().to_owned();
    let server = Server::of(&place, &[]);
    let operator = token(&place, "operator", &[]);
    let mut watch = server.command(&operator, &["campaign", "watch", &run]);
    let mut watching = watch
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(watching.stderr.take().unwrap());
    let mut lines = stderr.lines().map_while(Result::ok);
    let said = lines.find(|line| line.contains("cannot send it")).unwrap();
    assert!(
        said.ends_with(" cannot send it: there is no provider mailer: this server has none"),
        "{said}"
    );
    // It goes on watching.
    assert_eq!(
        server
            .run(&operator, &["campaign", "cancel", &run])
            .status
            .code(),
        Some(0)
    );
    assert_eq!(watching.wait().unwrap().code(), Some(1));
    assert_eq!(
        lines.filter(|line| line.contains("cannot send it")).count(),
        0,
        "it is said once"
    );
}
