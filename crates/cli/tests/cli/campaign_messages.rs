//! Messages and permissions of the campaign commands.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::campaign_watch::{start_failing_service, write_campaign};
use crate::http_server::{Server, create_token};
use crate::workflows::WorkflowStoreFixture;
use crate::{onward, text};

#[test]
fn invalid_rows_can_be_written_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_campaign(&folder, "mailer");
    let rows: String = (0..250).map(|row| format!("p{row},nowhere\n")).collect();
    std::fs::write(
        folder.path().join("people.csv"),
        format!("id,email\n{rows}p9,a@people.example\n"),
    )
    .unwrap();
    let (file, invalid) = (file.to_str().unwrap(), folder.path().join("invalid.jsonl"));
    let checked = onward(&["campaign", "check", file]).output().unwrap();
    assert!(text(&checked.stdout).contains("and 150 more"));
    assert!(
        text(&checked.stderr).contains("use --invalid-rows FILE to write all invalid rows"),
        "{}",
        text(&checked.stderr)
    );
    let checked = onward(&[
        "campaign",
        "check",
        file,
        "--invalid-rows",
        invalid.to_str().unwrap(),
    ])
    .output()
    .unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(
        text(&checked.stderr).contains("250 invalid rows written to "),
        "{}",
        text(&checked.stderr)
    );
    let written = std::fs::read_to_string(invalid).unwrap();
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
fn a_viewer_may_check_and_preview_campaigns_without_an_inline_provider() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let server = Server::start(&fixture, &["--inline-providers"]);
    let viewer = create_token(&fixture, "viewer", &[]);
    let outbox = folder.path().join("outbox");
    let check = |provider: &str| {
        let file = write_campaign(&folder, provider);
        server.run(&viewer, &["campaign", "check", file.to_str().unwrap()])
    };
    let named = check("mailer");
    assert_eq!(named.status.code(), Some(1), "{}", text(&named.stderr));
    assert!(
        text(&named.stdout).contains("unknown provider mailer"),
        "{}",
        text(&named.stdout)
    );
    let inline = check(&format!("{{ folder: {{ path: {} }} }}", outbox.display()));
    assert_eq!(inline.status.code(), Some(2));
    let message = "the token has the role viewer, but this operation requires engineer";
    assert!(
        text(&inline.stderr).contains(message),
        "{}",
        text(&inline.stderr)
    );
    let shown = json!({ "campaign": "news", "channel": "email", "provider": "mailer", "audience": { "file": "people.csv" },
        "template": { "from": "a@b.example", "subject": "Hi {{ id }}", "text": "Hello" } });
    let preview =
        json!({ "campaign": shown, "recipients": [{ "id": "p1", "to": "a@people.example" }] });
    let previewed =
        server.send_request("POST /v1/campaigns/preview", &viewer, &preview.to_string());
    assert_eq!(previewed.status, 200, "{}", previewed.body);
}

#[test]
fn an_ended_run_rejects_controls_and_shows_whether_it_was_cancelled() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let file = write_campaign(&folder, "mailer");
    let deploy = || {
        let deployed = fixture.run(&["campaign", "deploy", file.to_str().unwrap(), "--resend"]);
        text(&deployed.stdout).trim().to_owned()
    };
    let (cancelled, paused) = (deploy(), deploy());
    assert_eq!(
        fixture.run(&["campaign", "pause", &paused]).status.code(),
        Some(0)
    );
    assert_eq!(
        fixture
            .run(&["campaign", "cancel", &cancelled])
            .status
            .code(),
        Some(0)
    );
    let server = Server::start(&fixture, &[]);
    let operator = create_token(&fixture, "operator", &[]);
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
fn a_completed_run_cannot_be_resumed() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let file = write_campaign(
        &folder,
        &format!(
            "{{ folder: {{ path: {} }} }}",
            folder.path().join("out").display()
        ),
    );
    let server = Server::start(&fixture, &["--inline-providers"]);
    let engineer = create_token(&fixture, "engineer", &[]);
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
        format!("error: campaign run {run} has ended\n")
    );
}

#[test]
fn items_in_doubt_are_listed_with_keys_and_a_refusal_is_printed_once() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let provider = format!(
        "{{ http: {{ url: \"http://127.0.0.1:{}/\", body: \"{{}}\" }} }}",
        start_failing_service()
    );
    let file = write_campaign(&folder, &provider);
    let server = Server::start(&fixture, &["--inline-providers"]);
    let engineer = create_token(&fixture, "engineer", &[]);
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
    let settle = ["outbox", "settle", item, "sent", "--reason", "provider log"];
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
        (
            Some(2),
            &*format!("error: outbox item {item} is not in doubt: there is nothing to settle\n")
        )
    );
    let redriven = run(&["jobs", "redrive", "nothing"]);
    assert_eq!(text(&redriven.stderr), "error: job nothing not found\n");
}

#[test]
fn preview_shows_a_duplicate_recipient_once_and_rejects_a_limit_of_zero() {
    let folder = tempfile::tempdir().unwrap();
    let file = write_campaign(&folder, "mailer");
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
    let zero = onward(&["campaign", "preview", file, "--limit", "0"])
        .output()
        .unwrap();
    assert_eq!(zero.status.code(), Some(2));
    assert!(
        !text(&zero.stderr).contains("the audience has no recipients"),
        "{}",
        text(&zero.stderr)
    );
}

