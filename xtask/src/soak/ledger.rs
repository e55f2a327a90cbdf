//! The part of docs/ledger.md that soaks write: a table of totals, computed from a table of runs.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use anyhow::{Context as _, Result, ensure};

const TOTALS: &str = "## Soak totals\n";
const RUNS: &str = "## Soak runs\n";
const RUNS_HEAD: &str =
    "| date | commit | soak | units | first seed | failures |\n|---|---|---|--:|--:|--:|\n";

/// The page, and the runs that it lists.
pub(super) struct Ledger {
    /// Everything before the table of totals.
    introduction: String,
    records: Vec<SoakRecord>,
}

/// What one invocation of `cargo xtask soak` reached with one soak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SoakRecord {
    pub(super) date: String,
    pub(super) commit: String,
    pub(super) soak: String,
    pub(super) units: u64,
    pub(super) first_seed: u64,
    pub(super) failures: u64,
}

impl Ledger {
    pub(super) fn parse(page: &str) -> Result<Self> {
        let (introduction, _) = page
            .split_once(TOTALS)
            .context("the ledger has no heading \"Soak totals\"")?;
        let (_, runs) = page
            .split_once(RUNS)
            .context("the ledger has no heading \"Soak runs\"")?;
        let rows = runs.lines().filter(|line| line.starts_with("| 2"));
        Ok(Self {
            introduction: introduction.to_owned(),
            records: rows.map(SoakRecord::parse).collect::<Result<_>>()?,
        })
    }

    /// Units of all runs of a soak.
    pub(super) fn total(&self, soak: &str) -> u64 {
        let records = self.records.iter().filter(|record| record.soak == soak);
        records.map(|record| record.units).sum()
    }

    /// Adds a batch, to the row of its date, commit and soak if that row is the last of the soak.
    pub(super) fn add(&mut self, batch: SoakRecord) {
        let last = self
            .records
            .iter_mut()
            .rev()
            .find(|record| record.soak == batch.soak);
        match last {
            Some(row) if row.date == batch.date && row.commit == batch.commit => {
                row.units += batch.units;
                row.failures += batch.failures;
            }
            _ => self.records.push(batch),
        }
    }
}

impl Display for Ledger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut totals: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for record in &self.records {
            let (units, failures) = totals.entry(&record.soak).or_default();
            *units += record.units;
            *failures += record.failures;
        }
        writeln!(f, "{}{TOTALS}", self.introduction)?;
        f.write_str("| soak | units | failures |\n|---|--:|--:|\n")?;
        for (soak, (units, failures)) in totals {
            writeln!(f, "| {soak} | {units} | {failures} |")?;
        }
        write!(f, "\n{RUNS}\n{RUNS_HEAD}")?;
        self.records
            .iter()
            .try_for_each(|record| write!(f, "{record}"))
    }
}

impl SoakRecord {
    fn parse(row: &str) -> Result<Self> {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        ensure!(
            cells.len() == 6,
            "the ledger has a row without six cells: {row}"
        );
        let number = |cell: &str| {
            cell.parse()
                .with_context(|| format!("not a number in the ledger: {cell}"))
        };
        Ok(Self {
            date: cells[0].to_owned(),
            commit: cells[1].to_owned(),
            soak: cells[2].to_owned(),
            units: number(cells[3])?,
            first_seed: number(cells[4])?,
            failures: number(cells[5])?,
        })
    }
}

impl Display for SoakRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| {} | {} | {} | {} | {} | {} |",
            self.date, self.commit, self.soak, self.units, self.first_seed, self.failures
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{Ledger, SoakRecord};

    const EMPTY: &str = "# Ledger\n\n## Soak totals\n\n## Soak runs\n";

    fn record(commit: &str, units: u64, first_seed: u64) -> SoakRecord {
        SoakRecord {
            date: "2026-11-19".to_owned(),
            commit: commit.to_owned(),
            soak: "cuts".to_owned(),
            units,
            first_seed,
            failures: 0,
        }
    }

    #[test]
    fn batches_of_a_commit_share_a_row_and_the_page_is_read_back() {
        let mut ledger = Ledger::parse(EMPTY).unwrap();
        ledger.add(record("a", 5, 100));
        ledger.add(record("a", 5, 105));
        ledger.add(record("b", 7, 110));
        let page = ledger.to_string();
        assert!(page.contains("| cuts | 17 | 0 |\n"), "{page}");
        let read = Ledger::parse(&page).unwrap();
        assert_eq!(read.records, [record("a", 10, 100), record("b", 7, 110)]);
        assert_eq!(read.total("cuts"), 17);
        assert_eq!(read.to_string(), page);
    }

    #[test]
    fn a_row_that_is_no_record_is_reported() {
        let page = format!("{EMPTY}\n| 2026 | a |\n");
        let error = Ledger::parse(&page).err().unwrap().to_string();
        assert!(error.contains("six cells"), "{error}");
    }
}
