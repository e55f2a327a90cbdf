//! The rules of ARCHITECTURE.md as tests: every sentence there has a row here, and every row a
//! sentence.
//!
//! What clippy (length of functions, hash maps, unfinished code), rustfmt and cargo-deny (sources,
//! licences, who may use wasmtime) check is not repeated here.

mod layers;
mod links;
pub(crate) mod names;
mod purity;
pub(crate) mod repository;
mod sql;
mod text;

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::print_data;
use crate::run::XtaskRun;
use crate::tidy::repository::{Repository, RuleFinding};

struct TidyRule {
    id: &'static str,
    check: fn(&Repository) -> Vec<RuleFinding>,
}

const fn rule(id: &'static str, check: fn(&Repository) -> Vec<RuleFinding>) -> TidyRule {
    TidyRule { id, check }
}

const RULES: &[TidyRule] = &[
    rule("A1", layers::dependencies_are_as_drawn),
    rule("A2", purity::pure_crates_name_no_io),
    rule("A3", layers::pure_crates_use_few_others),
    rule("A5", text::every_rust_file_has_a_header),
    rule("A6", text::files_stay_short),
    rule("A7", text::no_marks_for_later),
    rule("A8", sql::sql_only_in_store_adapters),
    rule("A9", links::links_resolve),
    rule("A10", names::names_say_something),
    rule("A11", text::no_machine_names),
    rule("A12", text::campaign_rows_have_one_writer),
    rule("A13", names::type_names_are_unique),
    rule("A14", text::comments_and_pages_are_wrapped),
    rule("A15", text::no_large_blobs),
];

/// Rules that only clippy checks (`clippy-pure.toml`).
const CHECKED_BY_CLIPPY: [&str; 1] = ["A4"];

/// Prints every finding as `path:line: rule: advice`, and fails when there is one.
pub(crate) fn check_rules(run: &XtaskRun) -> Result<()> {
    let lines = find_violations(&Repository::read(run)?);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    print_data(&text)?;
    ensure!(
        lines.is_empty(),
        "tidy found {} violation(s), listed above; ARCHITECTURE.md states the rules",
        lines.len()
    );
    Ok(())
}

fn find_violations(repository: &Repository) -> Vec<String> {
    let mut lines: Vec<String> = unstated_rules(repository)
        .iter()
        .map(|it| it.to_line("rules"))
        .collect();
    for rule in RULES {
        let findings = (rule.check)(repository);
        lines.extend(findings.iter().map(|it| it.to_line(rule.id)));
    }
    lines
}

/// Rules without a sentence `- **A1** …` in ARCHITECTURE.md, and sentences without a rule.
fn unstated_rules(repository: &Repository) -> Vec<RuleFinding> {
    const PAGE: &str = "ARCHITECTURE.md";
    let text = repository
        .texts(PAGE)
        .map(|(_, text)| text)
        .next()
        .unwrap_or_default();
    let ids = text
        .lines()
        .filter_map(|line| line.strip_prefix("- **")?.split_once("**"));
    let stated: BTreeSet<&str> = ids
        .map(|(id, _)| id)
        .filter(|id| id.starts_with('A') && id[1..].parse::<u32>().is_ok())
        .collect();
    let checked: BTreeSet<&str> = RULES
        .iter()
        .map(|rule| rule.id)
        .chain(CHECKED_BY_CLIPPY)
        .collect();
    stated
        .symmetric_difference(&checked)
        .map(|id| {
            let advice =
                format!("rule {id} needs both a sentence here and a check in xtask/src/tidy");
            RuleFinding::new(PAGE, 1, advice)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{CHECKED_BY_CLIPPY, RULES, find_violations};
    use crate::tidy::repository::Repository;

    fn architecture() -> String {
        let ids = RULES.iter().map(|rule| rule.id).chain(CHECKED_BY_CLIPPY);
        ids.map(|id| format!("- **{id}** A sentence.\n")).collect()
    }

    #[test]
    fn a_rule_without_a_sentence_is_found_and_so_is_a_sentence_without_a_rule() {
        let with =
            |text: &str| find_violations(&Repository::from_texts(&[("ARCHITECTURE.md", text)]));
        let all = architecture();
        let layered = |lines: Vec<String>| {
            lines
                .iter()
                .filter(|line| line.contains(": rules: "))
                .count()
        };
        assert_eq!(layered(with(&all)), 0);
        assert_eq!(layered(with(&all.replace("- **A1** A sentence.\n", ""))), 1);
        assert_eq!(layered(with(&format!("{all}- **A99** A wish.\n"))), 1);
    }
}