#[test]
fn the_cause_of_an_unreadable_file_is_printed_once() {
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
fn the_help_of_each_campaign_command_lists_its_exit_codes() {
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
fn a_server_warns_at_start_about_providers_without_a_secret() {
    let fixture = WorkflowStoreFixture::sqlite();
    let config = fixture.folder.path().join("onward.toml");
    let secret = "[providers.mailer.smtp]\nurl = \"smtps://mail.example.org\"\nuser = \"shop\"\npassword = { secret = \"NOT_THERE\" }\n";
    let folder = "[providers.files.folder]\npath = \"sent\"\n";
    std::fs::write(&config, format!("{secret}\n{folder}")).unwrap();
    let mut serve = fixture.command(&[
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
    let printed: Vec<String> = lines.take_while(|line| !line.contains("http://")).collect();
    serving.kill().unwrap();
    serving.wait().unwrap();
    let warnings: Vec<&String> = printed
        .iter()
        .filter(|line| line.starts_with("warning: "))
        .collect();
    assert_eq!(warnings.len(), 1, "{printed:?}");
    assert!(
        warnings[0].contains("provider mailer: ") && warnings[0].contains("NOT_THERE"),
        "{warnings:?}"
    );
}

#[test]
fn a_plaintext_password_in_the_settings_is_rejected_and_not_printed() {
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
        let printed = format!(
            "{}{}",
            crate::text(&shown.stdout),
            crate::text(&shown.stderr)
        );
        assert!(
            shown.status.code() == Some(2) && printed.contains("password"),
            "{printed}"
        );
        assert!(
            printed.contains("line ") && !printed.contains("hunter2"),
            "{printed}"
        );
    }
}

#[test]
fn a_preview_ends_within_its_budget_and_does_not_delay_other_requests() {
    let fixture = WorkflowStoreFixture::sqlite();
    let server = Server::start(&fixture, &[]);
    let viewer = create_token(&fixture, "viewer", &[]);
    // Without a budget these templates would take minutes.
    let part = "{% for n in range(200) %}{% if long|title == '' %}{% endif %}{% endfor %}";
    let template: serde_json::Map<String, Value> = (0..29)
        .map(|number| (format!("part{number}"), part.into()))
        .collect();
    let campaign = json!({ "campaign": "news", "channel": "email", "provider": "mailer",
        "audience": { "file": "people.csv" }, "template": template });
    let recipients: Vec<Value> = (0..100)
        .map(|number| {
            json!({ "id": format!("p{number}"), "to": "a@people.example",
                "data": { "long": "word ".repeat(4_000) } })
        })
        .collect();
    let preview = json!({ "campaign": campaign, "recipients": recipients }).to_string();
    let slowest = std::thread::scope(|threads| {
        let ask = || server.send_request("POST /v1/campaigns/preview", &viewer, &preview);
        let previews: Vec<_> = (0..2).map(|_| threads.spawn(ask)).collect();
        let mut slowest = Duration::ZERO;
        while !previews.iter().all(|preview| preview.is_finished()) {
            let started_at = Instant::now();
            assert_eq!(server.send_request("GET /healthz", "", "").status, 200);
            slowest = slowest.max(started_at.elapsed());
        }
        for preview in previews {
            let response = preview.join().unwrap();
            assert_eq!(response.status, 422, "{}", response.body);
            let message = "rendering the templates took more than one request may use (2 s";
            assert!(response.body.contains(message), "{}", response.body);
        }
        slowest
    });
    assert!(slowest < Duration::from_secs(4), "{slowest:?}");
}

#[test]
fn a_repeated_id_with_another_address_is_reported_with_both_lines() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let file = write_campaign(&folder, "mailer");
    std::fs::write(
        folder.path().join("people.csv"),
        "id,email\np1,a@people.example\np2,b@people.example\np1,c@people.example\np2,B@people.example\n",
    )
    .unwrap();
    let conflict = "rows with the id of an earlier row and another address, which gets no message: 1 \
                    (`p1` in line 4, first in line 2)";
    let checked = onward(&["campaign", "check", file.to_str().unwrap()])
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    assert!(
        text(&checked.stdout).contains(&format!("audience.conflicts   {conflict}")),
        "{}",
        text(&checked.stdout)
    );
    let deployed = fixture.run(&["campaign", "deploy", file.to_str().unwrap()]);
    assert!(
        text(&deployed.stderr).contains(&format!("warning: {conflict}")),
        "{}",
        text(&deployed.stderr)
    );
}

#[test]
fn a_row_that_cannot_be_rendered_is_skipped_like_other_invalid_rows() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let file = write_campaign(&folder, "mailer");
    let yaml = std::fs::read_to_string(&file).unwrap();
    let yaml = yaml
        .replace("subject: Hi,", "subject: 'Hi {{ name }}',")
        .replace("people.csv }", "people.csv, invalid_rows: skip }");
    std::fs::write(&file, yaml).unwrap();
    std::fs::write(
        folder.path().join("people.csv"),
        "id,email,name\np1,a@people.example,Ada\np2,b@people.example,\"two\nlines\"\np3,c@people.example,Bob\n",
    )
    .unwrap();
    let checked = onward(&["campaign", "check", file.to_str().unwrap()])
        .output()
        .unwrap();
    let report = text(&checked.stdout);
    assert_eq!(checked.status.code(), Some(0), "{report}");
    assert!(
        report.contains("invalid rows, which are skipped: 1; the first is line 3: part `subject`"),
        "{report}"
    );
    let deployed = fixture.run(&["campaign", "deploy", file.to_str().unwrap()]);
    assert!(
        text(&deployed.stderr).contains("2 recipients in 1 job"),
        "{}",
        text(&deployed.stderr)
    );
}
