//! Campaigns from the command line, through a server, to a real server of mail.

use std::path::{Path, PathBuf};
use std::process::Output;

use onward_testing::TestMailServer;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::server::{Server, token};
use crate::work::Place;
use crate::{onward, text};

/// The examples, in a folder of their own.
fn examples() -> TempDir {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/campaigns");
    let folder = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), folder.path().join(entry.file_name())).unwrap();
    }
    folder
}

/// The newsletter of the examples, sent by this server of mail.
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
fn the_example_reaches_everybody_once_by_a_real_server_of_mail() {
    let (mail, place, folder) = (
        TestMailServer::start_server(&[]).unwrap(),
        Place::sqlite(),
        examples(),
    );
    let file = newsletter(&folder, &mail);
    let file = file.to_str().unwrap();
    let server = Server::of(&place, &["--inline-providers"]);
    let engineer = token(&place, "engineer", &[]);
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
    // Whoever deploys it again is told so, and nobody hears of it.
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
fn commands_say_the_same_of_a_store_and_of_a_server() {
    let (mail, place, folder) = (
        TestMailServer::start_server(&[]).unwrap(),
        Place::sqlite(),
        examples(),
    );
    let file = newsletter(&folder, &mail);
    // Deployed on the store itself: whichever server is there sends it.
    let deployed = place.run(&["campaign", "deploy", file.to_str().unwrap()]);
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}",
        text(&deployed.stderr)
    );
    let id = text(&deployed.stdout).trim().to_owned();
    let server = Server::of(&place, &["--inline-providers"]);
    let viewer = token(&place, "viewer", &[]);
    let watched = server.run(&viewer, &["campaign", "watch", &id]);
    assert_eq!(watched.status.code(), Some(0), "{}", text(&watched.stdout));
    for args in [
        &["campaign", "ls"][..],
        &["campaign", "ls", "--json", "--status", "completed"],
        &["campaign", "show", &id],
        &["campaign", "watch", &id, "--json"],
        &["outbox", "ls", &id, "--standing", "served"],
        &["outbox", "ls", &id, "--recipient", "p3", "--json"],
        &["outbox", "in-doubt"],
        &["jobs", "ls", "--run", &id],
        &["jobs", "dead", "--json"],
        &["campaign", "suppress", "ls"],
        &["campaign", "show", "nothing"],
    ] {
        let (here, there) = (place.run(args), server.run(&viewer, args));
        assert_eq!(text(&here.stdout), text(&there.stdout), "{args:?}");
        assert_eq!(
            (here.status.code(), text(&here.stderr)),
            (there.status.code(), text(&there.stderr)),
            "{args:?}"
        );
    }
    for args in [
        &["campaign", "deploy", file.to_str().unwrap(), "--again"][..],
        &["campaign", "cancel", &id],
        &["campaign", "suppress", "add", "ada@people.example"],
    ] {
        let refused = server.run(&viewer, args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(
            text(&refused.stderr).contains("a token with the role viewer is not enough"),
            "{args:?}"
        );
    }
    let stranger = token(&place, "admin", &["--tenant", "other"]);
    assert_eq!(
        text(&server.run(&stranger, &["campaign", "ls"]).stdout)
            .lines()
            .count(),
        1,
        "a heading"
    );
    assert_eq!(
        server
            .run(&stranger, &["campaign", "show", &id])
            .status
            .code(),
        Some(2)
    );
    assert_eq!(
        server.run(&stranger, &["outbox", "ls", &id]).status.code(),
        Some(2)
    );
}

#[test]
fn rows_that_cannot_be_used_are_told_with_their_lines_and_nothing_is_deployed() {
    let (place, folder) = (Place::sqlite(), examples());
    let people = folder.path().join("people.csv");
    std::fs::write(
        &people,
        "id,email,name,city\n1,ada@people.example,Ada,\n2,nowhere,Bob,\n3,,Cleo,\n",
    )
    .unwrap();
    let file = folder.path().join("newsletter.yaml");
    let file = file.to_str().unwrap();
    let refused = place.run(&["campaign", "deploy", file]);
    assert_eq!(refused.status.code(), Some(1));
    let said = text(&refused.stdout);
    assert!(
        said.contains("FAIL  audience.rows")
            && said.contains("line 3: ")
            && said.contains("line 4: "),
        "{said}"
    );
    assert_eq!(
        text(&place.run(&["campaign", "ls"]).stdout).lines().count(),
        1,
        "a heading"
    );
    let checked = onward(&["campaign", "check", file, "--json"])
        .output()
        .unwrap();
    let report = &lines(&checked)[0];
    assert_eq!(
        (report["pass"].clone(), report["audience"]["bad"].clone()),
        (false.into(), 2.into())
    );
    // Whoever wants to can go without them.
    let yaml = std::fs::read_to_string(file).unwrap();
    std::fs::write(
        file,
        yaml.replace("file: people.csv", "file: people.csv\n  bad_rows: skip"),
    )
    .unwrap();
    let deployed = place.run(&["campaign", "deploy", file, "--json"]);
    assert_eq!(
        lines(&deployed)[0]["items"],
        1,
        "{}",
        text(&deployed.stderr)
    );
}

