//! Deployments that would take function names from another component, or that have names which a
//! terminal would interpret.

use serde_json::Value;

use crate::http_server::{Server, create_token};
use crate::inspection::{built_components, write_modified_component};
use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// Returns the component of a deployed function.
fn component_of(fixture: &WorkflowStoreFixture, function: &str) -> String {
    let listed = fixture.run(&["functions", "--json"]);
    let mut functions = text(&listed.stdout)
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let found = functions.find(|found| found["name"] == function).unwrap();
    found["component"].as_str().unwrap().to_owned()
}

#[test]
fn a_deployment_takes_functions_of_another_component_only_if_it_is_told_to() {
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let orders = built_components().join("orders.wasm");
        let orders = orders.to_str().unwrap();
        let before = component_of(&fixture, "send_email");
        let refused = fixture.run(&["deploy", orders]);
        assert_eq!(refused.status.code(), Some(2));
        for part in ["send_email of ", &before, "--replace"] {
            assert!(
                text(&refused.stderr).contains(part),
                "{part}: {}",
                text(&refused.stderr)
            );
        }
        assert_eq!(component_of(&fixture, "send_email"), before);
        let functions = text(&fixture.run(&["functions"]).stdout).to_owned();
        assert!(!functions.contains("reserve_stock"), "nothing is deployed");

        let replaced = fixture.run(&["deploy", orders, "--replace", "--json"]);
        let deployed: Value = serde_json::from_slice(&replaced.stdout).unwrap();
        assert_eq!(
            deployed["replaced"],
            serde_json::json!([
                { "function": "send_email", "component": before },
                { "function": "send_sms", "component": before },
            ])
        );
        assert_eq!(component_of(&fixture, "send_email"), deployed["component"]);
        // The same component again, and a new build of it, take nothing from another.
        let again = fixture.run(&["deploy", orders]);
        assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    }
}

#[test]
fn a_new_build_of_a_component_needs_no_permission() {
    let fixture = WorkflowStoreFixture::sqlite();
    let folder = tempfile::tempdir().unwrap();
    let build = write_modified_component(folder.path(), "user_approval", "user_approved");
    let before = component_of(&fixture, "chain");
    let deployed = fixture.run(&["deploy", build.to_str().unwrap()]);
    assert_eq!(
        deployed.status.code(),
        Some(0),
        "{}",
        text(&deployed.stderr)
    );
    assert!(
        !text(&deployed.stderr).contains("took over"),
        "{}",
        text(&deployed.stderr)
    );
    assert_ne!(component_of(&fixture, "chain"), before);
}

#[test]
fn a_deployment_over_http_replaces_functions_with_a_query_parameter() {
    let fixture = WorkflowStoreFixture::sqlite();
    let admin = create_token(&fixture, "admin", &[]);
    let server = Server::start(&fixture, &[]);
    let orders = built_components().join("orders.wasm");
    let orders = orders.to_str().unwrap();
    let refused = server.run(&admin, &["deploy", orders, "--json"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("replace=true"),
        "{}",
        text(&refused.stderr)
    );
    let replaced = server.run(&admin, &["deploy", orders, "--replace"]);
    assert_eq!(
        replaced.status.code(),
        Some(0),
        "{}",
        text(&replaced.stderr)
    );
    assert!(
        text(&replaced.stderr).contains("took over send_email of sha256:"),
        "{}",
        text(&replaced.stderr)
    );
    let document = server.send_request("GET /openapi.json", "", "").json();
    let parameters = &document["paths"]["/v1/components"]["post"]["parameters"];
    assert!(
        parameters.to_string().contains("\"name\":\"replace\""),
        "{parameters}"
    );
}

#[test]
fn a_function_name_that_changes_the_direction_of_text_is_refused() {
    let fixture = WorkflowStoreFixture::sqlite();
    let folder = tempfile::tempdir().unwrap();
    let hostile = write_modified_component(folder.path(), "flaky", "f\u{202e}y");
    let refused = fixture.run(&["deploy", hostile.to_str().unwrap(), "--replace"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("invalid function name \"f\\u{202e}y\""),
        "{}",
        text(&refused.stderr)
    );
}
