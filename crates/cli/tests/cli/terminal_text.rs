//! What commands print contains no characters that a terminal interprets, wherever they come from.

use onward_embed::store::open_store;
use onward_journal::ComponentDigest;
use onward_store::tables::{DeployedFunctionKind, FunctionRow};
use onward_store::{Commit, StorePolicy};

use crate::http_server::start_workflow;
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// Clears the screen, sets the title, hides text, and reverses the rest of the line.
const HOSTILE: &str = "x\u{1b}[2J\u{1b}]0;t\u{7}\u{1b}[8m\u{9b}2J\u{202e}\u{2066}y";

fn assert_printable(args: &[&str], printed: &str) {
    let hostile: Vec<char> = printed
        .chars()
        .filter(|&character| character != '\n' && onward_base::is_unprintable(character))
        .collect();
    assert!(hostile.is_empty(), "{args:?}: {hostile:?} in {printed}");
}

#[test]
fn no_command_prints_control_or_direction_characters() {
    let fixture = WorkflowStoreFixture::sqlite();
    // Earlier versions deployed functions with any name.
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let store = open_store(&fixture.url, StorePolicy::default())
            .await
            .unwrap();
        let row = FunctionRow {
            tenant_id: "default".parse().unwrap(),
            project_id: "default".parse().unwrap(),
            environment_id: "default".parse().unwrap(),
            name: HOSTILE.into(),
            kind: DeployedFunctionKind::Task,
            component_digest: ComponentDigest::from_component(b"missing"),
            hosts: "[]".into(),
            deployed_at: store.now().await.unwrap(),
        };
        store.commit(Commit::new().insert(&row)).await.unwrap();
    });
    let input = format!(
        "{{\"order\":\"{}\"}}",
        HOSTILE.replace(char::is_control, "\u{202d}")
    );
    let id = start_workflow(&fixture, &["blocking_signal", &input, "--key", HOSTILE]);
    let sent = fixture.run(&["signal", &id, HOSTILE, "\"\u{202e}\""]);
    assert_printable(&["signal"], text(&sent.stderr));
    let cancelled = fixture.run(&["cancel", &id, "--reason", HOSTILE]);
    assert_printable(&["cancel"], text(&cancelled.stderr));
    for args in [
        &["functions"][..],
        &["ls"],
        &["show", &id],
        &["why", &id],
        &["doctor"],
        &["show", HOSTILE],
        &["start", HOSTILE],
        &["deploy", HOSTILE],
        &["journal", "check", HOSTILE],
        &["campaign", "check", HOSTILE],
        &["token", "create", HOSTILE, "--role", "viewer"],
        &["ls", "--store", HOSTILE],
        &["ls", "--profile", HOSTILE],
        &["config", "show", "--node-name", HOSTILE],
    ] {
        let output = fixture.run(args);
        assert_printable(args, text(&output.stdout));
        assert_printable(args, text(&output.stderr));
    }
    let listed = fixture.run(&["functions"]);
    assert!(
        text(&listed.stdout).contains("x\\u{1b}[2J"),
        "{}",
        text(&listed.stdout)
    );
}
