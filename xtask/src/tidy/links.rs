//! A9: a relative link of a Markdown page leads to a file of the repository, and its anchor to a
//! heading of that page.

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
                } else if !has_heading(repository, path, target) {
                    let advice = format!("{target} names no heading of the page: correct the link");
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
    target_path(page, target).is_some_and(|path| repository.contains(&path))
}

/// The path in the repository of the file that `target` leads to from `page`; `None` if it leads
/// out of the repository.
fn target_path(page: &str, target: &str) -> Option<String> {
    let file = target.split(['#', '?']).next().unwrap_or_default();
    if file.is_empty() {
        return Some(page.to_owned());
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    (!file.starts_with('/')).then(|| parts.join("/"))
}

/// Whether the anchor of a link to a Markdown page of the repository is a heading of that page.
fn has_heading(repository: &Repository, page: &str, target: &str) -> bool {
    let Some((_, anchor)) = target.split_once('#') else {
        return true;
    };
    let Some(path) = target_path(page, target).filter(|path| path.ends_with(".md")) else {
        return true;
    };
    let pages = repository.texts(".md");
    let mut with_path = pages.filter(|(other, _)| *other == path);
    let has_anchor = |text: &str| heading_anchors(text).iter().any(|found| found == anchor);
    target.contains("://") || with_path.any(|(_, text)| has_anchor(text))
}

/// The anchors of a page's headings, as GitHub derives them: lower case, `-` for a space, without
/// punctuation, and numbered if a heading occurs again.
fn heading_anchors(text: &str) -> Vec<String> {
    let (mut anchors, mut headings) = (Vec::new(), Vec::new());
    let mut is_fenced = false;
    for line in text.lines() {
        is_fenced ^= line.trim_start().starts_with("```");
        let title = line.trim_start_matches('#');
        if is_fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let lowered = title.trim().to_lowercase();
        let heading: String = lowered.chars().filter(kept).collect();
        let heading = heading.replace(' ', "-");
        anchors.push(match headings.iter().filter(|it| **it == heading).count() {
            0 => heading.clone(),
            earlier => format!("{heading}-{earlier}"),
        });
        headings.push(heading);
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::links_resolve;
    use crate::tidy::repository::Repository;

    fn count(page: &str) -> usize {
        let files = [
            ("spec/README.md", page),
            ("LICENSE", ""),
            (
                "docs/cli.md",
                "# `bench`, a *test*\n```\n# comment\n```\n## Run\n## Run\n",
            ),
            ("spec/journal.qnt", ""),
        ];
        links_resolve(&Repository::from_texts(&files)).len()
    }

    #[test]
    fn links_to_files_folders_headings_and_addresses_resolve() {
        let page = "# Top\n[a](../LICENSE) [`b`](journal.qnt#top) [d](../spec/) [e](#top)\n\
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
    fn a_link_to_a_missing_heading_is_found() {
        let present = "[a](../docs/cli.md#bench-a-test) [b](../docs/cli.md#run) \
                       [c](../docs/cli.md#run-1)";
        assert_eq!(count(present), 0);
        let missing = "[a](../docs/cli.md#comment) [b](../docs/cli.md#run-2) [c](#top)";
        assert_eq!(count(missing), 3);
    }

    #[test]
    fn a_link_shown_as_code_is_not_followed() {
        assert_eq!(count("`[x](missing.md)`\n```\n[y](missing.md)\n```\n"), 0);
    }
}
