//! Keeps `spec/INVARIANTS.md` in step with the code: its table, and every test and function it
//! names exists. `UPDATE_EXPECT=1 cargo test -p onward-journal` writes it anew.

use std::collections::BTreeSet;
use std::fs;

use onward_journal::{INVARIANTS, Invariant, Rule};

use super::breakers::BREAKERS;

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
const BEGIN: &str = "<!-- table: written by the test invariants_page -->\n";
/// The function of `src/state.rs` that enforces the rules of the transition table.
const TRANSITION_FUNCTION: &str = "phase_transition";
const END: &str = "<!-- end of table -->";

/// Tests that are not breakers by table.
const SPECIAL: &[(Rule, &str, &str)] = &[
    (Rule::S1, "a_sequence_number_is_its_index", "breakers"),
    (
        Rule::ID1,
        "a_promise_of_another_execution_is_refused",
        "breakers",
    ),
    (Rule::T1, "timers_fire_on_time_and_once", "commands"),
    (
        Rule::T2,
        "attempts_are_numbered_and_retried_by_the_policy",
        "commands",
    ),
];

fn source(path: &str) -> String {
    fs::read_to_string(format!("{CRATE}/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The file and the function that enforce a rule; the test fails if one of them does not exist.
fn code(invariant: &Invariant) -> String {
    let named = |text: &'static str| text.trim_start_matches("Content(").trim_end_matches(')');
    let (path, needle, shown) = match invariant.code {
        "Status" => (
            "src/state.rs".to_owned(),
            format!("Rule::{:?}", invariant.rule),
            TRANSITION_FUNCTION.to_owned(),
        ),
        "Command" => {
            let path = ["src/command/timer.rs", "src/command/attempt.rs"];
            let needle = format!("Rule::{:?}", invariant.rule);
            let path = path
                .into_iter()
                .find(|path| source(path).contains(&needle))
                .expect("a command enforces it");
            (path.to_owned(), needle, "command".to_owned())
        }
        content => {
            let (module, function) = named(content).split_once("::").expect("module::function");
            (
                format!("src/rules/{module}.rs"),
                format!("fn {function}("),
                function.to_owned(),
            )
        }
    };
    assert!(source(&path).contains(&needle), "{path} has no `{needle}`");
    if shown == TRANSITION_FUNCTION {
        let declaration = format!("fn {shown}(");
        assert!(
            source(&path).contains(&declaration),
            "{path} has no {shown}"
        );
    }
    format!("[`{shown}`](../crates/journal/{path})")
}

fn tests(rule: Rule) -> String {
    let by_table = BREAKERS
        .iter()
        .filter(|(broken, _)| *broken == rule)
        .map(|(_, name)| (*name, "breakers"));
    let special = SPECIAL
        .iter()
        .filter(|(broken, ..)| *broken == rule)
        .map(|(_, name, file)| (*name, *file));
    let found: Vec<String> = by_table
        .chain(special)
        .map(|(name, file)| {
            let text = source(&format!("tests/journal/{file}.rs"));
            assert!(
                text.contains(&format!(" {name}")),
                "{file}.rs has no test {name}"
            );
            format!("`{file}::{name}`")
        })
        .collect();
    assert!(!found.is_empty(), "no test breaks {rule}");
    found.join("<br>")
}

fn table() -> String {
    let mut rows =
        "| id | name | rule | enforced by | broken by |\n|---|---|---|---|---|\n".to_owned();
    for invariant in INVARIANTS {
        let Invariant {
            rule,
            id,
            name,
            text,
            ..
        } = invariant;
        rows += &format!(
            "| {id} | `{name}` | {text} | {} | {} |\n",
            code(invariant),
            tests(*rule)
        );
    }
    rows
}

#[test]
fn the_functions_named_above_the_table_exist() {
    let page = source("../../spec/INVARIANTS.md");
    let (head, _) = page.split_once(BEGIN).expect("the page has a table");
    for (name, file) in [
        (TRANSITION_FUNCTION, "src/state.rs"),
        ("rules_for_event", "src/rules/mod.rs"),
    ] {
        assert!(head.contains(&format!("`{name}`")), "the page names {name}");
        assert!(source(file).contains(&format!("fn {name}(")), "{file}");
    }
}

#[test]
fn the_page_of_invariants_matches_the_code() {
    let path = format!("{CRATE}/../../spec/INVARIANTS.md");
    let page = fs::read_to_string(&path).unwrap();
    let (head, rest) = page.split_once(BEGIN).expect("the page has a table");
    let (found, tail) = rest.split_once(END).expect("the table has an end");
    let expected = table();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&path, format!("{head}{BEGIN}{expected}{END}{tail}")).unwrap();
    } else {
        assert_eq!(
            found, expected,
            "run UPDATE_EXPECT=1 cargo test -p onward-journal --test journal"
        );
    }
}

#[test]
fn the_twenty_invariants_of_the_seed_specification_exist() {
    let ids: BTreeSet<&str> = INVARIANTS.iter().map(|invariant| invariant.id).collect();
    let families = [("S", 5), ("SE", 4), ("CF", 4), ("JS", 7)];
    for (family, count) in families {
        for number in 1..=count {
            assert!(
                ids.contains(format!("{family}-{number}").as_str()),
                "{family}-{number}"
            );
        }
    }
}
