//! A6: functions and files stay small. What was too large when the rule came is listed in the ratchet, where numbers
//! only go down.

use std::collections::BTreeMap;

use crate::tidy::tree::{Finding, Tree};

pub(crate) const RATCHET: &str = "xtask/ratchet.txt";

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;

/// A file, or a function named `path::function`, that is over its limit.
struct Oversize {
    path: String,
    line: usize,
    lines: usize,
    limit: usize,
}

struct Entry<'a> {
    line: usize,
    name: &'a str,
    lines: usize,
}

pub(crate) fn stay_small(tree: &Tree) -> Vec<Finding> {
    let oversizes = oversizes(tree);
    let ratchet = tree.text(RATCHET).unwrap_or_default();
    let mut findings = Vec::new();
    let mut allowed = BTreeMap::new();
    for (index, line) in ratchet.lines().enumerate() {
        match parse_entry(index + 1, line) {
            Ok(None) => {}
            Ok(Some(entry)) => {
                findings.extend(check_entry(&entry, &oversizes));
                allowed.insert(entry.name, entry.lines);
            }
            Err(finding) => findings.push(finding),
        }
    }
    for (name, oversize) in &oversizes {
        findings.extend(check_size(
            name,
            oversize,
            allowed.get(name.as_str()).copied(),
        ));
    }
    findings
}

/// The ratchet with every number brought down to today's size, and without what is small enough now.
pub(crate) fn lowered(ratchet: &str, tree: &Tree) -> String {
    let oversizes = oversizes(tree);
    let mut text = String::new();
    for (index, line) in ratchet.lines().enumerate() {
        let kept = match parse_entry(index + 1, line) {
            Ok(Some(entry)) => oversizes.get(entry.name).map(|oversize| {
                let lines = oversize.lines.min(entry.lines);
                format!("{} {lines}", entry.name)
            }),
            Ok(None) | Err(_) => Some(line.to_owned()),
        };
        if let Some(line) = kept {
            text.push_str(&line);
            text.push('\n');
        }
    }
    text
}

fn oversizes(tree: &Tree) -> BTreeMap<String, Oversize> {
    let mut found = BTreeMap::new();
    for (file, text, outline) in tree.rust() {
        let mut note = |name: String, oversize: Oversize| {
            let larger = |it: &Oversize| it.lines >= oversize.lines;
            if oversize.lines > oversize.limit && !found.get(&name).is_some_and(larger) {
                found.insert(name, oversize);
            }
        };
        let whole = Oversize {
            path: file.path.clone(),
            line: 1,
            lines: text.lines().count(),
            limit: FILE_LINES_MAX,
        };
        note(file.path.clone(), whole);
        for function in &outline.functions {
            let part = Oversize {
                path: file.path.clone(),
                line: function.line,
                lines: function.length_lines,
                limit: FUNCTION_LINES_MAX,
            };
            note(format!("{}::{}", file.path, function.name), part);
        }
    }
    found
}

/// Reads `name lines`; comments and empty lines are no entries.
fn parse_entry(line: usize, text: &str) -> Result<Option<Entry<'_>>, Finding> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    text.rsplit_once(' ')
        .and_then(|(name, lines)| Some((name.trim(), lines.parse().ok()?)))
        .map(|(name, lines)| Some(Entry { line, name, lines }))
        .ok_or_else(|| Finding::new(RATCHET, line, "write the entry as `path[::function] lines`"))
}

fn check_entry(entry: &Entry<'_>, oversizes: &BTreeMap<String, Oversize>) -> Option<Finding> {
    let what = match oversizes.get(entry.name) {
        None => {
            format!(
                "{} is within the limit or gone: remove the entry with `cargo xtask tidy --ratchet`",
                entry.name
            )
        }
        Some(today) if today.lines < entry.lines => {
            format!(
                "{} has {} lines now: lower the entry with `cargo xtask tidy --ratchet`",
                entry.name, today.lines
            )
        }
        Some(_) => return None,
    };
    Some(Finding::new(RATCHET, entry.line, what))
}

fn check_size(name: &str, oversize: &Oversize, allowed: Option<usize>) -> Option<Finding> {
    let what = match allowed {
        Some(lines) if oversize.lines <= lines => return None,
        Some(lines) => format!(
            "{name} grew from {lines} to {} lines: sizes in {RATCHET} only shrink, so take something out",
            oversize.lines
        ),
        None => format!(
            "{name} has {} lines, over the limit of {}: split it where it does two things",
            oversize.lines, oversize.limit
        ),
    };
    Some(Finding::new(&oversize.path, oversize.line, what))
}

#[cfg(test)]
mod tests {
    use super::{RATCHET, lowered, stay_small};
    use crate::tidy::tree::Tree;

    const PATH: &str = "crates/cli/src/x.rs";

    /// A function of that many lines, after one other line.
    fn function(lines: usize) -> String {
        format!(
            "//! X.\nfn long() {{\n{}}}\n",
            "    x();\n".repeat(lines - 2)
        )
    }

    fn findings(source: &str, ratchet: &str) -> Vec<String> {
        let tree = Tree::of(&[(PATH, source), (RATCHET, ratchet)]);
        let lines = stay_small(&tree);
        lines.iter().map(|it| it.line_for("A6")).collect()
    }

    #[test]
    fn a_function_at_the_limit_is_clean() {
        assert!(findings(&function(70), "").is_empty());
    }

    #[test]
    fn a_function_over_the_limit_is_found_where_it_begins() {
        let found = findings(&function(71), "");
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("crates/cli/src/x.rs:2: A6: crates/cli/src/x.rs::long has 71")
        );
    }

    #[test]
    fn of_two_functions_with_one_name_the_longer_counts() {
        for lengths in [[80, 90], [90, 80]] {
            let source = lengths.map(function).concat().replace("//! X.", "");
            let found = findings(&source, "");
            assert_eq!(found.len(), 1);
            assert!(found[0].contains("::long has 90 lines"));
        }
    }

    #[test]
    fn a_file_over_the_limit_is_found() {
        assert!(findings(&"//! X.\n".repeat(600), "").is_empty());
        assert_eq!(findings(&"//! X.\n".repeat(601), "").len(), 1);
    }

    #[test]
    fn the_ratchet_accepts_exactly_the_size_of_today() {
        let entry = format!("# Why.\n\n{PATH}::long 80\n");
        assert!(findings(&function(80), &entry).is_empty());
        assert!(findings(&function(81), &entry)[0].contains("grew from 80 to 81"));
        assert!(findings(&function(79), &entry)[0].starts_with("xtask/ratchet.txt:3: A6: "));
        assert!(findings(&function(70), &entry)[0].contains("remove the entry"));
    }

    #[test]
    fn an_entry_that_cannot_be_read_is_found() {
        assert_eq!(findings("", "crates/cli/src/x.rs\n").len(), 1);
    }

    #[test]
    fn lowering_removes_and_lowers_and_never_raises_or_adds() {
        let tree = Tree::of(&[
            ("a.rs", &function(75)),
            ("b.rs", &function(90)),
            ("c.rs", &function(60)),
            ("d.rs", &function(80)),
        ]);
        let before = "# Kept.\na.rs::long 80\nb.rs::long 85\nc.rs::long 72\n";
        assert_eq!(
            lowered(before, &tree),
            "# Kept.\na.rs::long 75\nb.rs::long 85\n"
        );
    }
}
