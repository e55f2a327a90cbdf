//! What a Cargo.toml says about dependencies: read from the text, so a rule needs no network and no working build.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use crate::tidy::tree::Finding;

pub(crate) struct Manifest {
    pub(crate) path: String,
    /// Where the manifest is, relative to the root; empty for the root itself.
    pub(crate) folder: String,
    /// Absent in a manifest that only describes a workspace.
    pub(crate) package: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

pub(crate) struct Dependency {
    /// The package's own name, whatever it is called here.
    pub(crate) package: String,
    pub(crate) purpose: Purpose,
    pub(crate) line: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Product,
    Tests,
}

/// Build scripts shape the product as much as its libraries do.
const SECTIONS: [(&str, Purpose); 3] = [
    ("dependencies", Purpose::Product),
    ("build-dependencies", Purpose::Product),
    ("dev-dependencies", Purpose::Tests),
];

/// The names under which the workspace knows a package, where they differ from the package's own.
#[derive(Default)]
pub(crate) struct Renames(BTreeMap<String, String>);

impl Renames {
    pub(crate) fn of_workspace(text: &str) -> Self {
        let mut names = BTreeMap::new();
        if let Ok(document) = DeTable::parse(text)
            && let Some(workspace) = table(document.get_ref(), "workspace")
            && let Some(dependencies) = table(workspace, "dependencies")
        {
            for (name, value) in dependencies {
                if let Some(package) = renamed_package(value.get_ref()) {
                    names.insert(name.get_ref().to_string(), package);
                }
            }
        }
        Self(names)
    }

    fn package_of(&self, name: &str) -> String {
        self.0.get(name).map_or(name, String::as_str).to_owned()
    }
}

impl Manifest {
    pub(crate) fn parse(path: &str, text: &str, renames: &Renames) -> Result<Self, Finding> {
        let document = DeTable::parse(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            Finding::new(path, line_at(text, offset), error.message())
        })?;
        let document = document.get_ref();
        let package = table(document, "package")
            .and_then(|package| package.get("name"))
            .and_then(|name| name.get_ref().as_str());
        Ok(Self {
            path: path.to_owned(),
            folder: path
                .trim_end_matches("Cargo.toml")
                .trim_end_matches('/')
                .to_owned(),
            package: package.map(str::to_owned),
            dependencies: all_dependencies(document, text, renames),
        })
    }
}

fn all_dependencies(document: &DeTable<'_>, text: &str, renames: &Renames) -> Vec<Dependency> {
    let mut holders = vec![document];
    if let Some(targets) = table(document, "target") {
        holders.extend(targets.values().filter_map(|it| it.get_ref().as_table()));
    }
    let mut found = Vec::new();
    for holder in holders {
        for (section, purpose) in SECTIONS {
            for (name, value) in table(holder, section).into_iter().flatten() {
                found.push(Dependency {
                    package: renamed_package(value.get_ref())
                        .unwrap_or_else(|| renames.package_of(name.get_ref())),
                    purpose,
                    line: line_at(text, name.span().start),
                });
            }
        }
    }
    found
}

fn table<'t, 'i>(holder: &'t DeTable<'i>, name: &str) -> Option<&'t DeTable<'i>> {
    holder.get(name)?.get_ref().as_table()
}

fn renamed_package(dependency: &DeValue<'_>) -> Option<String> {
    let package = dependency.as_table()?.get("package")?;
    package.get_ref().as_str().map(str::to_owned)
}

fn line_at(text: &str, offset: usize) -> usize {
    1 + text
        .bytes()
        .take(offset)
        .filter(|byte| *byte == b'\n')
        .count()
}

#[cfg(test)]
mod tests {
    use super::{Manifest, Purpose, Renames};

    #[test]
    fn every_kind_of_dependency_is_found_under_its_own_name() {
        let renames = Renames::of_workspace(
            "[workspace.dependencies]\njournal = { package = \"onward-journal\" }\n",
        );
        let text = "[package]\nname = \"onward-store\"\n[dependencies]\njournal.workspace = true\n\
                    [dev-dependencies]\nquick = { package = \"proptest\", version = \"1\" }\n\
                    [target.'cfg(unix)'.build-dependencies.cc]\nversion = \"1\"\n";
        let manifest = Manifest::parse("crates/store/Cargo.toml", text, &renames)
            .ok()
            .unwrap();
        assert_eq!(manifest.folder, "crates/store");
        assert_eq!(manifest.package.as_deref(), Some("onward-store"));
        let found: Vec<(&str, Purpose, usize)> = manifest
            .dependencies
            .iter()
            .map(|it| (it.package.as_str(), it.purpose, it.line))
            .collect();
        let expected = [
            ("onward-journal", Purpose::Product, 4),
            ("proptest", Purpose::Tests, 6),
            ("cc", Purpose::Product, 7),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_manifest_that_is_not_toml_is_a_finding() {
        let finding = Manifest::parse("Cargo.toml", "[package]\nname =\n", &Renames::default());
        assert_eq!(finding.err().unwrap().line, 2);
    }
}
