//! Writes comparisons to docs/benchmarks.md: tables between two marker lines, with the versions,
//! settings and durability of each engine.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use onward_benchmarks::text_table::{group_digits, push_markdown_table};

use crate::measurement::LoadMeasurement;
use crate::report::ComparisonFigures;
use crate::workload::{PART_STEPS, WORKLOADS};

const PAGE: &str = "docs/benchmarks.md";

/// The marker lines of a comparison on the page.
pub(crate) struct PagePlace {
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
}

const ENGINES: PagePlace = PagePlace {
    begin: "<!-- compare: begin, written by `cargo xtask compare` -->",
    end: "<!-- compare: end -->",
};

/// One figure of a workload on all engines.
struct ComparisonPageRow {
    name: String,
    figures: Vec<f64>,
}

/// Writes the comparison of engines. The last one is the baseline of the others.
pub(crate) fn write(root: &Path, machine: &str, sides: &[ComparisonFigures]) -> Result<()> {
    put(root, &ENGINES, &section(machine, sides))
}

/// Replaces the previous comparison on the page.
pub(crate) fn put(root: &Path, place: &PagePlace, section: &str) -> Result<()> {
    let path = root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let page = replaced(&page, place, &wrap_lines(section))
        .with_context(|| format!("{PAGE} does not contain the marker lines of this comparison"))?;
    fs::write(&path, page).with_context(|| format!("cannot write {PAGE}"))?;
    eprintln!("  updated {PAGE}");
    Ok(())
}

/// Columns of a Markdown page; tables are not wrapped.
const PAGE_WIDTH: usize = 100;

/// Wraps paragraphs and list items. The further lines of an item are indented as its text is.
fn wrap_lines(section: &str) -> String {
    let mut wrapped = String::new();
    for line in section.split_inclusive('\n') {
        if line.starts_with('|') {
            wrapped.push_str(line);
            continue;
        }
        let text = line.trim_start_matches([' ', '-']);
        let indent = line.chars().count() - text.chars().count();
        wrapped.extend(line.chars().take(indent));
        let mut column = indent;
        for word in text.split_inclusive([' ', '\n']) {
            if column > indent && column + word.trim_end().chars().count() > PAGE_WIDTH {
                wrapped.truncate(wrapped.trim_end().len());
                wrapped.push('\n');
                wrapped.push_str(&" ".repeat(indent));
                column = indent;
            }
            wrapped.push_str(word);
            column += word.chars().count();
        }
    }
    wrapped
}

/// Replaces the text between the marker lines.
fn replaced(page: &str, PagePlace { begin, end }: &PagePlace, section: &str) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n\n{section}\n{end}{after}"))
}

fn section(machine: &str, sides: &[ComparisonFigures]) -> String {
    let rounds = sides.first().map_or(0, ComparisonFigures::rounds);
    let mut text = format!("{machine}. Medians of {rounds} rounds; sides take turns.\n\n");
    for figures in sides {
        let facts = &figures.facts;
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "- {}: {}. Settings: {}.",
            figures.side.name(),
            facts.versions,
            facts.settings
        );
        let _ = writeln!(text, "  Durability: {}.", facts.durability);
    }
    let names: Vec<&str> = sides.iter().map(|figures| figures.side.name()).collect();
    push_table(
        &mut text,
        "per second (× baseline)",
        &names,
        &rates(sides),
        times,
    );
    let plain = |figures: &[f64]| figures.iter().map(|figure| shown(*figure)).collect();
    for (title, figure) in OTHER_FIGURES {
        push_table(&mut text, title, &names, &rows(sides, figure), plain);
    }
    let _ = writeln!(text, "\n{}", slower(&names, &rates(sides)));
    text
}

/// Reads one figure of a measurement.
type MeasuredFigure = fn(&LoadMeasurement) -> f64;

/// The figures besides the rates.
const OTHER_FIGURES: [(&str, MeasuredFigure); 5] = [
    ("p50 ms", |one| one.p50_ms),
    ("p99 ms", |one| one.p99_ms.unwrap_or(f64::NAN)),
    ("CPU µs per unit", |one| {
        one.cpu_seconds() * 1e6 / one.units()
    }),
    ("bytes written per unit", |one| {
        one.written_bytes() / one.units()
    }),
    ("cores used by other processes", |one| one.other_cores),
];

fn push_table(
    text: &mut String,
    title: &str,
    names: &[&str],
    rows: &[ComparisonPageRow],
    cells: impl Fn(&[f64]) -> Vec<String>,
) {
    let rows = rows
        .iter()
        .map(|row| (row.name.clone(), cells(&row.figures)));
    push_markdown_table(text, title, names, rows);
}

