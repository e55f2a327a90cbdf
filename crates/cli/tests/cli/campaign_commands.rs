//! Campaigns from the command line, through a server, to a mail server.

use std::path::{Path, PathBuf};
use std::process::Output;

use onward_testing::TestMailServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http_server::{Server, create_token};
use crate::workflows::WorkflowStoreFixture;
use crate::{onward, text};

/// Copies the example campaigns into a new folder.
fn copy_examples() -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaigns");
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// Configures the SMTP example for this mail server.
fn newsletter(folder: &TempDir, mail: &TestMailServer) -> PathBuf {
    let file = folder.path().join("smtp.yaml");
    let yaml = std::fs::read_to_string(&file)
        .unwrap()
        .replace("127.0.0.1:2525", &format!("127.0.0.1:{}", mail.port()));
    std::fs::write(&file, yaml).unwrap();
    file
}

fn lines(output: &Output) -> Vec<Value> {
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_example_reaches_each_recipient_once_through_a_mail_server() {
    let (mail, fixture, folder) = (
        TestMailServer::start_server(&[]).unwrap(),
        WorkflowStoreFixture::sqlite(),
        copy_examples(),
    );
    let file = newsletter(&folder, &mail);
    let file = file.to_str().unwrap();
    let server = Server::start(&fixture, &["--inline-providers"]);
    let engineer = create_token(&fixture, "engineer", &[]);
    let run = |args: &[&str]| server.run(&engineer, args);
    let checked = run(&["campaign", "check", file]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));
    assert!(text(&checked.stdout).contains("provider.usable"));
    let deployed = run(&["campaign", "deploy", file, "--watch", "--by", "ada"]);
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}{}",
        text(&deployed.stdout),
        text(&deployed.stderr)
    );
    assert!(
        text(&deployed.stdout)
            .contains("100% of 10  10 sent, 0 failed, 0 skipped, 0 in doubt  completed")
    );
    let id = text(&deployed.stdout).lines().next().unwrap().to_owned();
    let mails = mail.received_mails().unwrap();
    assert_eq!(mails.len(), 10);
    let items = lines(&run(&["outbox", "ls", &id, "--json"]));
    for item in &items {
        let message_id = format!(
            "Message-ID: <{}@lamps.example>",
            item["key"].as_str().unwrap()
        );
        let its: Vec<&String> = mails
            .iter()
            .filter(|mail| mail.contains(&message_id))
            .collect();
        assert_eq!(its.len(), 1, "{item}");
        assert!(its[0].contains(&format!("To: {}", item["to"].as_str().unwrap())));
        assert!(its[0].contains("List-Unsubscribe: <https://lamps.example/unsubscribe?who=p"));
    }
    assert_eq!(items.len(), 10);
    // Deploying it again returns the same run and sends nothing.
    let again = run(&["campaign", "deploy", file, "--json"]);
    assert_eq!(
        (
            lines(&again)[0]["existed"].clone(),
            lines(&again)[0]["run"].clone()
        ),
        (true.into(), id.clone().into())
    );
    let shown = lines(&run(&["campaign", "show", &id[..8], "--json"])).remove(0);
    let events: Vec<&str> = shown["audit"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["event"].as_str().unwrap())
        .collect();
    assert_eq!(
        events,
        ["run.deployed", "run.began", "job.completed", "run.ended"]
    );
    assert_eq!(shown["audit"][0]["detail"]["by"], "ada (token engineer )");
    assert_eq!(mail.received_mails().unwrap().len(), 10);
}

