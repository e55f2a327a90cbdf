//! A7: nothing is left for later. No mark that says so, no macro that panics in place of code, and no lint silenced
//! in a way that outlives its reason.

use crate::tidy::markdown::without_inline_code;
use crate::tidy::outline::{Form, Mention, Outline};
use crate::tidy::tree::{Finding, Tree};

/// In pieces, so that this file is not a finding.
const MARKS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const UNWRITTEN: [&str; 2] = ["todo", "unimplemented"];
const EXTENSIONS: [&str; 4] = [".rs", ".qnt", ".toml", ".md"];

pub(crate) fn none_left(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, _, outline) in tree.rust() {
        findings.extend(in_code(&file.path, outline));
    }
    let marked = |path: &str| EXTENSIONS.iter().any(|extension| path.ends_with(extension));
    for (path, text) in tree.texts().filter(|(path, _)| marked(path)) {
        findings.extend(in_text(path, text));
    }
    findings
}

fn in_code(path: &str, outline: &Outline) -> Vec<Finding> {
    let silenced = outline.allows.iter().map(|line| {
        let what =
            "write #[expect(lint, reason = \"…\")]: unlike this, it warns when its reason is gone";
        Finding::new(path, *line, what)
    });
    let unwritten = outline.mentions.iter().filter_map(|mention| {
        let name = unwritten_macro(mention)?;
        let what =
            format!("{name}! stands for code that is not there: write it, or return an error");
        Some(Finding::new(path, mention.line, what))
    });
    silenced.chain(unwritten).collect()
}

fn unwritten_macro(mention: &Mention) -> Option<&str> {
    let name = mention.segments.last()?.as_str();
    (mention.form == Form::MacroCall && UNWRITTEN.contains(&name)).then_some(name)
}

fn in_text(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // A page that explains the rule may name a mark as code.
        let line = if path.ends_with(".md") {
            without_inline_code(line)
        } else {
            line.to_owned()
        };
        let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        if let Some(mark) = words.find(|word| MARKS.contains(word)) {
            let what = format!(
                "{mark} is no place to plan: do it now, or open an issue and remove the mark"
            );
            findings.push(Finding::new(path, index + 1, what));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::{MARKS, none_left};
    use crate::tidy::tree::Tree;

    fn count(path: &str, text: &str) -> usize {
        none_left(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_silenced_lint_is_found_wherever_it_is() {
        assert_eq!(
            count("a.rs", "#![allow(dead_code)]\n#[allow(unused)]\nfn f() {}"),
            2
        );
        assert_eq!(
            count("a.rs", "#[cfg_attr(unix, allow(unused))]\nfn f() {}"),
            1
        );
        assert_eq!(
            count(
                "a.rs",
                "macro_rules! m { () => { #[allow(unused)] fn f() {} } }"
            ),
            1
        );
    }

    #[test]
    fn an_expected_lint_is_clean() {
        assert_eq!(
            count(
                "a.rs",
                "#[expect(unused, reason = \"no,allow(x)\")]\nfn allow() {}"
            ),
            0
        );
    }

    #[test]
    fn code_that_is_not_written_is_found() {
        assert_eq!(
            count(
                "a.rs",
                "fn f() { todo!() }\nfn g() { unimplemented!(\"g\") }"
            ),
            2
        );
        assert_eq!(count("a.rs", "fn todo() { let s = \"todo!()\"; }"), 0);
    }

    #[test]
    fn a_mark_is_found_in_every_kind_of_file() {
        for mark in MARKS {
            for path in ["a.rs", "a.qnt", "a.toml", "a.md"] {
                assert_eq!(
                    count(path, &format!("// {mark}: later")),
                    1,
                    "{mark} in {path}"
                );
            }
            assert_eq!(count("a.txt", mark), 0);
        }
    }

    #[test]
    fn a_finding_points_at_its_line() {
        let text = format!(
            "\n\n// {}\n#[allow(unused)]\nfn f() {{\ntodo!() }}",
            MARKS[1]
        );
        let findings = none_left(&Tree::of(&[("a.rs", &text)]));
        let lines: Vec<usize> = findings.iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [4, 6, 3]);
    }

    #[test]
    fn a_longer_word_and_inline_code_in_a_page_are_clean() {
        let mark = MARKS[0];
        assert_eq!(count("a.rs", &format!("// {mark}S and MY_{mark}")), 0);
        assert_eq!(count("a.md", &format!("No `{mark}` here.")), 0);
    }
}
