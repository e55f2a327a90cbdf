//! A11: nothing in the repository names one machine's folders or the place its packages came from, so that a clone
//! works anywhere, behind any mirror.

use crate::tidy::tree::{Finding, Tree};

/// In pieces, so that this file is not a finding.
const FOLDERS: [&str; 3] = [
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/wo", "rk/"),
];
const HOSTS: [&str; 4] = [
    concat!("deb.deb", "ian.org"),
    concat!("registry.", "npmjs"),
    concat!("index.", "crates"),
    concat!("py", "pi.org"),
];
/// Where npm writes down the address a package came from.
const NPM_ORIGIN: &str = concat!("\"reso", "lved\"");

pub(crate) fn none_written_down(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        let problem = match path.rsplit('/').next() {
            Some("Cargo.lock") => continue,
            Some("package-lock.json") => origin_problem,
            _ => text_problem,
        };
        for (index, line) in text.lines().enumerate() {
            if let Some(what) = problem(line) {
                findings.push(Finding::new(path, index + 1, what));
            }
        }
    }
    findings
}

fn origin_problem(line: &str) -> Option<String> {
    line.contains(NPM_ORIGIN).then(|| {
        "remove the addresses packages came from: set omit-lockfile-registry-resolved=true in .npmrc and lock again"
            .to_owned()
    })
}

fn text_problem(line: &str) -> Option<String> {
    if let Some(folder) = FOLDERS.iter().find(|folder| names_folder(line, folder)) {
        return Some(format!(
            "{folder} is a folder of one machine: use a relative path"
        ));
    }
    let host = HOSTS.iter().find(|host| line.contains(**host))?;
    Some(format!(
        "{host} is where one machine gets its packages: leave it to the machine's settings"
    ))
}

/// Whether the absolute `folder` is in the line, and not as the middle of a longer path.
fn names_folder(line: &str, folder: &str) -> bool {
    line.match_indices(folder).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-.".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::{FOLDERS, HOSTS, NPM_ORIGIN, none_written_down};
    use crate::tidy::tree::Tree;

    fn count(path: &str, text: &str) -> usize {
        none_written_down(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn a_machines_folders_and_hosts_are_found() {
        for pattern in FOLDERS.iter().chain(&HOSTS) {
            assert_eq!(
                count("README.md", &format!("see {pattern}x")),
                1,
                "{pattern}"
            );
        }
    }

    #[test]
    fn a_finding_points_at_its_line() {
        let text = format!("one\ntwo\n{}", HOSTS[0]);
        assert_eq!(none_written_down(&Tree::of(&[("a.md", &text)]))[0].line, 3);
    }

    #[test]
    fn a_relative_folder_of_the_same_name_is_clean() {
        for folder in FOLDERS {
            assert_eq!(
                count("README.md", &format!("see target{folder}x")),
                0,
                "{folder}"
            );
        }
    }

    #[test]
    fn lock_files_may_name_their_registry_but_npm_not_its_addresses() {
        assert_eq!(count("fuzz/Cargo.lock", HOSTS[2]), 0);
        assert_eq!(count("spec/package-lock.json", HOSTS[1]), 0);
        assert_eq!(
            count("spec/package-lock.json", &format!("{NPM_ORIGIN}: 1")),
            1
        );
    }
}
