//! A1 and A3: the dependencies between our crates are exactly those drawn here, and pure crates use
//! few external ones.

use toml::Table;

use crate::tidy::repository::{Repository, RuleFinding};

/// The drawing, from the bottom up: a library and the libraries it uses. Tests may use any.
///
/// Programs (`onward`, bench targets, fuzz targets, examples, xtask) stand on top and are not
/// listed.
const LAYERS: &[(&str, &[&str])] = &[
    ("base", &[]),
    ("journal", &["base"]),
    ("execution", &["base", "journal"]),
    ("runs", &["base"]),
    ("campaign-core", &["base"]),
    ("campaign-file", &["base", "campaign-core"]),
    ("api", &["base", "journal"]),
    ("worker", &["api", "base"]),
    ("store", &["base", "campaign-core", "journal", "runs"]),
    ("store-sqlite", &["base", "journal", "runs", "store"]),
    ("store-postgres", &["base", "journal", "runs", "store"]),
    ("wasm", &["base", "execution", "journal"]),
    ("engine", &["base", "execution", "journal", "runs", "store"]),
    (
        "diagnostics",
        &[
            "api",
            "base",
            "engine",
            "execution",
            "journal",
            "runs",
            "store",
        ],
    ),
    ("campaign-dispatch", &["base", "campaign-core", "store"]),
    (
        "campaign-delivery",
        &[
            "base",
            "campaign-core",
            "campaign-dispatch",
            "campaign-file",
            "store",
        ],
    ),
    (
        "service",
        &[
            "api",
            "base",
            "campaign-core",
            "campaign-delivery",
            "campaign-dispatch",
            "campaign-file",
            "diagnostics",
            "engine",
            "execution",
            "journal",
            "runs",
            "store",
        ],
    ),
    (
        "server",
        &["api", "base", "campaign-file", "service", "store"],
    ),
    (
        "embed",
        &[
            "base",
            "engine",
            "execution",
            "journal",
            "store",
            "store-postgres",
            "store-sqlite",
            "wasm",
        ],
    ),
    (
        "sim",
        &[
            "base",
            "campaign-core",
            "campaign-dispatch",
            "engine",
            "execution",
            "journal",
            "runs",
            "store",
        ],
    ),
    ("testing", &["base", "runs"]),
    (
        "benchmarks",
        &[
            "api",
            "base",
            "campaign-core",
            "campaign-dispatch",
            "embed",
            "journal",
            "service",
            "store",
            "store-postgres",
            "store-sqlite",
            "worker",
        ],
    ),
];

/// The only library outside of `crates/`: the CLI calls it for `onward bench`.
const BENCHMARKS: &str = "benchmarks/Cargo.toml";

/// Crates that decide and perform nothing. `clippy-pure.toml` keeps I/O, clocks and hash maps out.
pub(super) const PURE: [&str; 5] = ["base", "journal", "execution", "runs", "campaign-core"];

/// External crates that a pure crate may use: none performs I/O or reads a clock.
const PURE_EXTERNAL: [&str; 8] = [
    "crc32fast",
    "minicbor",
    "serde",
    "serde_json",
    "sha2",
    "smallvec",
    "thiserror",
    "time",
];

/// A library: its folder name, and its dependencies by package name.
struct Library<'a> {
    path: &'a str,
    name: &'a str,
    dependencies: Vec<String>,
}

impl Library<'_> {
    fn internal(&self) -> Vec<&str> {
        let names = self.dependencies.iter().map(String::as_str);
        let mut names: Vec<&str> = names.filter_map(|it| it.strip_prefix("onward-")).collect();
        names.sort_unstable();
        names
    }
}

fn libraries(repository: &Repository) -> impl Iterator<Item = Library<'_>> {
    repository.texts("/Cargo.toml").filter_map(|(path, text)| {
        let crate_path = path.strip_prefix("crates/");
        let path_of_library = crate_path.or((path == BENCHMARKS).then_some(path))?;
        let name = path_of_library.strip_suffix("/Cargo.toml")?;
        let manifest: Table = text.parse().ok()?;
        let sections = ["dependencies", "build-dependencies"];
        let tables = sections
            .iter()
            .filter_map(|section| manifest.get(*section)?.as_table());
        let dependencies = tables.flat_map(|table| table.keys().cloned()).collect();
        (name != "cli").then_some(Library {
            path,
            name,
            dependencies,
        })
    })
}