#[test]
fn what_a_server_cannot_send_is_not_deployed_there() {
    let (place, folder) = (Place::sqlite(), examples());
    let server = Server::of(&place, &[]);
    let engineer = token(&place, "engineer", &[]);
    for (file, words) in [
        (
            "newsletter.yaml",
            "there is no provider folder: this server has none",
        ),
        (
            "smtp.yaml",
            "this server does not take providers from campaign files",
        ),
    ] {
        let file = folder.path().join(file);
        let refused = server.run(&engineer, &["campaign", "deploy", file.to_str().unwrap()]);
        assert_eq!(refused.status.code(), Some(1), "{}", text(&refused.stderr));
        assert!(
            text(&refused.stdout).contains(words),
            "{}",
            text(&refused.stdout)
        );
    }
}

/// Whoever stores an audience over HTTP may have read no file: what the command line looks at is
/// looked at there as well.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
#[test]
fn what_was_stored_over_http_is_looked_at_before_it_is_deployed() {
    let place = Place::sqlite();
    let server = Server::of(&place, &["--inline-providers"]);
    let engineer = token(&place, "engineer", &[]);
    let provider = json!({ "http": { "url": "http://127.0.0.1:9/", "body": "{}" } });
    let deploy = |channel: &str, name: &str, people: &[Value]| {
        let path = format!("PUT /v1/audiences/{name}/parts/0");
        assert_eq!(
            server
                .ask(
                    &path,
                    &engineer,
                    &json!({ "recipients": people }).to_string()
                )
                .status,
            204
        );
        let campaign = json!({
            "campaign": name, "channel": channel, "provider": provider, "template": {
                "from": "news@example.com", "subject": "Hello", "text": "News for {{ name }}",
            }, "audience": { "file": "people.csv", "bad_rows": "skip" },
        });
        let body = json!({ "campaign": campaign, "audience": name }).to_string();
        server.ask("POST /v1/campaign-runs", &engineer, &body)
    };
    let person = |id: &str, to: &str| json!({ "id": id, "to": to, "data": { "name": id } });
    for (channel, name, people, id, words) in [
        (
            "email",
            "spaced",
            [person("v1", "v1@b.example"), person("v3", " v3@b.example")],
            "audience.rows",
            "`v3@b.example`",
        ),
        (
            "voice",
            "called",
            [person("v1", "+49 30 1234567"), person("v2", "+49301234567")],
            "audience.rows",
            "`+49301234567`",
        ),
        (
            "email",
            "nowhere",
            [person("v1", "v1"), person("v2", "v2@b.example")],
            "audience.rows",
            "no @",
        ),
        (
            "email",
            "unnamed",
            [
                json!({ "id": "v1", "to": "v1@b.example" }),
                person("v2", "v2@b.example"),
            ],
            "template.renders",
            "`v1`",
        ),
    ] {
        let refused = deploy(channel, name, &people);
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
            problem["detail"].as_str().unwrap().contains(words),
            "{}",
            refused.body
        );
    }
    assert_eq!(
        text(&place.run(&["campaign", "ls"]).stdout).lines().count(),
        1,
        "a heading"
    );
    let fine = deploy("email", "fine", &[person("v1", "v1@b.example")]);
    assert_eq!(fine.status, 200, "{}", fine.body);
    let again = deploy("email", "fine", &[person("v1", "v1@b.example")]);
    assert_eq!(
        (again.status, again.code()),
        (409, "reached_before".to_owned()),
        "{}",
        again.body
    );
}

#[test]
fn a_provider_that_makes_no_sense_is_found_without_a_server() {
    let folder = examples();
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
        text(&named.stderr).contains("--server asks one"),
        "{}",
        text(&named.stderr)
    );
}

#[test]
fn a_preview_shows_what_somebody_would_be_sent() {
    let folder = examples();
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
    let nobody = onward(&["campaign", "preview", file, "--id", "p99"])
        .output()
        .unwrap();
    assert_eq!(nobody.status.code(), Some(2));
    assert!(text(&nobody.stderr).contains("nobody in the audience is called p99"));
}

#[test]
fn every_example_can_be_checked() {
    let folder = examples();
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
fn those_who_want_nothing_more_are_kept_in_a_list() {
    let (place, folder) = (Place::sqlite(), tempfile::tempdir().unwrap());
    let server = Server::of(&place, &[]);
    let operator = token(&place, "operator", &[]);
    let suppress =
        |args: &[&str]| server.run(&operator, &[&["campaign", "suppress"], args].concat());
    let file = folder.path().join("gone.txt");
    std::fs::write(
        &file,
        "\u{feff}Ada@people.example\r\n\r\nnobody\nbob@people.example\n",
    )
    .unwrap();
    let added = suppress(&[
        "add",
        "--from",
        file.to_str().unwrap(),
        "--reason",
        "bounced",
    ]);
    assert_eq!(added.status.code(), Some(2), "one of them is no address");
    assert!(
        text(&added.stderr).contains("the address nobody: "),
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
    assert_eq!(again["reason"], "bounced", "it is not said anew");
    let listed = lines(&suppress(&["ls", "--json"]));
    let listed: Vec<&str> = listed
        .iter()
        .map(|it| it["address"].as_str().unwrap())
        .collect();
    assert_eq!(listed, ["ada@people.example", "bob@people.example"]);
    let removed = suppress(&["rm", "ADA@people.example", "cleo@people.example"]);
    assert_eq!(removed.status.code(), Some(0));
    let said = text(&removed.stderr);
    assert!(
        said.contains("is reached again")
            && said.contains("cleo@people.example was not on the list"),
        "{said}"
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
