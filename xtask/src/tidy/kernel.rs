//! A12: what becomes of campaigns, jobs and items is decided by tables of transitions, and written where those are asked. A
//! crate that names their rows and commits could write any status.

use crate::tidy::tree::{Finding, Tree};

/// Those that keep rows, and the one that writes these.
const WRITERS: [&str; 2] = ["crates/campaign-dispatch/src/", "crates/store"];

/// Rows of campaigns.
const ROWS: [&str; 3] = ["CampaignRun", "OutboxItem", "Job"];

pub(crate) fn campaigns_are_written_by_it_alone(tree: &Tree) -> Vec<Finding> {
    let is_shipped = |path: &str| path.starts_with("crates/") && path.contains("/src/");
    let is_other = |path: &str| !WRITERS.iter().any(|writer| path.starts_with(writer));
    let files = tree
        .rust()
        .filter(|(file, ..)| is_shipped(&file.path) && is_other(&file.path));
    let written = files.filter_map(|(file, text, _)| {
        let line = text.lines().position(is_import_of_rows)?;
        let commits = text.lines().any(|line| words(line).any(|word| word == "Commit" || word == "Change"));
        let what = "let onward-campaign-dispatch write this: only there is a status what the tables of transitions say";
        commits.then(|| Finding::new(&file.path, line + 1, what))
    });
    written.collect()
}

fn is_import_of_rows(line: &str) -> bool {
    line.contains("tables::") && words(line).any(|word| ROWS.contains(&word))
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use super::campaigns_are_written_by_it_alone;
    use crate::tidy::tree::Tree;

    fn count(path: &str, text: &str) -> usize {
        campaigns_are_written_by_it_alone(&Tree::of(&[(path, text)])).len()
    }

    #[test]
    fn rows_of_campaigns_are_committed_by_one_crate() {
        let writes = "use onward_store::tables::{Component, Job};\nfn f(job: &Job) { Commit::new().update(job, 1); }";
        assert_eq!(count("crates/server/src/x.rs", writes), 1);
        assert_eq!(count("crates/campaign-dispatch/src/x.rs", writes), 0);
        assert_eq!(count("crates/store-sqlite/src/x.rs", writes), 0);
        assert_eq!(count("crates/cli/tests/x.rs", writes), 0);
        let reads = "use onward_store::tables::{self, CampaignRun as Row};\nfn f(row: &Row) {}";
        assert_eq!(count("crates/server/src/x.rs", reads), 0);
        let others = "use onward_store::tables::Component;\nfn f() { Commit::new(); }";
        assert_eq!(count("crates/server/src/x.rs", others), 0);
    }
}