pub(crate) fn dependencies_are_as_drawn(repository: &Repository) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    for library in libraries(repository) {
        let found = library.internal();
        let advice = match LAYERS.iter().find(|(name, _)| *name == library.name) {
            Some((_, drawn)) if *drawn == found => continue,
            Some((_, drawn)) => format!(
                "uses {found:?}, and the drawing in xtask/src/tidy/layers.rs says {drawn:?}: move what \
                 it needs to a crate below, or change the drawing and ARCHITECTURE.md"
            ),
            None => "is not in the drawing: add it to xtask/src/tidy/layers.rs and ARCHITECTURE.md"
                .to_owned(),
        };
        findings.push(RuleFinding::new(library.path, 1, advice));
    }
    findings
}

pub(crate) fn pure_crates_use_few_others(repository: &Repository) -> Vec<RuleFinding> {
    let mut findings = Vec::new();
    for library in libraries(repository).filter(|library| PURE.contains(&library.name)) {
        let is_refused =
            |it: &&String| !it.starts_with("onward-") && !PURE_EXTERNAL.contains(&it.as_str());
        for package in library.dependencies.iter().filter(is_refused) {
            let advice = format!("a pure crate may not depend on {package}: see PURE_EXTERNAL");
            findings.push(RuleFinding::new(library.path, 1, advice));
        }
        let config = format!("crates/{}/clippy.toml", library.name);
        if !repository.contains(&config) {
            let advice = "link clippy.toml to ../../clippy-pure.toml: the crate is pure";
            findings.push(RuleFinding::new(library.path, 1, advice));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(dependencies: &str) -> String {
        format!(
            "[package]\nname = \"x\"\n[dependencies]\n{dependencies}[dev-dependencies]\nonward-sim.workspace = true\n"
        )
    }

    fn findings(path: &str, dependencies: &str) -> usize {
        let text = manifest(dependencies);
        dependencies_are_as_drawn(&Repository::from_texts(&[(path, &text)])).len()
    }

    #[test]
    fn only_the_edges_of_the_drawing_are_allowed_and_all_of_them_exist() {
        let drawn = "onward-base.workspace = true\nserde = \"1\"\n";
        assert_eq!(findings("crates/journal/Cargo.toml", drawn), 0);
        assert_eq!(findings("crates/journal/Cargo.toml", "serde = \"1\"\n"), 1);
        let upward = "onward-base.workspace = true\nonward-store.workspace = true\n";
        assert_eq!(findings("crates/journal/Cargo.toml", upward), 1);
        assert_eq!(findings("crates/extra/Cargo.toml", ""), 1);
        assert_eq!(findings("crates/cli/Cargo.toml", upward), 0);
        assert_eq!(findings("benchmarks/Cargo.toml", upward), 1);
        assert_eq!(findings("xtask/Cargo.toml", upward), 0);
    }

    #[test]
    fn the_drawing_points_downwards() {
        for (index, (name, uses)) in LAYERS.iter().enumerate() {
            let is_below = |used: &str| LAYERS[..index].iter().any(|(below, _)| *below == used);
            assert!(uses.iter().all(|used| is_below(used)), "{name}");
            assert!(uses.is_sorted(), "{name}");
        }
    }

    #[test]
    fn a_pure_crate_depends_on_listed_crates_and_has_the_strict_lints() {
        let text = manifest("serde = \"1\"\nregex = \"1\"\n");
        let config = ("crates/runs/clippy.toml", "");
        let check = |files: &[(&str, &str)]| {
            pure_crates_use_few_others(&Repository::from_texts(files)).len()
        };
        assert_eq!(check(&[("crates/runs/Cargo.toml", &text), config]), 1);
        assert_eq!(check(&[("crates/runs/Cargo.toml", &text)]), 2);
        assert_eq!(check(&[("crates/cli/Cargo.toml", &text)]), 0);
    }
}
