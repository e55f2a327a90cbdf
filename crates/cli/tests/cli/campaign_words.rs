//! What commands about campaigns say and refuse, and to whom they answer.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::campaign_watch::{campaign, service};
use crate::server::{Server, token};
use crate::work::Place;
use crate::{onward, text};

#[test]
fn every_bad_row_can_be_had_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = campaign(&folder, "mailer");
    let rows: String = (0..250).map(|row| format!("p{row},nowhere\n")).collect();
    std::fs::write(
        folder.path().join("people.csv"),
        format!("id,email\n{rows}p9,a@people.example\n"),
    )
    .unwrap();
    let (file, bad) = (file.to_str().unwrap(), folder.path().join("bad.jsonl"));
    let checked = onward(&["campaign", "check", file]).output().unwrap();
    assert!(text(&checked.stdout).contains("and 150 more"));
    assert!(
        text(&checked.stderr).contains("--bad-rows FILE writes all of them"),
        "{}",
        text(&checked.stderr)
    );
    let checked = onward(&[
        "campaign",
        "check",
        file,
        "--bad-rows",
        bad.to_str().unwrap(),
    ])
    .output()
    .unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        text(&checked.stderr).contains("250 bad rows written to "),
        "{}",
        text(&checked.stderr)
    );
    let written = std::fs::read_to_string(bad).unwrap();
    let rows: Vec<Value> = written
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (rows.len(), &rows[0]["line"], &rows[249]["line"]),
        (250, &2.into(), &251.into())
    );
    assert!(rows.iter().all(|row| row["reason"].is_string()));
}

#[test]
fn looking_at_a_campaign_is_for_viewers_unless_it_brings_its_own_provider() {
    let (place, folder) = (Place::sqlite(), tempfile::tempdir().unwrap());
    let server = Server::of(&place, &["--inline-providers"]);
    let viewer = token(&place, "viewer", &[]);
    let made = folder.path().join("made");
    let check = |provider: &str| {
        let file = campaign(&folder, provider);
        server.run(&viewer, &["campaign", "check", file.to_str().unwrap()])
    };
    let named = check("mailer");
    assert_eq!(named.status.code(), Some(1), "{}", text(&named.stderr));
    assert!(
        text(&named.stdout).contains("there is no provider mailer"),
        "{}",
        text(&named.stdout)
    );
    let inline = check(&format!("{{ folder: {{ path: {} }} }}", made.display()));
    assert_eq!(inline.status.code(), Some(2));
    let words = "a token with the role viewer is not enough for this: it needs engineer";
    assert!(
        text(&inline.stderr).contains(words),
        "{}",
        text(&inline.stderr)
    );
    let shown = json!({ "campaign": "news", "channel": "email", "provider": "mailer", "audience": { "file": "people.csv" },
        "template": { "from": "a@b.example", "subject": "Hi {{ id }}", "text": "Hello" } });
    let preview =
        json!({ "campaign": shown, "recipients": [{ "id": "p1", "to": "a@people.example" }] });
    let previewed = server.ask("POST /v1/campaigns/preview", &viewer, &preview.to_string());
    assert_eq!(previewed.status, 200, "{}", previewed.body);
}

