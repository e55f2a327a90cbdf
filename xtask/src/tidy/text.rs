//! Rules about files as text: headers, length, width, marks, blobs, machine names, and where
//! campaign rows may be written.

use crate::tidy::repository::{Repository, RuleFinding};

const HEADER_CHARS_MIN: usize = 20;
const FILE_LINES_MAX: usize = 600;
const COLUMNS_MAX: usize = 100;
const BLOB_BYTES_MAX: usize = 256 * 1024;

/// Files that may be larger than [`BLOB_BYTES_MAX`], and why.
const LARGE_FILES: [(&str, &str); 1] = [("spec/traces/", "the corpus of model traces")];

/// Concatenated, so that this file does not contain what it looks for.
const MARKS: [&str; 3] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
];
const MACHINE_NAMES: [&str; 8] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
    concat!("deb.deb", "ian.org"),
    concat!("registry.", "npmjs"),
    concat!("index.", "crates"),
    concat!("py", "pi.org"),
    concat!("\"reso", "lved\""),
];
const CAMPAIGN_ROWS: [&str; 3] = ["CampaignRunRow", "OutboxItemRow", "JobRow"];

pub(crate) fn every_rust_file_has_a_header(repository: &Repository) -> Vec<RuleFinding> {
    let header_chars = |text: &str| -> usize {
        let lines = text.lines().map_while(|line| line.strip_prefix("//!"));
        lines.map(|line| line.trim().chars().count()).sum()
    };
    repository
        .texts(".rs")
        .filter(|(_, text)| header_chars(text) < HEADER_CHARS_MIN)
        .map(|(path, _)| {
            let advice = "open the file with a `//!` comment that says why the file exists";
            RuleFinding::new(path, 1, advice)
        })
        .collect()
}

/// The length of functions is checked by clippy (`too_many_lines`).
pub(crate) fn files_stay_short(repository: &Repository) -> Vec<RuleFinding> {
    let lengths = repository
        .texts(".rs")
        .map(|(path, text)| (path, text.lines().count()));
    lengths
        .filter(|(_, lines)| *lines > FILE_LINES_MAX)
        .map(|(path, lines)| {
            let advice = format!("{lines} lines, over the limit of {FILE_LINES_MAX}: split it");
            RuleFinding::new(path, 1, advice)
        })
        .collect()
}

/// Tables, links and examples keep their lines. Code is left to rustfmt.
pub(crate) fn comments_and_pages_are_wrapped(repository: &Repository) -> Vec<RuleFinding> {
    let comments = repository
        .texts(".rs")
        .flat_map(|(path, text)| wide_lines(path, text, comment_text));
    let pages = repository
        .texts(".md")
        .flat_map(|(path, text)| wide_lines(path, text, |line| Some(line.trim_start())));
    let settings = repository
        .texts(".toml")
        .flat_map(|(path, text)| wide_lines(path, text, setting_text));
    // No formatter wraps the code of the model.
    let model = repository
        .texts(".qnt")
        .flat_map(|(path, text)| wide_lines(path, text, |line| Some(line)));
    comments.chain(pages).chain(settings).chain(model).collect()
}

/// A comment or a description of a package. Lists of features keep their lines.
fn setting_text(line: &str) -> Option<&str> {
    let is_prose = line.starts_with('#') || line.starts_with("description = ");
    is_prose.then_some(line)
}

/// Finds the wide lines of the prose that `prose_of` finds in a line; it ends where there is none.
fn wide_lines(path: &str, text: &str, prose_of: impl Fn(&str) -> Option<&str>) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    let mut is_example = false;
    for (index, line) in text.lines().enumerate() {
        let Some(prose) = prose_of(line) else {
            is_example = false;
            continue;
        };
        is_example ^= prose.starts_with("```");
        let keeps_line = is_example || prose.starts_with('|') || prose.contains("://");
        if !keeps_line && line.chars().count() > COLUMNS_MAX {
            let advice = format!("wrap the text at {COLUMNS_MAX} columns");
            findings.push(RuleFinding::new(path, index + 1, advice));
        }
    }
    findings
}

fn comment_text(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    Some(text.trim_start_matches(['/', '!']).trim_start())
}

pub(crate) fn no_large_blobs(repository: &Repository) -> Vec<RuleFinding> {
    let is_listed = |path: &str| {
        LARGE_FILES
            .iter()
            .any(|(listed, _)| path.starts_with(listed))
    };
    repository
        .files()
        .iter()
        .filter(|file| file.bytes > BLOB_BYTES_MAX && !is_listed(&file.path))
        .map(|file| {
            let advice = "larger than 256 KiB: generate it, or list it with its reason";
            RuleFinding::new(&file.path, 1, advice)
        })
        .collect()
}

pub(crate) fn no_marks_for_later(repository: &Repository) -> Vec<RuleFinding> {
    [".rs", ".qnt", ".toml", ".md"]
        .into_iter()
        .flat_map(|suffix| lines_of(repository, suffix).collect::<Vec<_>>())
        .filter(|(_, _, line)| words_of(line).any(|word| MARKS.contains(&word)))
        .map(|(path, number, _)| {
            RuleFinding::new(
                path,
                number,
                "do it now, or open an issue and remove the mark",
            )
        })
        .collect()
}

pub(crate) fn no_machine_names(repository: &Repository) -> Vec<RuleFinding> {
    lines_of(repository, "")
        .filter(|(path, _, _)| !path.ends_with("Cargo.lock"))
        .filter_map(|(path, number, line)| {
            let name = MACHINE_NAMES
                .iter()
                .find(|name| names_machine(line, name))?;
            let advice =
                format!("{name} belongs to one machine: use a relative path or its settings");
            Some(RuleFinding::new(path, number, advice))
        })
        .collect()
}

