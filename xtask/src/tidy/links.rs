//! A9: a relative link of a Markdown page leads to a file of the repository.

use crate::tidy::repository::{Repository, RuleFinding};

pub(crate) fn links_resolve(repository: &Repository) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    for (path, text) in repository.texts(".md") {
        let mut is_fenced = false;
        for (index, line) in text.lines().enumerate() {
            is_fenced ^= line.trim_start().starts_with("```");
            if is_fenced {
                continue;
            }
            let prose: String = line.split('`').step_by(2).collect();
            for target in link_targets(&prose) {
                if !resolves(repository, path, target) {
                    let advice = format!("{target} is not in the repository: correct the link");
                    findings.push(RuleFinding::new(path, index + 1, advice));
                }
            }
        }
    }
    findings
}

/// The targets of `[text](target)` and `![text](target)`.
fn link_targets(line: &str) -> impl Iterator<Item = &str> {
    let targets = line
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    targets.filter_map(|(target, _)| target.split_whitespace().next())
}

fn resolves(repository: &Repository, page: &str, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return !target.starts_with("file:");
    }
    let file = target.split(['#', '?']).next().unwrap_or_default();
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.pop().is_none() => return false,
            ".." => {}
            name => parts.push(name),
        }
    }
    file.is_empty() || (!file.starts_with('/') && repository.contains(&parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::links_resolve;
    use crate::tidy::repository::Repository;

    fn count(page: &str) -> usize {
        let files = [
            ("spec/README.md", page),
            ("LICENSE", ""),
            ("spec/journal.qnt", ""),
        ];
        links_resolve(&Repository::from_texts(&files)).len()
    }

    #[test]
    fn links_to_files_folders_headings_and_addresses_resolve() {
        let page = "[a](../LICENSE) [`b`](journal.qnt#top) [d](../spec/) [e](#top)\n\
                    [f](https://example.org/x) [g](mailto:a@example.org)";
        assert_eq!(count(page), 0);
    }

    #[test]
    fn a_link_to_a_missing_file_or_out_of_the_repository_is_found() {
        assert_eq!(count("See [x](LICENSE) and ![y](y.png)."), 2);
        assert_eq!(
            count("[x](/etc/hosts) [y](file:///etc/hosts) [z](../../o.md)"),
            3
        );
    }

    #[test]
    fn a_link_shown_as_code_is_not_followed() {
        assert_eq!(count("`[x](missing.md)`\n```\n[y](missing.md)\n```\n"), 0);
    }
}