#[test]
fn a_run_that_is_over_is_not_controlled_and_says_whether_it_was_cancelled() {
    let (place, folder) = (Place::sqlite(), tempfile::tempdir().unwrap());
    let file = campaign(&folder, "mailer");
    let deploy = || {
        let deployed = place.run(&["campaign", "deploy", file.to_str().unwrap(), "--again"]);
        text(&deployed.stdout).trim().to_owned()
    };
    let (cancelled, paused) = (deploy(), deploy());
    assert_eq!(
        place.run(&["campaign", "pause", &paused]).status.code(),
        Some(0)
    );
    assert_eq!(
        place.run(&["campaign", "cancel", &cancelled]).status.code(),
        Some(0)
    );
    let server = Server::of(&place, &[]);
    let operator = token(&place, "operator", &[]);
    let run = |args: &[&str]| server.run(&operator, args);
    assert_eq!(
        run(&["campaign", "watch", &cancelled]).status.code(),
        Some(1)
    );
    for control in ["pause", "resume"] {
        assert_eq!(
            run(&["campaign", control, &cancelled]).status.code(),
            Some(2),
            "{control}"
        );
    }
    let shown = run(&["campaign", "show", &cancelled]);
    assert!(
        text(&shown.stdout).contains("status     failed, cancelled\n"),
        "{}",
        text(&shown.stdout)
    );
    assert!(
        text(&shown.stdout).contains("items      3 in 1 job: "),
        "{}",
        text(&shown.stdout)
    );
    let listed = |status: &str| {
        let listed = run(&[
            "campaign", "ls", "--status", status, "--json", "--limit", "1",
        ]);
        text(&listed.stdout)
            .lines()
            .map(|it| serde_json::from_str(it).unwrap())
            .collect::<Vec<Value>>()
    };
    for (status, id) in [("cancelled", &cancelled), ("paused", &paused)] {
        let runs = listed(status);
        assert_eq!(
            (runs.len(), &runs[0]["run"]),
            (1, &id.as_str().into()),
            "{status}"
        );
    }
}

#[test]
fn a_run_that_was_sent_is_not_resumed() {
    let (place, folder) = (Place::sqlite(), tempfile::tempdir().unwrap());
    let file = campaign(
        &folder,
        &format!(
            "{{ folder: {{ path: {} }} }}",
            folder.path().join("out").display()
        ),
    );
    let server = Server::of(&place, &["--inline-providers"]);
    let engineer = token(&place, "engineer", &[]);
    let deployed = server.run(
        &engineer,
        &["campaign", "deploy", file.to_str().unwrap(), "--watch"],
    );
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}",
        text(&deployed.stderr)
    );
    let run = text(&deployed.stdout).lines().next().unwrap();
    let resumed = server.run(&engineer, &["campaign", "resume", run]);
    assert_eq!(resumed.status.code(), Some(2));
    assert_eq!(
        text(&resumed.stderr),
        format!("error: the campaign run {run} is over\n")
    );
}

#[test]
fn items_in_doubt_are_listed_with_their_keys_and_what_is_refused_is_said_once() {
    let (place, folder) = (Place::sqlite(), tempfile::tempdir().unwrap());
    let provider = format!(
        "{{ http: {{ url: \"http://127.0.0.1:{}/\", body: \"{{}}\" }} }}",
        service()
    );
    let file = campaign(&folder, &provider);
    let server = Server::of(&place, &["--inline-providers"]);
    let engineer = token(&place, "engineer", &[]);
    let run = |args: &[&str]| server.run(&engineer, args);
    run(&["campaign", "deploy", file.to_str().unwrap(), "--watch"]);
    let items = run(&["outbox", "in-doubt", "--json"]);
    let items: Vec<Value> = text(&items.stdout)
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let listed = run(&["outbox", "in-doubt"]);
    for item in &items {
        assert!(
            text(&listed.stdout).contains(item["key"].as_str().unwrap()),
            "{}",
            text(&listed.stdout)
        );
    }
    let item = items[0]["item"].as_str().unwrap();
    let settle = ["outbox", "settle", item, "sent", "--why", "its log"];
    let refused = run(&[&settle[..], &["--message-id", "a\nb"]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("without control characters"),
        "{}",
        text(&refused.stderr)
    );
    assert_eq!(run(&settle).status.code(), Some(0));
    let again = run(&settle);
    assert_eq!(
        (again.status.code(), text(&again.stderr)),
        (Some(2), &*format!("error: {item} is not in doubt\n"))
    );
    let redriven = run(&["jobs", "redrive", "nothing"]);
    assert_eq!(text(&redriven.stderr), "error: there is no job nothing\n");
}

#[test]
fn whoever_is_named_again_is_previewed_once_and_nobody_is_not_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let file = campaign(&folder, "mailer");
    let file = file.to_str().unwrap();
    std::fs::write(
        folder.path().join("people.csv"),
        "id,email\np1,a@p.example\np1,b@p.example\np2,c@p.example\n",
    )
    .unwrap();
    let shown = onward(&["campaign", "preview", file, "--limit", "5", "--json"])
        .output()
        .unwrap();
    let shown: Vec<Value> = text(&shown.stdout)
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    let to: Vec<&str> = shown.iter().map(|it| it["to"].as_str().unwrap()).collect();
    assert_eq!(to, ["a@p.example", "c@p.example"]);
    let nobody = onward(&["campaign", "preview", file, "--limit", "0"])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert!(
        !text(&nobody.stderr).contains("nobody in the audience"),
        "{}",
        text(&nobody.stderr)
    );
}

