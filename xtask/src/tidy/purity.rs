//! A2, A3 and A4: the crates that decide are pure. The same input gives the same decision on any machine and in any
//! replay, so they reach for nothing outside their arguments and depend on little.

use crate::tidy::layers::is_ours;
use crate::tidy::manifest::Purpose;
use crate::tidy::outline::{Form, Mention, Place};
use crate::tidy::tree::{Finding, Tree};

const PURE: [&str; 3] = ["crates/journal", "crates/runs", "crates/dispatch"];

/// The external crates a pure crate may use: none of them does I/O for it or keeps a clock.
const EXTERNAL: [&str; 8] = [
    "crc32fast",
    "minicbor",
    "serde",
    "serde_json",
    "sha2",
    "smallvec",
    "thiserror",
    "time",
];

const OUTSIDE_MODULES: [&str; 7] = ["fs", "net", "io", "env", "process", "thread", "*"];
const OUTSIDE_CRATES: [&str; 4] = ["tokio", "rand", "getrandom", "fastrand"];
const OUTSIDE_TYPES: [&str; 3] = ["SystemTime", "Instant", "RandomState"];
const OUTSIDE_CALLS: [[&str; 2]; 2] = [
    ["OffsetDateTime", "now_utc"],
    ["OffsetDateTime", "now_local"],
];
const OUTSIDE_MACROS: [&str; 5] = ["println", "eprintln", "print", "eprint", "dbg"];

const UNORDERED: [&str; 2] = ["HashMap", "HashSet"];

pub(crate) fn no_outside_world(tree: &Tree) -> Vec<Finding> {
    mentions_in_pure(tree)
        .filter(|(path, it)| it.place == Place::Product && !tree.is_test_module(path))
        .filter(|(_, mention)| reaches_outside(mention))
        .map(|(path, mention)| {
            let what = format!(
                "{} reaches outside a pure crate: take what it gives as a parameter, or return an action \
                 that the caller performs",
                written(mention)
            );
            Finding::new(path, mention.line, what)
        })
        .collect()
}

pub(crate) fn few_external_crates(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let pure = |folder: &str| PURE.contains(&folder);
    for manifest in tree.manifests().iter().filter(|it| pure(&it.folder)) {
        for dependency in &manifest.dependencies {
            let package = dependency.package.as_str();
            let accepted = is_ours(package) || EXTERNAL.contains(&package);
            if dependency.purpose == Purpose::Product && !accepted {
                let what = format!(
                    "a pure crate may not depend on {package}: do without, or argue for it in the list of \
                     xtask/src/tidy/purity.rs"
                );
                findings.push(Finding::new(&manifest.path, dependency.line, what));
            }
        }
    }
    findings
}

pub(crate) fn no_hash_order(tree: &Tree) -> Vec<Finding> {
    mentions_in_pure(tree)
        .filter(|(_, mention)| has_segment(mention, &UNORDERED))
        .map(|(path, mention)| {
            let what = format!(
                "{} iterates in an order that differs from run to run: use BTreeMap, BTreeSet or Vec",
                written(mention)
            );
            Finding::new(path, mention.line, what)
        })
        .collect()
}

fn mentions_in_pure(tree: &Tree) -> impl Iterator<Item = (&str, &Mention)> {
    tree.rust()
        .filter(|(file, ..)| is_pure_source(&file.path))
        .flat_map(|(file, _, outline)| {
            let path = file.path.as_str();
            outline.mentions.iter().map(move |it| (path, it))
        })
}

fn is_pure_source(path: &str) -> bool {
    PURE.iter().any(|folder| {
        path.strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with("/src/"))
    })
}

fn reaches_outside(mention: &Mention) -> bool {
    let segments: Vec<&str> = mention.segments.iter().map(String::as_str).collect();
    let name = segments.last().copied().unwrap_or_default();
    let printed = mention.form == Form::MacroCall && OUTSIDE_MACROS.contains(&name);
    let from_std = matches!(segments[..], ["std", module, ..] if OUTSIDE_MODULES.contains(&module));
    let from_crate = matches!(segments[..], [first, _, ..] if OUTSIDE_CRATES.contains(&first));
    let called = segments
        .windows(2)
        .any(|pair| OUTSIDE_CALLS.iter().any(|call| call == pair));
    printed || from_std || from_crate || called || has_segment(mention, &OUTSIDE_TYPES)
}