/// Whether `name` is in the line; a folder counts only where an absolute path begins.
fn names_machine(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let continues = before.is_some_and(|c| c.is_alphanumeric() || "_-.".contains(c));
        !(name.starts_with('/') && continues)
    })
}

/// A crate that imports the rows of campaigns and commits could write any status.
pub(crate) fn campaign_rows_have_one_writer(repository: &Repository) -> Vec<RuleFinding> {
    let is_other = |path: &str| {
        path.starts_with("crates/")
            && path.contains("/src/")
            && !path.starts_with("crates/campaign-dispatch/")
            && !path.starts_with("crates/store")
    };
    repository
        .texts(".rs")
        .filter(|(path, text)| {
            let has = |wanted: &[&str]| words_of(text).any(|word| wanted.contains(&word));
            is_other(path) && has(&CAMPAIGN_ROWS) && has(&["Commit", "RowChange"])
        })
        .map(|(path, _)| {
            RuleFinding::new(
                path,
                1,
                "let onward-campaign-dispatch write the rows of campaigns",
            )
        })
        .collect()
}

fn lines_of<'a>(
    repository: &'a Repository,
    suffix: &'a str,
) -> impl Iterator<Item = (&'a str, usize, &'a str)> {
    let numbered = |text: &'a str| text.lines().enumerate();
    repository.texts(suffix).flat_map(move |(path, text)| {
        numbered(text).map(move |(index, line)| (path, index + 1, line))
    })
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    type Rule = fn(&Repository) -> Vec<RuleFinding>;

    fn count(rule: Rule, path: &str, text: &str) -> usize {
        rule(&Repository::from_texts(&[(path, text)])).len()
    }

    #[test]
    fn a_file_without_a_header_is_found() {
        let rule: Rule = every_rust_file_has_a_header;
        assert_eq!(count(rule, "a.rs", "fn f() {}\n"), 1);
        assert_eq!(count(rule, "a.rs", "//! Things.\n"), 1);
        assert_eq!(
            count(
                rule,
                "a.rs",
                "//! Why this file\n//!\n//! exists, at length.\n"
            ),
            0
        );
    }

    #[test]
    fn a_long_file_is_found() {
        assert_eq!(count(files_stay_short, "a.rs", &"x\n".repeat(600)), 0);
        assert_eq!(count(files_stay_short, "a.rs", &"x\n".repeat(601)), 1);
    }

    #[test]
    fn a_wide_comment_is_found_and_wide_code_is_left_to_rustfmt() {
        let wide = "x ".repeat(60);
        assert_eq!(
            count(
                comments_and_pages_are_wrapped,
                "a.rs",
                &format!("/// {wide}")
            ),
            1
        );
        assert_eq!(count(comments_and_pages_are_wrapped, "a.rs", &wide), 0);
        let settings = format!("# {wide}\ndescription = \"{wide}\"\nfeatures = [\"{wide}\"]\n");
        assert_eq!(
            count(comments_and_pages_are_wrapped, "a.toml", &settings),
            2
        );
        assert_eq!(count(comments_and_pages_are_wrapped, "a.qnt", &wide), 1);
        let page = format!("{wide}\n| {wide}|\n```\n{wide}\n```\nhttps://{wide}");
        assert_eq!(count(comments_and_pages_are_wrapped, "a.md", &page), 1);
        let example = format!("/// ```\n/// {wide}\n/// ```\n/// | {wide}|\n/// {wide}");
        assert_eq!(count(comments_and_pages_are_wrapped, "a.rs", &example), 1);
    }

    #[test]
    fn a_large_blob_is_found_unless_it_is_listed() {
        let text = "x".repeat(BLOB_BYTES_MAX + 1);
        assert_eq!(count(no_large_blobs, "a.bin", &text), 1);
        assert_eq!(count(no_large_blobs, "spec/traces/a.json", &text), 0);
    }

    #[test]
    fn a_mark_is_found_as_a_word() {
        for mark in MARKS {
            assert_eq!(
                count(no_marks_for_later, "a.rs", &format!("// {mark}: later")),
                1
            );
            assert_eq!(count(no_marks_for_later, "a.rs", &format!("// {mark}S")), 0);
        }
    }

    #[test]
    fn a_machines_folders_and_hosts_are_found() {
        for name in MACHINE_NAMES {
            assert_eq!(
                count(no_machine_names, "README.md", &format!("see {name}x")),
                1,
                "{name}"
            );
        }
        assert_eq!(
            count(
                no_machine_names,
                "a.md",
                &format!("target{}x", MACHINE_NAMES[0])
            ),
            0
        );
        assert_eq!(
            count(no_machine_names, "fuzz/Cargo.lock", MACHINE_NAMES[5]),
            0
        );
    }

    #[test]
    fn campaign_rows_are_committed_by_one_crate() {
        let writes = "use onward_store::tables::JobRow;\nfn f() { Commit::new(); }";
        let rule: Rule = campaign_rows_have_one_writer;
        assert_eq!(count(rule, "crates/server/src/x.rs", writes), 1);
        assert_eq!(count(rule, "crates/campaign-dispatch/src/x.rs", writes), 0);
        assert_eq!(count(rule, "crates/cli/tests/x.rs", writes), 0);
        assert_eq!(
            count(rule, "crates/server/src/x.rs", "fn f(row: &JobRow) {}"),
            0
        );
    }
}
