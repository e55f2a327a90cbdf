//! The files that the rules check: what git tracks or would track, read once.
//!
//! A repository can be made from pairs of path and text, so that a rule is tested without a disk.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::XtaskRun;

/// A place that breaks a rule, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RuleFinding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) advice: String,
}

impl RuleFinding {
    pub(crate) fn new(path: &str, line: usize, advice: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            advice: advice.into(),
        }
    }

    pub(crate) fn to_line(&self, rule: &str) -> String {
        format!("{}:{}: {rule}: {}", self.path, self.line, self.advice)
    }
}

/// A tracked file; `text` is absent when it is not UTF-8.
pub(crate) struct TrackedFile {
    pub(crate) path: String,
    pub(crate) bytes: usize,
    pub(crate) text: Option<String>,
}

pub(crate) struct Repository {
    files: Vec<TrackedFile>,
}

impl Repository {
    pub(crate) fn read(run: &XtaskRun) -> Result<Self> {
        let mut files = Vec::new();
        for path in tracked_paths(run)? {
            let full = run.root.join(&path);
            // A file that is deleted but not committed is still listed, and a link may lead to a
            // folder.
            if full.is_file() {
                let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
                files.push(TrackedFile {
                    path,
                    bytes: bytes.len(),
                    text: String::from_utf8(bytes).ok(),
                });
            }
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(crate) fn from_texts(files: &[(&str, &str)]) -> Self {
        let tracked = |(path, text): &(&str, &str)| TrackedFile {
            path: (*path).to_owned(),
            bytes: text.len(),
            text: Some((*text).to_owned()),
        };
        Self {
            files: files.iter().map(tracked).collect(),
        }
    }

    pub(crate) fn files(&self) -> &[TrackedFile] {
        &self.files
    }

    /// Path and text of the files whose name ends so.
    pub(crate) fn texts<'a>(&'a self, suffix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.files
            .iter()
            .filter(move |file| file.path.ends_with(suffix))
            .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    /// Whether there is a file, or a folder with files, at `path`; the root is the empty path.
    pub(crate) fn contains(&self, path: &str) -> bool {
        let is_inside = |file: &TrackedFile| {
            let rest = file.path.strip_prefix(path);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.files.iter().any(is_inside)
    }
}

fn tracked_paths(run: &XtaskRun) -> Result<Vec<String>> {
    const ARGS: [&str; 5] = [
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ];
    let output = Command::new("git")
        .args(ARGS)
        .current_dir(&run.root)
        .output()
        .context("cannot run git: install it")?;
    ensure!(
        output.status.success(),
        "`git {}` failed: {}",
        ARGS.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut paths: Vec<String> = printed.split_terminator('\0').map(str::to_owned).collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::Repository;

    #[test]
    fn a_folder_with_files_exists_and_its_prefix_does_not() {
        let repository = Repository::from_texts(&[("spec/journal.qnt", "")]);
        assert!(repository.contains("spec") && repository.contains("spec/journal.qnt"));
        assert!(repository.contains("") && !repository.contains("spe"));
    }
}