#[test]
fn why_a_file_cannot_be_read_is_said_once() {
    let refused = onward(&["campaign", "check", "nope.yaml"])
        .output()
        .unwrap();
    assert_eq!(
        text(&refused.stderr).matches("os error 2").count(),
        1,
        "{}",
        text(&refused.stderr)
    );
}

#[test]
fn the_help_of_every_command_about_campaigns_names_its_exit_codes() {
    let commands = [
        (
            "campaign",
            "check preview deploy ls show watch pause resume cancel retry suppress",
        ),
        ("outbox", "ls in-doubt settle"),
        ("jobs", "ls dead redrive"),
    ];
    let named = commands
        .iter()
        .flat_map(|(group, names)| names.split(' ').map(|name| vec![*group, name]));
    let suppress = ["add", "rm", "ls"].map(|name| vec!["campaign", "suppress", name]);
    for command in named.chain(suppress) {
        let help = onward(&[&command[..], &["--help"]].concat())
            .output()
            .unwrap();
        assert!(text(&help.stdout).contains("Exit codes: 0 "), "{command:?}");
    }
}

#[test]
fn a_server_says_at_its_start_which_providers_have_no_secret() {
    let place = Place::sqlite();
    let config = place.folder.path().join("onward.toml");
    let secret = "[providers.mailer.smtp]\nurl = \"smtps://mail.example.org\"\nuser = \"shop\"\npassword = { secret = \"NOT_THERE\" }\n";
    let folder = "[providers.files.folder]\npath = \"sent\"\n";
    std::fs::write(&config, format!("{secret}\n{folder}")).unwrap();
    let mut serve = place.command(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--config",
        config.to_str().unwrap(),
    ]);
    let mut serving = serve
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(serving.stderr.take().unwrap());
    let lines = stderr.lines().map_while(Result::ok);
    let said: Vec<String> = lines.take_while(|line| !line.contains("http://")).collect();
    serving.kill().unwrap();
    serving.wait().unwrap();
    let warnings: Vec<&String> = said
        .iter()
        .filter(|line| line.starts_with("warning: "))
        .collect();
    assert_eq!(warnings.len(), 1, "{said:?}");
    assert!(
        warnings[0].contains("provider mailer: ") && warnings[0].contains("NOT_THERE"),
        "{warnings:?}"
    );
}

#[test]
fn a_password_in_the_settings_is_refused_and_not_repeated() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("onward.toml");
    for text in [
        "[providers.mailer.smtp]\nurl = \"smtps://mail.example\"\nuser = \"shop\"\npassword = \"hunter2\"\n",
        "\n[providers]\nmailer = { smtp = { url = \"smtps://mail.example\", user = \"shop\", password = \"hunter2\" } }\n",
    ] {
        std::fs::write(&file, text).unwrap();
        let shown = onward(&["config", "show", "--config", file.to_str().unwrap()])
            .output()
            .unwrap();
        let said = format!(
            "{}{}",
            crate::text(&shown.stdout),
            crate::text(&shown.stderr)
        );
        assert!(
            shown.status.code() == Some(2) && said.contains("password"),
            "{said}"
        );
        assert!(
            said.contains("line ") && !said.contains("hunter2"),
            "{said}"
        );
    }
}
