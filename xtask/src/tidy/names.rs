//! A10: names say what a thing does. The words below say only that someone needed a place to put code.

use crate::tidy::outline::Kind;
use crate::tidy::tree::{Finding, Tree};

const EMPTY_WORDS: [&str; 6] = ["Manager", "Helper", "Helpers", "Util", "Utils", "Common"];
const EMPTY_SUFFIX: &str = "Impl";
const EMPTY_MODULES: [&str; 6] = ["util", "utils", "helper", "helpers", "common", "misc"];

pub(crate) fn say_something(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|it| has_empty_part(&it.path)) {
        findings.push(Finding::new(&file.path, 1, advice("this path")));
    }
    for (file, _, outline) in tree.rust() {
        for declaration in &outline.declarations {
            let name = declaration.name.as_str();
            let empty = match declaration.kind {
                Kind::Type => is_empty_type(name),
                Kind::Module => EMPTY_MODULES.contains(&name),
            };
            if empty {
                findings.push(Finding::new(&file.path, declaration.line, advice(name)));
            }
        }
    }
    findings
}

fn advice(name: &str) -> String {
    format!("{name} does not say what it does: name it after that")
}

/// Whether a folder is, or the file without its extension is, called by an empty word.
fn has_empty_part(path: &str) -> bool {
    path.split('/').any(|part| {
        let stem = part.split('.').next().unwrap_or_default();
        EMPTY_MODULES.contains(&stem)
    })
}

fn is_empty_type(name: &str) -> bool {
    let words = words(name);
    words.iter().any(|word| EMPTY_WORDS.contains(word)) || words.last() == Some(&EMPTY_SUFFIX)
}

/// The words of a CamelCase name.
fn words(name: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    for (at, c) in name.char_indices().skip(1) {
        if c.is_uppercase() {
            words.push(&name[start..at]);
            start = at;
        }
    }
    words.push(&name[start..]);
    words
}

#[cfg(test)]
mod tests {
    use super::say_something;
    use crate::tidy::tree::Tree;

    fn count(path: &str, text: &str) -> usize {
        say_something(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_type_with_an_empty_name_is_found() {
        for name in [
            "RunManager",
            "Helper",
            "StringUtils",
            "CommonArgs",
            "StoreImpl",
        ] {
            assert_eq!(
                count("a.rs", &format!("pub(crate) struct {name};")),
                1,
                "{name}"
            );
        }
        assert_eq!(
            count(
                "a.rs",
                "trait QueueHelper {}\nenum Util {}\ntype Common = u8;"
            ),
            3
        );
    }

    #[test]
    fn a_finding_names_the_name() {
        let findings = say_something(&Tree::of(&[("a.rs", "struct RunManager;")]));
        assert!(findings[0].what.starts_with("RunManager does not say"));
    }

    #[test]
    fn a_type_that_says_what_it_does_is_clean() {
        let source = "struct Lease; struct Utility; enum Implied {} trait Commoner {}";
        assert_eq!(count("a.rs", source), 0);
    }

    #[test]
    fn a_module_or_file_with_an_empty_name_is_found() {
        assert_eq!(count("a.rs", "mod helpers { }"), 1);
        assert_eq!(count("crates/cli/src/util.rs", ""), 1);
        assert_eq!(count("crates/cli/tests/common/mod.rs", ""), 1);
        assert_eq!(count("docs/misc.md", ""), 1);
    }

    #[test]
    fn a_module_that_says_what_it_does_is_clean() {
        assert_eq!(count("crates/cli/src/utilisation.rs", "mod codec;"), 0);
    }
}