#[test]
fn campaign_commands_print_the_same_for_a_store_and_its_server() {
    let (mail, fixture, folder) = (
        TestMailServer::start_server(&[]).unwrap(),
        WorkflowStoreFixture::sqlite(),
        copy_examples(),
    );
    let file = newsletter(&folder, &mail);
    // Deployed on the store: any server on it sends the campaign.
    let deployed = fixture.run(&["campaign", "deploy", file.to_str().unwrap()]);
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}",
        text(&deployed.stderr)
    );
    let id = text(&deployed.stdout).trim().to_owned();
    let server = Server::start(&fixture, &["--inline-providers"]);
    let viewer = create_token(&fixture, "viewer", &[]);
    let watched = server.run(&viewer, &["campaign", "watch", &id]);
    assert_eq!(watched.status.code(), Some(0), "{}", text(&watched.stdout));
    for args in [
        &["campaign", "ls"][..],
        &["campaign", "ls", "--json", "--status", "completed"],
        &["campaign", "show", &id],
        &["campaign", "watch", &id, "--json"],
        &["outbox", "ls", &id, "--state", "sent"],
        &["outbox", "ls", &id, "--recipient", "p3", "--json"],
        &["outbox", "in-doubt"],
        &["jobs", "ls", "--run", &id],
        &["jobs", "dead", "--json"],
        &["campaign", "suppress", "ls"],
        &["campaign", "show", "nothing"],
    ] {
        let (from_store, from_server) = (fixture.run(args), server.run(&viewer, args));
        assert_eq!(
            text(&from_store.stdout),
            text(&from_server.stdout),
            "{args:?}"
        );
        assert_eq!(
            (from_store.status.code(), text(&from_store.stderr)),
            (from_server.status.code(), text(&from_server.stderr)),
            "{args:?}"
        );
    }
    for args in [
        &["campaign", "deploy", file.to_str().unwrap(), "--resend"][..],
        &["campaign", "cancel", &id],
        &["campaign", "suppress", "add", "ada@people.example"],
    ] {
        let refused = server.run(&viewer, args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(
            text(&refused.stderr)
                .contains("the token has the role viewer, but this operation requires "),
            "{args:?}"
        );
    }
    assert_hidden_from_other_tenant(&fixture, &server, &id);
}

fn assert_hidden_from_other_tenant(fixture: &WorkflowStoreFixture, server: &Server, run: &str) {
    let other_tenant = create_token(fixture, "admin", &["--tenant", "other"]);
    let listed = server.run(&other_tenant, &["campaign", "ls"]);
    assert_eq!(text(&listed.stdout).lines().count(), 1, "only the heading");
    for args in [["campaign", "show", run], ["outbox", "ls", run]] {
        let refused = server.run(&other_tenant, &args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
    }
}

#[test]
fn invalid_rows_are_reported_with_their_lines_and_nothing_is_deployed() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), copy_examples());
    let people = folder.path().join("people.csv");
    std::fs::write(
        &people,
        "id,email,name,city\n1,ada@people.example,Ada,\n2,nowhere,Bob,\n3,,Cleo,\n",
    )
    .unwrap();
    let file = folder.path().join("newsletter.yaml");
    let file = file.to_str().unwrap();
    let refused = fixture.run(&["campaign", "deploy", file]);
    assert_eq!(refused.status.code(), Some(1));
    let printed = text(&refused.stdout);
    assert!(
        printed.contains("FAIL  audience.rows")
            && printed.contains("line 3: ")
            && printed.contains("line 4: "),
        "{printed}"
    );
    assert_eq!(
        text(&fixture.run(&["campaign", "ls"]).stdout)
            .lines()
            .count(),
        1,
        "only the heading"
    );
    let checked = onward(&["campaign", "check", file, "--json"])
        .output()
        .unwrap();
    let report = &lines(&checked)[0];
    assert_eq!(
        (
            report["pass"].clone(),
            report["audience"]["invalid"].clone()
        ),
        (false.into(), 2.into())
    );
    // `invalid_rows: skip` deploys without them.
    let yaml = std::fs::read_to_string(file).unwrap();
    std::fs::write(
        file,
        yaml.replace("file: people.csv", "file: people.csv\n  invalid_rows: skip"),
    )
    .unwrap();
    let deployed = fixture.run(&["campaign", "deploy", file, "--json"]);
    assert_eq!(
        lines(&deployed)[0]["items"],
        1,
        "{}",
        text(&deployed.stderr)
    );
}

