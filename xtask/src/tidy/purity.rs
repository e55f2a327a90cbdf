//! A2: pure crates name no module of the standard library for I/O, processes or threads,
//! and no function that reads a clock.
//!
//! Clippy lists single functions (`clippy-pure.toml`); this rule refuses whole modules.

use crate::tidy::layers::PURE;
use crate::tidy::repository::{Repository, RuleFinding};

/// Modules of `std` for I/O, processes and threads.
const IMPURE_MODULES: [&str; 7] = ["env", "fs", "io", "net", "os", "process", "thread"];
/// Functions of `time` that read a clock or the time zone of the machine.
const CLOCK_FUNCTIONS: [&str; 3] = ["now_utc", "now_local", "current_local_offset"];

pub(crate) fn pure_crates_name_no_io(repository: &Repository) -> Vec<RuleFinding> {
    let is_pure = |path: &str| {
        let crate_path = path.strip_prefix("crates/");
        let parts = crate_path.and_then(|rest| rest.split_once("/src/"));
        parts.is_some_and(|(name, _)| PURE.contains(&name))
    };
    let mut findings = Vec::new();
    for (path, text) in repository.texts(".rs").filter(|(path, _)| is_pure(path)) {
        for (line, name) in impure_names(text) {
            let advice = format!("{name} is impure: return an action, or take it as a parameter");
            findings.push(RuleFinding::new(path, line, advice));
        }
    }
    findings
}

/// The impure names of a file with their lines. In a group such as `std::{fmt, fs}` every name
/// counts.
fn impure_names(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("std::") {
        let rest = &text[at + "std::".len()..];
        let imported = match rest.strip_prefix('{') {
            Some(group) => group.split(';').next().unwrap_or_default(),
            None => rest.split(|c| !is_name_char(c)).next().unwrap_or_default(),
        };
        let line = 1 + text[..at].matches('\n').count();
        let names = imported.split(|c| !is_name_char(c));
        let impure = names.filter(|name| IMPURE_MODULES.contains(name));
        found.extend(impure.map(|name| (line, format!("std::{name}"))));
    }
    for (index, line) in text.lines().enumerate() {
        let names = line.split(|c| !is_name_char(c));
        let clocks = names.filter(|name| CLOCK_FUNCTIONS.contains(name));
        found.extend(clocks.map(|name| (index + 1, name.to_owned())));
    }
    found
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

#[cfg(test)]
mod tests {
    use super::pure_crates_name_no_io;
    use crate::tidy::repository::Repository;

    fn count(path: &str, text: &str) -> usize {
        pure_crates_name_no_io(&Repository::from_texts(&[(path, text)])).len()
    }

    #[test]
    fn every_path_into_an_impure_module_is_found() {
        for text in [
            "use std::fs;",
            "use std::{fmt, fs::rename};",
            "use std::{\n    collections::{BTreeMap, BTreeSet},\n    env,\n};",
            "fn f() { std::thread::scope(|_| ()); }",
            "fn f() -> u32 { ::std::process::id() }",
            "use std::os::unix::net::UnixStream;",
            "let now = OffsetDateTime::now_local();",
        ] {
            assert_eq!(count("crates/journal/src/x.rs", text), 1, "{text}");
            assert_eq!(count("crates/engine/src/x.rs", text), 0, "{text}");
            assert_eq!(count("crates/journal/tests/x.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn pure_modules_are_allowed() {
        let text = "use std::fmt;\nuse std::{cmp, iter};\nfn f() {}\nlet io = fs.thread();";
        assert_eq!(count("crates/base/src/x.rs", text), 0);
    }
}
