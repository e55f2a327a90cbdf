//! A1: dependencies between our crates point downwards only. The table below is the whole drawing.

use crate::tidy::manifest::{Dependency, Manifest, Purpose};
use crate::tidy::tree::{Finding, Tree};

struct Layer {
    folder: &'static str,
    package: &'static str,
    uses: Uses,
}

/// Which of our crates a crate may use in what it ships; tests may use any.
enum Uses {
    Only(&'static [&'static str]),
    Any,
}

const JOURNAL: &str = "onward-journal";
const RUNS: &str = "onward-runs";
const DISPATCH: &str = "onward-campaign-core";
const CAMPAIGN: &str = "onward-campaign-file";
const DISPATCHER: &str = "onward-campaign-dispatch";
const OUTLETS: &str = "onward-outlets";
const PROVIDERS: &str = "onward-campaign-delivery";
const TEMPLATES: &str = "onward-templates";
const STORE: &str = "onward-store";
const EXECUTION: &str = "onward-execution";
const WASM: &str = "onward-wasm";
const ENGINE: &str = "onward-engine";
const API: &str = "onward-api";

/// What the library for other people's processes puts together.
const LIBRARY: &[&str] = &[
    ENGINE,
    WASM,
    EXECUTION,
    STORE,
    "onward-store-sqlite",
    "onward-store-postgres",
    JOURNAL,
    RUNS,
    DISPATCH,
];

const fn layer(folder: &'static str, package: &'static str, uses: Uses) -> Layer {
    Layer {
        folder,
        package,
        uses,
    }
}

/// From the bottom up.
const LAYERS: &[Layer] = &[
    layer("crates/journal", JOURNAL, Uses::Only(&[])),
    layer("crates/execution", EXECUTION, Uses::Only(&[JOURNAL])),
    layer("crates/runs", RUNS, Uses::Only(&[JOURNAL])),
    layer("crates/campaign-core", DISPATCH, Uses::Only(&[JOURNAL])),
    layer("crates/templates", TEMPLATES, Uses::Only(&[])),
    layer("crates/api", API, Uses::Only(&[JOURNAL])),
    layer("crates/worker", "onward-worker", Uses::Only(&[API])),
    layer(
        "crates/store",
        STORE,
        Uses::Only(&[JOURNAL, RUNS, DISPATCH]),
    ),
    layer(
        "crates/store-sqlite",
        "onward-store-sqlite",
        Uses::Only(&[STORE, JOURNAL, RUNS, DISPATCH]),
    ),
    layer(
        "crates/store-postgres",
        "onward-store-postgres",
        Uses::Only(&[STORE, JOURNAL, RUNS, DISPATCH]),
    ),
    layer(
        "crates/campaign-dispatch",
        DISPATCHER,
        Uses::Only(&[STORE, JOURNAL, DISPATCH]),
    ),
    layer(
        "crates/campaign-file",
        CAMPAIGN,
        Uses::Only(&[TEMPLATES, DISPATCHER, DISPATCH, JOURNAL]),
    ),
    layer(
        "crates/campaign-delivery",
        PROVIDERS,
        Uses::Only(&[TEMPLATES, DISPATCHER, DISPATCH, JOURNAL]),
    ),
    layer(
        "crates/outlets",
        OUTLETS,
        Uses::Only(&[CAMPAIGN, PROVIDERS, DISPATCHER, STORE, JOURNAL]),
    ),
    layer("crates/wasm", WASM, Uses::Only(&[JOURNAL, EXECUTION])),
    layer(
        "crates/engine",
        ENGINE,
        Uses::Only(&[API, JOURNAL, EXECUTION, RUNS, DISPATCH, STORE]),
    ),
    layer(
        "crates/server",
        "onward-server",
        Uses::Only(&[
            ENGINE, API, STORE, JOURNAL, RUNS, DISPATCH, DISPATCHER, CAMPAIGN, OUTLETS,
        ]),
    ),
    layer(
        "crates/sim",
        "onward-sim",
        Uses::Only(&[
            ENGINE, EXECUTION, STORE, JOURNAL, RUNS, DISPATCH, DISPATCHER,
        ]),
    ),
    layer(
        "crates/testing",
        "onward-testing",
        Uses::Only(&[JOURNAL, RUNS]),
    ),
    layer("crates/embed", "onward-embed", Uses::Only(LIBRARY)),
    layer("crates/cli", "onward", Uses::Any),
    layer("sdk/rust/macros", "onward-sdk-macros", Uses::Only(&[])),
    layer("sdk/rust", "onward-sdk", Uses::Only(&["onward-sdk-macros"])),
    layer(
        "examples/workflows/orders",
        "orders",
        Uses::Only(&["onward-sdk"]),
    ),
    layer(
        "examples/workflows/remote",
        "remote",
        Uses::Only(&["onward-sdk"]),
    ),
    layer(
        "examples/workflows/journals",
        "journals",
        Uses::Only(&["onward-sdk"]),
    ),
    layer(
        "examples/workflows/bench",
        "bench",
        Uses::Only(&["onward-sdk"]),
    ),
    layer("benches", "onward-benches", Uses::Any),
    layer("fuzz", "onward-fuzz", Uses::Any),
    layer("xtask", "xtask", Uses::Only(&[])),
];

