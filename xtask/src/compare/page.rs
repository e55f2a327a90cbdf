//! The page with the last comparison: a table between two marks in docs/benchmarks.md, and what has to be known to believe it.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use crate::compare::measurement::Measurement;
use crate::compare::report::{Figures, grouped};
use crate::compare::workload::{Ends, PART_STEPS, Workload};
use crate::run::Run;

const PAGE: &str = "docs/benchmarks.md";
const BEGIN: &str = "<!-- compare: begin, written by `cargo xtask compare` -->";
const END: &str = "<!-- compare: end -->";

/// One figure of a workload on both sides.
struct Row {
    name: String,
    ours: f64,
    theirs: f64,
}

/// Puts the comparison of two sides where the last one was.
pub(crate) fn write(run: &Run, machine: &str, sides: &[Figures]) -> Result<()> {
    let [ours, theirs] = sides else { return Ok(()) };
    let path = run.root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let page =
        replaced(&page, &section(machine, ours, theirs)).with_context(|| format!("{PAGE} has no place for it"))?;
    fs::write(&path, page).with_context(|| format!("cannot write {PAGE}"))?;
    eprintln!("  {PAGE} has the table");
    Ok(())
}

/// The page with other text between the marks.
fn replaced(page: &str, section: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n\n{section}\n{END}{after}"))
}

fn section(machine: &str, ours: &Figures, theirs: &Figures) -> String {
    let mut text = format!("{machine}. Medians of {} rounds; sides take turns.\n\n", ours.rounds());
    for figures in [ours, theirs] {
        let facts = &figures.facts;
        // Writing to a String cannot fail.
        let _ = writeln!(text, "- {}: {}. Settings: {}.", figures.side.name(), facts.versions, facts.settings);
        let _ = writeln!(text, "  Durability: {}.", facts.durability);
    }
    let [our_name, their_name] = [ours, theirs].map(|figures| figures.side.name());
    let _ = writeln!(text, "\n| a second | {our_name} | {their_name} | times |\n|---|---|---|---|");
    let rows = rates(ours, theirs);
    for row in &rows {
        let times = row.ours / row.theirs;
        let _ = writeln!(text, "| {} | {} | {} | {times:.1} |", row.name, grouped(row.ours), grouped(row.theirs));
    }
    let heads = ["p50 ms", "p99 ms", "CPU µs each", "bytes written each"];
    let _ = writeln!(text, "\n| {our_name} / {their_name} | {} |\n|---|---|---|---|---|", heads.join(" | "));
    for ((workload, ours), (_, theirs)) in ours.rows().zip(theirs.rows()) {
        let cells = beside(&Measurement::median(ours), &Measurement::median(theirs));
        let _ = writeln!(text, "| {} | {} |", workload.name(), cells.join(" | "));
    }
    let _ = writeln!(text, "\n{}", slower(&rows));
    text
}

fn rates(ours: &Figures, theirs: &Figures) -> Vec<Row> {
    let mut rows = Vec::new();
    for ((workload, ours), (_, theirs)) in ours.rows().zip(theirs.rows()) {
        let (ours, theirs) = (Measurement::median(ours), Measurement::median(theirs));
        rows.push(Row { name: Workload::name(workload), ours: ours.rate, theirs: theirs.rate });
        if let (Some(ours), Some(theirs)) = (ours.ends, theirs.ends) {
            let part = |which: &str, figure: fn(Ends) -> f64| Row {
                name: format!("its {which} {PART_STEPS}"),
                ours: figure(ours),
                theirs: figure(theirs),
            };
            rows.push(part("first", |ends| ends.first));
            rows.push(part("last", |ends| ends.last));
        }
    }
    rows
}

/// What stands beside the rates.
fn beside(ours: &Measurement, theirs: &Measurement) -> [String; 4] {
    let pair = |figure: &dyn Fn(&Measurement) -> Option<String>| {
        [ours, theirs].map(|one| figure(one).unwrap_or_else(|| "–".to_owned())).join(" / ")
    };
    [
        pair(&|one| Some(format!("{:.1}", one.p50_ms))),
        pair(&|one| one.p99_ms.map(|p99_ms| format!("{p99_ms:.1}"))),
        pair(&|one| Some(grouped(one.cpu_seconds() * 1e6 / one.units()))),
        pair(&|one| Some(grouped(one.written_bytes() / one.units()))),
    ]
}

/// Where we are slower, in words.
fn slower(rows: &[Row]) -> String {
    let slower: Vec<String> = rows
        .iter()
        .filter(|row| row.ours < row.theirs)
        .map(|row| format!("{} ({:.1} times)", row.name, row.theirs / row.ours))
        .collect();
    if slower.is_empty() {
        "Onward is slower in none of them.".to_owned()
    } else {
        format!("Onward is slower in: {}.", slower.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, Row, replaced, slower};

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        assert_eq!(replaced(&page, "new\n").unwrap(), format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(replaced("a\nb\n", "new"), None);
    }

    #[test]
    fn what_is_slower_is_said() {
        let row = |name: &str, ours, theirs| Row { name: name.to_owned(), ours, theirs };
        assert_eq!(slower(&[row("chain", 2.0, 1.0)]), "Onward is slower in none of them.");
        let rows = [row("chain", 2.0, 1.0), row("start", 1.0, 1.5)];
        assert_eq!(slower(&rows), "Onward is slower in: start (1.5 times).");
    }
}