#[test]
fn a_campaign_without_a_usable_provider_is_not_deployed() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), copy_examples());
    let server = Server::start(&fixture, &[]);
    let engineer = create_token(&fixture, "engineer", &[]);
    for (file, message) in [
        (
            "newsletter.yaml",
            "unknown provider folder: this server has no providers",
        ),
        (
            "smtp.yaml",
            "this server does not allow providers in campaign files",
        ),
    ] {
        let file = folder.path().join(file);
        let refused = server.run(&engineer, &["campaign", "deploy", file.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
        assert!(
            text(&refused.stdout).contains(message),
            "{}",
            text(&refused.stdout)
        );
    }
}

/// A client of the HTTP API may not have checked a file: the server makes the checks of the command
/// line as well.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn an_audience_stored_over_http_is_checked_before_deployment() {
    let fixture = WorkflowStoreFixture::sqlite();
    let server = Server::start(&fixture, &["--inline-providers"]);
    let engineer = create_token(&fixture, "engineer", &[]);
    let provider = json!({ "http": { "url": "http://127.0.0.1:9/", "body": "{}" } });
    let deploy = |channel: &str, name: &str, recipients: &[Value]| {
        let path = format!("PUT /v1/audiences/{name}/parts/0");
        assert_eq!(
            server
                .send_request(
                    &path,
                    &engineer,
                    &json!({ "recipients": recipients }).to_string()
                )
                .status,
            204
        );
        let campaign = json!({
            "campaign": name, "channel": channel, "provider": provider, "template": {
                "from": "news@example.com", "subject": "Hello", "text": "News for {{ name }}",
            }, "audience": { "file": "people.csv", "invalid_rows": "skip" },
        });
        let body = json!({ "campaign": campaign, "audience": name }).to_string();
        server.send_request("POST /v1/campaign-runs", &engineer, &body)
    };
    let recipient = |id: &str, to: &str| json!({ "id": id, "to": to, "data": { "name": id } });
    for (channel, name, recipients, id, message) in [
        (
            "email",
            "spaced",
            [
                recipient("v1", "v1@b.example"),
                recipient("v3", " v3@b.example"),
            ],
            "audience.rows",
            "`v3@b.example`",
        ),
        (
            "voice",
            "called",
            [
                recipient("v1", "+49 30 1234567"),
                recipient("v2", "+49301234567"),
            ],
            "audience.rows",
            "`+49301234567`",
        ),
        (
            "email",
            "nowhere",
            [recipient("v1", "v1"), recipient("v2", "v2@b.example")],
            "audience.rows",
            "no @",
        ),
        (
            "email",
            "unnamed",
            [
                json!({ "id": "v1", "to": "v1@b.example" }),
                recipient("v2", "v2@b.example"),
            ],
            "template.renders",
            "`v1`",
        ),
    ] {
        let refused = deploy(channel, name, &recipients);
        assert_eq!(
            (refused.status, refused.code()),
            (422, "unprocessable".to_owned()),
            "{}",
            refused.body
        );
        let problem = refused.json();
        let unmet: Vec<&Value> = problem["prerequisites"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["pass"] == false)
            .collect();
        assert_eq!(
            (unmet.len(), &unmet[0]["id"]),
            (1, &json!(id)),
            "{}",
            refused.body
        );
        assert!(
            problem["detail"].as_str().unwrap().contains(message),
            "{}",
            refused.body
        );
    }
    assert_eq!(
        text(&fixture.run(&["campaign", "ls"]).stdout)
            .lines()
            .count(),
        1,
        "only the heading"
    );
    let accepted = deploy("email", "fine", &[recipient("v1", "v1@b.example")]);
    assert_eq!(accepted.status, 200, "{}", accepted.body);
    let again = deploy("email", "fine", &[recipient("v1", "v1@b.example")]);
    assert_eq!(
        (again.status, again.code()),
        (409, "recipients_already_reached".to_owned()),
        "{}",
        again.body
    );
}