/// One figure of every workload.
fn rows(sides: &[ComparisonFigures], figure: MeasuredFigure) -> Vec<ComparisonPageRow> {
    let row = |index: usize| {
        let median =
            |side: &ComparisonFigures| LoadMeasurement::median_of(&side.repetitions[index]);
        let figures = sides.iter().map(|side| figure(&median(side))).collect();
        ComparisonPageRow {
            name: WORKLOADS[index].name(),
            figures,
        }
    };
    (0..WORKLOADS.len()).map(row).collect()
}

/// The rate of every workload, and of the first and last part of the long one.
fn rates(sides: &[ComparisonFigures]) -> Vec<ComparisonPageRow> {
    let first = rows(sides, |one| one.ends.map_or(f64::NAN, |ends| ends.first));
    let last = rows(sides, |one| one.ends.map_or(f64::NAN, |ends| ends.last));
    let mut all = Vec::new();
    for ((row, first), last) in rows(sides, |one| one.rate).into_iter().zip(first).zip(last) {
        all.push(row);
        for (which, ends) in [("first", first), ("last", last)] {
            if ends.figures.iter().all(|figure| figure.is_finite()) {
                all.push(ComparisonPageRow {
                    name: format!("{which} {PART_STEPS} steps"),
                    ..ends
                });
            }
        }
    }
    all
}

/// Each figure, and its ratio to the last one.
fn times(figures: &[f64]) -> Vec<String> {
    let Some((last, others)) = figures.split_last() else {
        return Vec::new();
    };
    let with_ratio = |figure: &f64| format!("{} ({:.1} ×)", group_digits(*figure), figure / last);
    others
        .iter()
        .map(with_ratio)
        .chain([group_digits(*last)])
        .collect()
}

/// A dash stands for a figure that was not measured.
fn shown(figure: f64) -> String {
    if figure.is_nan() {
        return "–".to_owned();
    }
    if figure < 100.0 {
        format!("{figure:.1}")
    } else {
        group_digits(figure)
    }
}

/// A sentence that lists the workloads in which an engine is slower than the baseline.
fn slower(names: &[&str], rows: &[ComparisonPageRow]) -> String {
    let mut slower = Vec::new();
    for ComparisonPageRow { name, figures } in rows {
        let Some((last, others)) = figures.split_last() else {
            continue;
        };
        for (side, figure) in names
            .iter()
            .zip(others)
            .filter(|(_, figure)| *figure < last)
        {
            slower.push(format!("{side} in {name} ({:.1} times)", last / figure));
        }
    }
    let last = names.last().copied().unwrap_or_default();
    if slower.is_empty() {
        return format!("No engine is slower than {last} in any workload.");
    }
    format!("Slower than {last}: {}.", slower.join("; "))
}

#[cfg(test)]
mod tests {
    use super::{ComparisonPageRow, PagePlace, replaced, shown, slower, times, wrap_lines};

    #[test]
    fn only_the_text_between_the_markers_changes() {
        let place = PagePlace {
            begin: "<begin>",
            end: "<end>",
        };
        let page = "a\n<begin>\nold\n<end>\nb\n";
        assert_eq!(
            replaced(page, &place, "new\n").unwrap(),
            "a\n<begin>\n\nnew\n\n<end>\nb\n"
        );
        assert_eq!(replaced("a\nb\n", &place, "new"), None);
    }

    #[test]
    fn list_items_are_wrapped_and_tables_are_not() {
        let words = "word ".repeat(30);
        let table = format!("| {words}|\n");
        let section = format!("- {}\n\n{table}short\n", words.trim_end());
        let nineteen = "word ".repeat(19);
        let eleven = "word ".repeat(11);
        let expected = format!(
            "- {}\n  {}\n\n{table}short\n",
            nineteen.trim_end(),
            eleven.trim_end()
        );
        assert_eq!(wrap_lines(&section), expected);
    }

    #[test]
    fn slower_workloads_are_listed() {
        let row = |name: &str, figures: [f64; 2]| ComparisonPageRow {
            name: name.to_owned(),
            figures: figures.to_vec(),
        };
        let names = ["Us", "Them"];
        assert_eq!(
            slower(&names, &[row("chain", [2.0, 1.0])]),
            "No engine is slower than Them in any workload."
        );
        let rows = [row("chain", [2.0, 1.0]), row("start", [1.0, 1.5])];
        assert_eq!(
            slower(&names, &rows),
            "Slower than Them: Us in start (1.5 times)."
        );
    }

    #[test]
    fn each_figure_has_its_ratio_to_the_last() {
        assert_eq!(
            times(&[20_000.0, 500.0, 1_000.0]),
            ["20,000 (20.0 ×)", "500 (0.5 ×)", "1,000"]
        );
        assert_eq!([f64::NAN, 1.25, 1_234.5].map(shown), ["–", "1.2", "1,234"]);
    }
}
