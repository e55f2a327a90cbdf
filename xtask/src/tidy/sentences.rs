//! The check of the checks: ARCHITECTURE.md and the table of rules name the same ids, so no sentence is only a wish
//! and no check is a surprise.

use std::collections::BTreeMap;

use crate::tidy::tree::{Finding, Tree};

const PAGE: &str = "ARCHITECTURE.md";

pub(crate) fn match_the_rules(tree: &Tree, ids: &[&str]) -> Vec<Finding> {
    let Some(text) = tree.text(PAGE) else {
        let what = "there is no such page: write it, with one sentence for each rule of tidy";
        return vec![Finding::new(PAGE, 1, what)];
    };
    let mut findings = Vec::new();
    let mut seen = BTreeMap::new();
    for (line, id) in stated(text) {
        if !ids.contains(&id) {
            let what =
                format!("rule {id} has no check: add one to the table in xtask/src/tidy/mod.rs");
            findings.push(Finding::new(PAGE, line, what));
        }
        if let Some(first) = seen.insert(id, line) {
            let what =
                format!("rule {id} is stated on line {first} too: give one of them a new id");
            findings.push(Finding::new(PAGE, line, what));
        }
    }
    for id in ids.iter().filter(|id| !seen.contains_key(*id)) {
        let what =
            format!("rule {id} is checked but not stated: add a line `- **{id}** …` that says it");
        findings.push(Finding::new(PAGE, 1, what));
    }
    findings
}

/// The rules a page states, as list items that begin with a bold id: `A` and a number.
fn stated(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(index, line)| {
        let (id, _) = line.strip_prefix("- **")?.split_once("**")?;
        let number = id.strip_prefix('A')?;
        let is_id = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_id.then_some((index + 1, id))
    })
}

#[cfg(test)]
mod tests {
    use super::match_the_rules;
    use crate::tidy::tree::Tree;

    fn lines(page: &str, ids: &[&str]) -> Vec<usize> {
        let tree = Tree::of(&[("ARCHITECTURE.md", page)]);
        let findings = match_the_rules(&tree, ids);
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_sentence_for_each_check_is_clean() {
        let page = "# Rules\n\n- **A1** One.\n- **A2** Two.\n- **Also** a bold word.\n";
        assert!(lines(page, &["A1", "A2"]).is_empty());
    }

    #[test]
    fn a_sentence_without_a_check_is_found() {
        assert_eq!(lines("- **A1** One.\n- **A2** Two.\n", &["A1"]), [2]);
    }

    #[test]
    fn a_check_without_a_sentence_is_found() {
        assert_eq!(lines("\n- **A1** One.\n", &["A1", "A2"]), [1]);
    }

    #[test]
    fn an_id_stated_twice_is_found() {
        assert_eq!(lines("- **A1** One.\n- **A1** Again.\n", &["A1"]), [2]);
    }

    #[test]
    fn a_missing_page_is_found() {
        assert_eq!(match_the_rules(&Tree::of(&[]), &["A1"]).len(), 1);
    }
}