#[test]
fn an_invalid_inline_provider_is_reported_without_a_server() {
    let folder = copy_examples();
    let file = folder.path().join("smtp.yaml");
    let yaml = std::fs::read_to_string(&file).unwrap();
    let check = || {
        onward(&["campaign", "check", file.to_str().unwrap()])
            .output()
            .unwrap()
    };
    assert!(text(&check().stdout).contains("ok    provider.definition"));
    std::fs::write(&file, yaml.replace("url: smtp", "url: ftp")).unwrap();
    let refused = check();
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        text(&refused.stdout).contains("FAIL  provider.definition"),
        "{}",
        text(&refused.stdout)
    );
    let named = onward(&[
        "campaign",
        "check",
        folder.path().join("newsletter.yaml").to_str().unwrap(),
    ])
    .output()
    .unwrap();
    assert!(
        text(&named.stderr).contains("use --server URL to check that the server has it"),
        "{}",
        text(&named.stderr)
    );
}

#[test]
fn preview_shows_the_message_of_a_recipient() {
    let folder = copy_examples();
    let file = folder.path().join("newsletter.yaml");
    let file = file.to_str().unwrap();
    let shown = onward(&["campaign", "preview", file, "--id", "p3", "--json"])
        .output()
        .unwrap();
    let message = &lines(&shown)[0];
    assert_eq!(message["to"], "edsger@people.example");
    let part = |name: &str| {
        message["parts"]
            .as_array()
            .unwrap()
            .iter()
            .find(|part| part["name"] == name)
            .unwrap()["text"]
            .clone()
    };
    assert_eq!(part("subject"), "Edsger, the new lamps are here");
    assert!(part("text").as_str().unwrap().contains("also in Riga"));
    let missing = onward(&["campaign", "preview", file, "--id", "p99"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("recipient p99 not found in the audience (--id)"));
}

#[test]
fn all_example_campaigns_pass_the_check() {
    let folder = copy_examples();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "yaml") {
            let checked = onward(&["campaign", "check", path.to_str().unwrap()])
                .output()
                .unwrap();
            assert_eq!(
                checked.status.code(),
                Some(0),
                "{}: {}",
                path.display(),
                text(&checked.stdout)
            );
        }
    }
}

#[test]
fn suppressions_are_added_listed_and_removed() {
    let (fixture, folder) = (WorkflowStoreFixture::sqlite(), tempfile::tempdir().unwrap());
    let server = Server::start(&fixture, &[]);
    let operator = create_token(&fixture, "operator", &[]);
    let suppress =
        |args: &[&str]| server.run(&operator, &[&["campaign", "suppress"], args].concat());
    let file = folder.path().join("suppressed.txt");
    std::fs::write(
        &file,
        "\u{feff}Ada@people.example\r\n\r\nnowhere\nbob@people.example\n",
    )
    .unwrap();
    let added = suppress(&[
        "add",
        "--from",
        file.to_str().unwrap(),
        "--reason",
        "bounced",
    ]);
    assert_eq!(
        added.status.code(),
        Some(2),
        "one of them is not an address"
    );
    assert!(
        text(&added.stderr).contains("invalid address nowhere: "),
        "{}",
        text(&added.stderr)
    );
    let again = lines(&suppress(&[
        "add",
        "ada@people.example",
        "--reason",
        "another",
        "--json",
    ]))
    .remove(0);
    assert_eq!(again["reason"], "bounced", "the first reason is kept");
    let listed = lines(&suppress(&["ls", "--json"]));
    let listed: Vec<&str> = listed
        .iter()
        .map(|it| it["address"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ["ada@people.example", "bob@people.example"]);
    let removed = suppress(&["rm", "ADA@people.example", "cleo@people.example"]);
    assert_eq!(removed.status.code(), Some(0));
    let printed = text(&removed.stderr);
    assert!(
        printed.contains("is no longer suppressed")
            && printed.contains("cleo@people.example was not suppressed"),
        "{printed}"
    );
    let removed = lines(&suppress(&[
        "rm",
        "bob@people.example",
        "ada@people.example",
        "--json",
    ]));
    assert_eq!(
        (&removed[0]["wasListed"], &removed[1]["wasListed"]),
        (&true.into(), &false.into())
    );
    assert_eq!(text(&suppress(&["ls", "--json"]).stdout), "");
}
