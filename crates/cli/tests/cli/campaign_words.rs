//! What commands about campaigns say and refuse, and to whom they answer.

use serde_json::{Value, json};

use crate::campaign_watch::campaign;
use crate::server::{Server, token};
use crate::work::Place;
use crate::{onward, text};

#[test]
fn every_bad_row_can_be_had_in_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = campaign(&folder, "mailer");
    let rows: String = (0..250).map(|row| format!("p{row},nowhere\n")).collect();
    std::fs::write(folder.path().join("people.csv"), format!("id,email\n{rows}p9,a@people.example\n")).unwrap();
    let (file, bad) = (file.to_str().unwrap(), folder.path().join("bad.jsonl"));
    let checked = onward(&["campaign", "check", file]).output().unwrap();
    assert!(text(&checked.stdout).contains("and 150 more"));
    assert!(text(&checked.stderr).contains("--bad-rows FILE writes all of them"), "{}", text(&checked.stderr));
    let checked = onward(&["campaign", "check", file, "--bad-rows", bad.to_str().unwrap()]).output().unwrap();
    assert_eq!(checked.status.code(), Some(1));
    assert!(text(&checked.stderr).contains("250 bad rows written to "), "{}", text(&checked.stderr));
    let written = std::fs::read_to_string(bad).unwrap();
    let rows: Vec<Value> = written.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((rows.len(), &rows[0]["line"], &rows[249]["line"]), (250, &2.into(), &251.into()));
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
    assert!(text(&named.stdout).contains("there is no provider mailer"), "{}", text(&named.stdout));
    let inline = check(&format!("{{ folder: {{ path: {} }} }}", made.display()));
    assert_eq!(inline.status.code(), Some(2));
    let words = "a token with the role viewer is not enough for this: it needs engineer";
    assert!(text(&inline.stderr).contains(words), "{}", text(&inline.stderr));
    let shown = json!({ "campaign": "news", "channel": "email", "provider": "mailer", "audience": { "file": "people.csv" },
        "template": { "from": "a@b.example", "subject": "Hi {{ id }}", "text": "Hello" } });
    let preview = json!({ "campaign": shown, "recipients": [{ "id": "p1", "to": "a@people.example" }] });
    let previewed = server.ask("POST /v1/campaigns/preview", &viewer, &preview.to_string());
    assert_eq!(previewed.status, 200, "{}", previewed.body);
}
