//! A9: a link in a page leads to a file that is in the repository, on every machine that has it.

use crate::tidy::markdown::prose;
use crate::tidy::tree::{Finding, Tree};

pub(crate) fn lead_somewhere(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md")) {
        for (line, prose) in prose(text) {
            for target in targets(&prose) {
                if let Some(what) = problem(tree, path, target) {
                    findings.push(Finding::new(path, line, what));
                }
            }
        }
    }
    findings
}

/// The targets of `[text](target)`, `![text](target)` and `[name]: target`.
fn targets(line: &str) -> Vec<&str> {
    let inline = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'))
        .map(|(target, _)| target);
    let definition = line
        .trim_start()
        .strip_prefix('[')
        .filter(|rest| !rest.starts_with('^'))
        .and_then(|rest| rest.split_once("]:"))
        .map(|(_, target)| target);
    inline.chain(definition).filter_map(bare).collect()
}

/// The target without its title and angle brackets.
fn bare(target: &str) -> Option<&str> {
    let target = target.split_whitespace().next()?;
    let inside = target.strip_prefix('<').and_then(|it| it.strip_suffix('>'));
    Some(inside.unwrap_or(target))
}

fn problem(tree: &Tree, page: &str, target: &str) -> Option<String> {
    if has_scheme(target) {
        let on_machine = target.starts_with("file:");
        return on_machine.then(|| format!("{target} is a path of one machine: link relatively"));
    }
    if target.starts_with('/') {
        return Some(format!(
            "{target} is absolute: link relatively to this page"
        ));
    }
    let file = target.split(['#', '?']).next().unwrap_or_default();
    if file.is_empty() {
        return None;
    }
    match resolve(page, file) {
        None => Some(format!(
            "{target} leads out of the repository: link to its address, or remove it"
        )),
        Some(path) if tree.has(&path) => None,
        Some(path) => Some(format!(
            "there is no {path} in the repository: correct the link or add the file"
        )),
    }
}

fn has_scheme(target: &str) -> bool {
    target.contains("://") || target.starts_with("mailto:")
}

/// The path from the root, or nothing when it would leave it.
fn resolve(page: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::lead_somewhere;
    use crate::tidy::tree::Tree;

    fn count(page: &str) -> usize {
        let tree = Tree::of(&[
            ("spec/README.md", page),
            ("LICENSE", ""),
            ("spec/journal.qnt", ""),
        ]);
        lead_somewhere(&tree).len()
    }

    #[test]
    fn links_to_files_folders_headings_and_addresses_are_clean() {
        let page = "[a](../LICENSE) [`b`](journal.qnt#top) [c](<journal.qnt> \"title\") [d](../spec/)\n\
                    [e](#top) [f](https://example.org/x) [g](mailto:a@example.org)\n\n[h]: journal.qnt\n[^1]: note";
        assert_eq!(count(page), 0);
    }

    #[test]
    fn a_link_to_a_missing_file_is_found() {
        assert_eq!(count("See [x](LICENSE) and ![y](y.png).\n\n[z]: z.md"), 3);
    }

    #[test]
    fn a_link_to_a_machine_is_found() {
        assert_eq!(count("[x](/etc/hosts) [y](file:///etc/hosts)"), 2);
    }

    #[test]
    fn a_link_out_of_the_repository_is_found() {
        assert_eq!(count("[x](../../other/README.md)"), 1);
    }

    #[test]
    fn a_link_shown_as_code_is_not_followed() {
        assert_eq!(count("`[x](missing.md)`\n```\n[y](missing.md)\n```\n"), 0);
    }
}