fn has_segment(mention: &Mention, names: &[&str]) -> bool {
    mention
        .segments
        .iter()
        .any(|segment| names.contains(&segment.as_str()))
}

fn written(mention: &Mention) -> String {
    let path = mention.segments.join("::");
    match mention.form {
        Form::Path => path,
        Form::MacroCall => format!("{path}!"),
    }
}

#[cfg(test)]
mod tests {
    use super::{few_external_crates, no_hash_order, no_outside_world};
    use crate::tidy::tree::Tree;

    fn journal(source: &str) -> Tree {
        Tree::of(&[("crates/journal/src/lib.rs", source)])
    }

    fn outside(source: &str) -> usize {
        no_outside_world(&journal(source)).len()
    }

    #[test]
    fn a_pure_crate_may_not_read_the_clock() {
        assert_eq!(
            outside("fn f() { let t = std::time::SystemTime::now(); }"),
            1
        );
        assert_eq!(outside("use std::time::{Duration, Instant};"), 1);
        assert_eq!(outside("fn f() { time::OffsetDateTime::now_utc(); }"), 1);
    }

    #[test]
    fn a_pure_crate_may_not_touch_files_or_print() {
        assert_eq!(outside("use std::{fs, fmt, io::Write};"), 2);
        assert_eq!(outside("fn f() { dbg!(1); println!(\"x\"); }"), 2);
        assert_eq!(outside("fn f() { assert!(::std::fs::exists(x)); }"), 1);
    }

    #[test]
    fn a_pure_crate_may_not_draw_lots_or_wait() {
        assert_eq!(outside("fn f() { rand::random(); tokio::spawn(x); }"), 2);
    }

    #[test]
    fn a_finding_names_what_was_used() {
        let findings = no_outside_world(&journal("fn f() {\n dbg!(1);\n std::env::args(); }"));
        assert!(findings[0].what.starts_with("dbg! reaches"));
        assert!(findings[1].what.starts_with("std::env::args reaches"));
        assert_eq!((findings[0].line, findings[1].line), (2, 3));
    }

    #[test]
    fn a_pure_crate_may_compute() {
        let source = "//! std::fs is not used.\nuse std::fmt;\nuse std::time::Duration;\n\
                      /// See std::fs.\nfn f(rand: u8) -> u8 { let io = \"std::io\"; rand }";
        assert_eq!(outside(source), 0);
    }

    #[test]
    fn tests_of_a_pure_crate_may_use_files() {
        assert_eq!(outside("#[cfg(test)]\nmod tests {\n use std::fs;\n}"), 0);
        let tree = Tree::of(&[
            ("crates/journal/src/lib.rs", "#[cfg(test)]\nmod vectors;"),
            ("crates/journal/src/vectors.rs", "use std::fs;"),
            ("crates/journal/tests/all.rs", "use std::fs;"),
        ]);
        assert!(no_outside_world(&tree).is_empty());
    }

    #[test]
    fn other_crates_may_touch_the_world() {
        let tree = Tree::of(&[("crates/cli/src/main.rs", "use std::fs;")]);
        assert!(no_outside_world(&tree).is_empty());
    }

    #[test]
    fn a_pure_crate_depends_on_listed_crates_only() {
        let text = "[package]\nname = \"onward-runs\"\n[dependencies]\nserde = \"1\"\nregex = \"1\"\n\
                    [dev-dependencies]\nproptest = \"1\"\n";
        let findings = few_external_crates(&Tree::of(&[("crates/runs/Cargo.toml", text)]));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 5);
    }

    #[test]
    fn other_crates_depend_on_what_they_need() {
        let text = "[package]\nname = \"onward\"\n[dependencies]\nregex = \"1\"\n";
        let tree = Tree::of(&[("crates/cli/Cargo.toml", text)]);
        assert!(few_external_crates(&tree).is_empty());
    }

    #[test]
    fn a_pure_crate_may_not_use_a_hash_map() {
        let tree = journal("use std::collections::{BTreeMap, HashMap};\ntype T = HashSet<u8>;");
        assert_eq!(no_hash_order(&tree).len(), 2);
    }

    #[test]
    fn an_ordered_map_is_fine() {
        let tree = journal("/// No HashMap here.\nuse std::collections::BTreeMap;");
        assert!(no_hash_order(&tree).is_empty());
    }
}
