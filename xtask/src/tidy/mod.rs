//! The rules of ARCHITECTURE.md as tests: every sentence there has a row here, and every row a sentence.

mod boundaries;
mod headers;
mod kernel;
mod layers;
mod leftovers;
mod links;
mod machine_paths;
mod manifest;
mod markdown;
mod names;
mod outline;
mod purity;
mod sentences;
mod sizes;
mod tree;

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::print_data;
use crate::run::Run;
use crate::tidy::tree::{Finding, Tree};

struct Rule {
    id: &'static str,
    check: fn(&Tree) -> Vec<Finding>,
}

const RULES: &[Rule] = &[
    Rule {
        id: "A1",
        check: layers::dependencies_point_downwards,
    },
    Rule {
        id: "A2",
        check: purity::no_outside_world,
    },
    Rule {
        id: "A3",
        check: purity::few_external_crates,
    },
    Rule {
        id: "A4",
        check: purity::no_hash_order,
    },
    Rule {
        id: "A5",
        check: headers::every_file_says_why,
    },
    Rule {
        id: "A6",
        check: sizes::stay_small,
    },
    Rule {
        id: "A7",
        check: leftovers::none_left,
    },
    Rule {
        id: "A8",
        check: boundaries::each_engine_in_its_crate,
    },
    Rule {
        id: "A9",
        check: links::lead_somewhere,
    },
    Rule {
        id: "A10",
        check: names::say_something,
    },
    Rule {
        id: "A11",
        check: machine_paths::none_written_down,
    },
    Rule {
        id: "A12",
        check: kernel::campaigns_are_written_by_it_alone,
    },
];

/// Prints every finding as `path:line: rule: what to do`, and fails when there is one.
pub(crate) fn check(run: &Run) -> Result<()> {
    let lines = findings(&Tree::read(run)?);
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    print_data(&text)?;
    ensure!(
        lines.is_empty(),
        "tidy found {} broken rule(s), listed above; ARCHITECTURE.md says why each rule exists",
        lines.len()
    );
    Ok(())
}

/// Writes today's smaller sizes into the ratchet; never adds to it.
pub(crate) fn lower_ratchet(run: &Run) -> Result<()> {
    let tree = Tree::read(run)?;
    if let Some(before) = tree.text(sizes::RATCHET) {
        fs::write(run.root.join(sizes::RATCHET), sizes::lowered(before, &tree))
            .with_context(|| format!("cannot write {}", sizes::RATCHET))?;
    }
    Ok(())
}

fn findings(tree: &Tree) -> Vec<String> {
    let ids: Vec<&str> = RULES.iter().map(|rule| rule.id).collect();
    let mut lines = Vec::new();
    lines.extend(tree.unreadable().iter().map(|it| it.line_for("parse")));
    lines.extend(
        sentences::match_the_rules(tree, &ids)
            .iter()
            .map(|it| it.line_for("rules")),
    );
    for rule in RULES {
        lines.extend((rule.check)(tree).iter().map(|it| it.line_for(rule.id)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::{RULES, findings};
    use crate::tidy::tree::Tree;

    fn architecture() -> String {
        let sentence = |id: &str| format!("- **{id}** A sentence.\n");
        RULES.iter().map(|rule| sentence(rule.id)).collect()
    }

    #[test]
    fn a_tidy_tree_has_no_finding() {
        let tree = Tree::of(&[("ARCHITECTURE.md", &architecture())]);
        assert_eq!(findings(&tree), Vec::<String>::new());
    }

    #[test]
    fn a_finding_names_the_place_the_rule_and_what_to_do() {
        let source = "//! Why this file exists, at length.\n\nuse std::fs;\n";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", &architecture()),
            ("crates/journal/src/lib.rs", source),
        ]);
        let lines = findings(&tree);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("crates/journal/src/lib.rs:3: A2: "));
    }

    #[test]
    fn a_rust_file_that_cannot_be_read_is_a_finding() {
        let source = "//! Why this file exists, at length.\n\nfn open( {\n";
        let tree = Tree::of(&[
            ("ARCHITECTURE.md", &architecture()),
            ("xtask/src/x.rs", source),
        ]);
        let lines = findings(&tree);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("xtask/src/x.rs:"));
        assert!(lines[0].contains(": parse: "));
    }
}
