//! What the rules look at: the files that are, or are about to be, in the repository, read and outlined once.
//!
//! A tree can be made from pairs of path and text, so a rule is tested without a disk.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::run::Run;
use crate::tidy::manifest::{Manifest, Renames};
use crate::tidy::outline::{Kind, Outline, Place};

/// A place that breaks a rule, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) path: String,
    pub(crate) line: usize,
    pub(crate) what: String,
}

impl Finding {
    pub(crate) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            what: what.into(),
        }
    }

    pub(crate) fn line_for(&self, rule: &str) -> String {
        format!("{}:{}: {rule}: {}", self.path, self.line, self.what)
    }
}

/// A tracked file; `text` is absent when it is not UTF-8, `outline` when it is not Rust.
pub(crate) struct File {
    pub(crate) path: String,
    pub(crate) text: Option<String>,
    pub(crate) outline: Option<Outline>,
}

pub(crate) struct Tree {
    files: Vec<File>,
    manifests: Vec<Manifest>,
    unreadable: Vec<Finding>,
}

impl Tree {
    /// Reads the files that git tracks or would track, as they are on disk now.
    pub(crate) fn read(run: &Run) -> Result<Self> {
        let mut files = Vec::new();
        for path in tracked(run)? {
            let full = run.root.join(&path);
            // A file deleted but not yet committed is still listed, and a link may lead to a folder.
            if full.is_file() {
                let bytes = fs::read(&full).with_context(|| format!("cannot read {path}"))?;
                files.push((path, String::from_utf8(bytes).ok()));
            }
        }
        Ok(Self::new(files))
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), Some((*text).to_owned()));
        Self::new(files.iter().map(owned).collect())
    }

    fn new(files: Vec<(String, Option<String>)>) -> Self {
        let mut tree = Self {
            files: Vec::new(),
            manifests: Vec::new(),
            unreadable: Vec::new(),
        };
        for (path, text) in files {
            let outline = tree.outline(&path, text.as_deref());
            tree.files.push(File {
                path,
                text,
                outline,
            });
        }
        tree.read_manifests();
        tree
    }

    fn outline(&mut self, path: &str, text: Option<&str>) -> Option<Outline> {
        let text = text.filter(|_| path.ends_with(".rs"))?;
        Outline::parse(text)
            .map_err(|error| {
                self.unreadable
                    .push(Finding::new(path, error.line, error.what))
            })
            .ok()
    }

    fn read_manifests(&mut self) {
        let renames = self
            .text("Cargo.toml")
            .map(Renames::of_workspace)
            .unwrap_or_default();
        let is_manifest =
            |file: &&File| file.path == "Cargo.toml" || file.path.ends_with("/Cargo.toml");
        for file in self.files.iter().filter(is_manifest) {
            let text = file.text.as_deref().unwrap_or_default();
            match Manifest::parse(&file.path, text, &renames) {
                Ok(manifest) => self.manifests.push(manifest),
                Err(finding) => self.unreadable.push(finding),
            }
        }
    }

    pub(crate) fn files(&self) -> &[File] {
        &self.files
    }

    /// The Rust files, with what is written in them.
    pub(crate) fn rust(&self) -> impl Iterator<Item = (&File, &str, &Outline)> {
        self.files
            .iter()
            .filter_map(|file| Some((file, file.text.as_deref()?, file.outline.as_ref()?)))
    }

    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files
            .iter()
            .filter_map(|file| Some((file.path.as_str(), file.text.as_deref()?)))
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        let mut texts = self.texts();
        texts.find(|(name, _)| *name == path).map(|(_, text)| text)
    }

    pub(crate) fn manifests(&self) -> &[Manifest] {
        &self.manifests
    }

    pub(crate) fn unreadable(&self) -> &[Finding] {
        &self.unreadable
    }

    /// Whether there is a file, or a folder with files, at `path`; the root is the empty path.
    pub(crate) fn has(&self, path: &str) -> bool {
        let inside = |file: &File| {
            file.path
                .strip_prefix(path)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        path.is_empty() || self.files.iter().any(inside)
    }

    /// Whether the file belongs to a module that another file declares under `#[cfg(test)]`.
    pub(crate) fn is_test_module(&self, path: &str) -> bool {
        self.rust().any(|(file, _, outline)| {
            outline
                .declarations
                .iter()
                .filter(|it| it.kind == Kind::Module && it.place == Place::Test)
                .any(|module| {
                    let stem = format!("{}{}", module_folder(&file.path), module.name);
                    path.strip_prefix(&stem)
                        .is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
                })
        })
    }
}

/// The folder, with its slash, where the modules that a file declares live.
fn module_folder(path: &str) -> String {
    let (folder, name) = match path.rsplit_once('/') {
        Some((folder, name)) => (format!("{folder}/"), name),
        None => (String::new(), path),
    };
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder,
        _ => format!("{folder}{}/", name.trim_end_matches(".rs")),
    }
}

fn tracked(run: &Run) -> Result<Vec<String>> {
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
        "`git {}` failed, so it is unknown which files to check: {}",
        ARGS.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let mut paths: Vec<String> = String::from_utf8_lossy(&output.stdout)
        .split_terminator('\0')
        .map(str::to_owned)
        .collect();
    paths.sort();
    paths.dedup();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::Tree;

    #[test]
    fn a_folder_with_files_exists_and_its_prefix_does_not() {
        let tree = Tree::of(&[("spec/journal.qnt", "")]);
        assert!(tree.has("spec"));
        assert!(tree.has("spec/journal.qnt"));
        assert!(tree.has(""));
        assert!(!tree.has("spe"));
    }

    #[test]
    fn a_module_declared_for_tests_in_another_file_is_test_code() {
        let tree = Tree::of(&[
            (
                "crates/journal/src/lib.rs",
                "mod codec;\n#[cfg(test)]\nmod tests;",
            ),
            ("crates/journal/src/codec.rs", "#[cfg(test)] mod vectors;"),
        ]);
        assert!(tree.is_test_module("crates/journal/src/tests.rs"));
        assert!(tree.is_test_module("crates/journal/src/tests/deep.rs"));
        assert!(tree.is_test_module("crates/journal/src/codec/vectors.rs"));
        assert!(!tree.is_test_module("crates/journal/src/codec.rs"));
        assert!(!tree.is_test_module("crates/journal/src/tests_too.rs"));
    }
}