pub(crate) fn dependencies_point_downwards(tree: &Tree) -> Vec<Finding> {
    tree.manifests().iter().flat_map(check_manifest).collect()
}

fn check_manifest(manifest: &Manifest) -> Vec<Finding> {
    let Some(package) = manifest.package.as_deref() else {
        return Vec::new();
    };
    let Some(layer) = LAYERS
        .iter()
        .find(|layer| layer.package == package && layer.folder == manifest.folder)
    else {
        let what = format!(
            "package {package} in {} has no row in the table of layers: add it to xtask/src/tidy/layers.rs \
             and to ARCHITECTURE.md, or put it where its row says",
            manifest.folder
        );
        return vec![Finding::new(&manifest.path, 1, what)];
    };
    let upward = |dependency: &&Dependency| {
        dependency.purpose == Purpose::Product
            && is_ours(&dependency.package)
            && !layer.uses.allows(&dependency.package)
    };
    manifest
        .dependencies
        .iter()
        .filter(upward)
        .map(|dependency| {
            let what = format!(
                "{package} may not depend on {}: move what it needs to a crate below both, or pass it in",
                dependency.package
            );
            Finding::new(&manifest.path, dependency.line, what)
        })
        .collect()
}

impl Uses {
    fn allows(&self, package: &str) -> bool {
        match self {
            Self::Only(allowed) => allowed.contains(&package),
            Self::Any => true,
        }
    }
}

pub(crate) fn is_ours(package: &str) -> bool {
    package.starts_with("onward-") || LAYERS.iter().any(|layer| layer.package == package)
}

#[cfg(test)]
mod tests {
    use super::dependencies_point_downwards;
    use crate::tidy::tree::{Finding, Tree};

    fn check(folder: &str, package: &str, rest: &str) -> Vec<Finding> {
        let path = format!("{folder}/Cargo.toml");
        let text = format!("[package]\nname = \"{package}\"\n{rest}");
        dependencies_point_downwards(&Tree::of(&[(&path, &text)]))
    }

    #[test]
    fn a_store_may_use_the_journal() {
        let rest = "[dependencies]\nonward-journal.workspace = true\nserde = \"1\"\n";
        assert!(check("crates/store", "onward-store", rest).is_empty());
    }

    #[test]
    fn the_journal_may_not_use_the_store() {
        let rest = "[dependencies]\nonward-store.workspace = true\n";
        let findings = check("crates/journal", "onward-journal", rest);
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 4);
    }

    #[test]
    fn a_renamed_dependency_is_still_an_edge() {
        let rest = "[dependencies]\nbelow = { package = \"onward-cli\", path = \"../cli\" }\n";
        assert_eq!(check("crates/journal", "onward-journal", rest).len(), 1);
    }

    #[test]
    fn tests_may_use_any_crate() {
        let rest = "[dev-dependencies]\nonward-sim.workspace = true\n";
        assert!(check("crates/engine", "onward-engine", rest).is_empty());
    }

    #[test]
    fn the_command_line_may_use_everything() {
        let rest = "[dependencies]\nonward-server.workspace = true\n";
        assert!(check("crates/cli", "onward", rest).is_empty());
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(check("crates/extra", "onward-extra", "").len(), 1);
    }

    #[test]
    fn a_crate_in_the_wrong_folder_is_found() {
        assert_eq!(check("crates/log", "onward-journal", "").len(), 1);
    }

    #[test]
    fn a_manifest_of_a_workspace_alone_is_no_crate() {
        let tree = Tree::of(&[("Cargo.toml", "[workspace]\nmembers = []\n")]);
        assert!(dependencies_point_downwards(&tree).is_empty());
    }
}
