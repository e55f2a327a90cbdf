//! A8: each engine we build on stays behind one door. SQL is written only in the storage adapters, and only the wasm
//! crate knows wasmtime, so that either can be replaced without reading the rest.

use crate::tidy::tree::{Finding, Tree};

const WASM_FOLDER: &str = "crates/wasm";
const WASM_ENGINE: &str = "wasmtime";
const SQL_FOLDERS: &str = "crates/store-";

pub(crate) fn each_engine_in_its_crate(tree: &Tree) -> Vec<Finding> {
    let mut findings = engine_dependencies(tree);
    findings.extend(sql_files(tree));
    findings.extend(sql_strings(tree));
    findings
}

fn engine_dependencies(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in tree
        .manifests()
        .iter()
        .filter(|it| it.folder != WASM_FOLDER)
    {
        for dependency in &manifest.dependencies {
            let rest = dependency.package.strip_prefix(WASM_ENGINE);
            if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-')) {
                let what = format!(
                    "only {WASM_FOLDER} may depend on {}: use what onward-wasm offers",
                    dependency.package
                );
                findings.push(Finding::new(&manifest.path, dependency.line, what));
            }
        }
    }
    findings
}

fn sql_files(tree: &Tree) -> impl Iterator<Item = Finding> {
    tree.files()
        .iter()
        .filter(|file| file.path.ends_with(".sql") && !file.path.starts_with(SQL_FOLDERS))
        .map(|file| {
            Finding::new(
                &file.path,
                1,
                "move this SQL to the store-* crate that runs it",
            )
        })
}

fn sql_strings(tree: &Tree) -> impl Iterator<Item = Finding> {
    tree.rust()
        .filter(|(file, ..)| !file.path.starts_with(SQL_FOLDERS))
        .flat_map(|(file, _, outline)| {
            let sql = outline.strings.iter().filter(|it| is_sql(&it.content));
            sql.map(|it| {
                let what =
                    "this string reads as SQL: move it to a store-* crate, or word it otherwise";
                Finding::new(&file.path, it.line, what)
            })
        })
}

fn is_sql(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    match words[..] {
        ["select", _, ..] | ["insert", "into", ..] | ["delete", "from", ..] => true,
        ["create", "table", ..] => true,
        ["update", ref rest @ ..] => rest
            .iter()
            .position(|word| *word == "set")
            .is_some_and(|set| rest[set..].iter().any(|word| word.contains('='))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::each_engine_in_its_crate;
    use crate::tidy::tree::Tree;

    fn count(path: &str, text: &str) -> usize {
        each_engine_in_its_crate(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn sql_outside_a_storage_adapter_is_found() {
        for source in [
            r#"fn f() { run("SELECT 1"); }"#,
            r#"fn f() { run("  insert into runs values (1)"); }"#,
            r##"fn f() { run(r#"UPDATE runs SET state = 1"#); }"##,
            r#"fn f() { run("delete from runs"); }"#,
            r#"fn f() { run("Create Table runs (id)"); }"#,
        ] {
            assert_eq!(count("crates/engine/src/x.rs", source), 1, "{source}");
            assert_eq!(count("crates/store-sqlite/src/x.rs", source), 0, "{source}");
        }
    }

    #[test]
    fn words_that_only_look_like_sql_are_clean() {
        let source = r#"
            /// select x from y
            fn f() { say("selected runs", "update the set", "update a=b", "select"); }
        "#;
        assert_eq!(count("crates/engine/src/x.rs", source), 0);
    }

    #[test]
    fn a_migration_belongs_to_its_adapter() {
        assert_eq!(count("crates/engine/0001_initial.sql", ""), 1);
        assert_eq!(
            count("crates/store-sqlite/migrations/0001_initial.sql", ""),
            0
        );
    }

    #[test]
    fn the_wasm_engine_is_known_to_one_crate() {
        let text = "[package]\nname = \"x\"\n[dev-dependencies]\nwasmtime = \"48\"\nwasmtime-wasi = \"48\"\n";
        assert_eq!(count("crates/engine/Cargo.toml", text), 2);
        assert_eq!(count("crates/wasm/Cargo.toml", text), 0);
    }
}
