//! The page with the last comparisons: tables between two marks each in docs/benchmarks.md, and
//! what has to be known to believe them.

use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use crate::compare::measurement::Measurement;
use crate::compare::report::{ComparisonFigures, grouped};
use crate::compare::workload::{PART_STEPS, WORKLOADS};
use crate::run::XtaskRun;

const PAGE: &str = "docs/benchmarks.md";

/// Between which lines of the page a comparison stands.
pub(crate) struct Place {
    pub(crate) begin: &'static str,
    pub(crate) end: &'static str,
}

const ENGINES: Place = Place {
    begin: "<!-- compare: begin, written by `cargo xtask compare` -->",
    end: "<!-- compare: end -->",
};

/// One figure of a workload on all sides.
struct ComparisonPageRow {
    name: String,
    figures: Vec<f64>,
}

/// The last side is the one that the others are compared with.
pub(crate) fn write(run: &XtaskRun, machine: &str, sides: &[ComparisonFigures]) -> Result<()> {
    put(run, &ENGINES, &section(machine, sides))
}

/// Puts a comparison where the last one was.
pub(crate) fn put(run: &XtaskRun, place: &Place, section: &str) -> Result<()> {
    let path = run.root.join(PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("cannot read {PAGE}"))?;
    let page =
        replaced(&page, place, section).with_context(|| format!("{PAGE} has no place for it"))?;
    fs::write(&path, page).with_context(|| format!("cannot write {PAGE}"))?;
    eprintln!("  {PAGE} has the table");
    Ok(())
}

/// The page with other text between the marks.
fn replaced(page: &str, Place { begin, end }: &Place, section: &str) -> Option<String> {
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
        "a second, and times that of the last",
        &names,
        &rates(sides),
        times,
    );
    let plain = |figures: &[f64]| figures.iter().map(|figure| shown(*figure)).collect();
    for (title, figure) in BESIDE {
        push_table(&mut text, title, &names, &rows(sides, figure), plain);
    }
    let _ = writeln!(text, "\n{}", slower(&names, &rates(sides)));
    text
}

/// Something that was measured.
type Figure = fn(&Measurement) -> f64;

/// What stands beside the rates.
const BESIDE: [(&str, Figure); 5] = [
    ("p50 ms", |one| one.p50_ms),
    ("p99 ms", |one| one.p99_ms.unwrap_or(f64::NAN)),
    ("CPU µs each", |one| one.cpu_seconds() * 1e6 / one.units()),
    ("bytes written each", |one| {
        one.written_bytes() / one.units()
    }),
    ("cores busy with neither the side nor the driver", |one| {
        one.other_cores
    }),
];

fn push_table(
    text: &mut String,
    title: &str,
    names: &[&str],
    rows: &[ComparisonPageRow],
    cells: impl Fn(&[f64]) -> Vec<String>,
) {
    let _ = writeln!(
        text,
        "\n| {title} | {} |\n|---{}|",
        names.join(" | "),
        "|---".repeat(names.len())
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {} |",
            row.name,
            cells(&row.figures).join(" | ")
        );
    }
}

/// One figure of every workload.
fn rows(sides: &[ComparisonFigures], figure: Figure) -> Vec<ComparisonPageRow> {
    let row = |index: usize| {
        let median = |side: &ComparisonFigures| Measurement::median(&side.repetitions[index]);
        let figures = sides.iter().map(|side| figure(&median(side))).collect();
        ComparisonPageRow {
            name: WORKLOADS[index].name(),
            figures,
        }
    };
    (0..WORKLOADS.len()).map(row).collect()
}

/// The rate of every workload, and of the ends of long ones.
fn rates(sides: &[ComparisonFigures]) -> Vec<ComparisonPageRow> {
    let first = rows(sides, |one| one.ends.map_or(f64::NAN, |ends| ends.first));
    let last = rows(sides, |one| one.ends.map_or(f64::NAN, |ends| ends.last));
    let mut all = Vec::new();
    for ((row, first), last) in rows(sides, |one| one.rate).into_iter().zip(first).zip(last) {
        all.push(row);
        for (which, ends) in [("first", first), ("last", last)] {
            if ends.figures.iter().all(|figure| figure.is_finite()) {
                all.push(ComparisonPageRow {
                    name: format!("its {which} {PART_STEPS}"),
                    ..ends
                });
            }
        }
    }
    all
}

/// Each, and how many times the last one it is.
fn times(figures: &[f64]) -> Vec<String> {
    let Some((last, others)) = figures.split_last() else {
        return Vec::new();
    };
    let beside = |figure: &f64| format!("{} ({:.1} ×)", grouped(*figure), figure / last);
    others.iter().map(beside).chain([grouped(*last)]).collect()
}

/// Nothing where nothing is known.
fn shown(figure: f64) -> String {
    if figure.is_nan() {
        return "–".to_owned();
    }
    if figure < 100.0 {
        format!("{figure:.1}")
    } else {
        grouped(figure)
    }
}

/// Where a side is slower than the last one, in words.
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
        return format!("None of these is slower than {last}.");
    }
    format!("Slower than {last}: {}.", slower.join("; "))
}

#[cfg(test)]
mod tests {
    use super::{ComparisonPageRow, Place, replaced, shown, slower, times};

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let place = Place {
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
    fn what_is_slower_is_said() {
        let row = |name: &str, figures: [f64; 2]| ComparisonPageRow {
            name: name.to_owned(),
            figures: figures.to_vec(),
        };
        let names = ["Us", "Them"];
        assert_eq!(
            slower(&names, &[row("chain", [2.0, 1.0])]),
            "None of these is slower than Them."
        );
        let rows = [row("chain", [2.0, 1.0]), row("start", [1.0, 1.5])];
        assert_eq!(
            slower(&names, &rows),
            "Slower than Them: Us in start (1.5 times)."
        );
    }

    #[test]
    fn each_stands_beside_the_last() {
        assert_eq!(
            times(&[20_000.0, 500.0, 1_000.0]),
            ["20,000 (20.0 ×)", "500 (0.5 ×)", "1,000"]
        );
        assert_eq!([f64::NAN, 1.25, 1_234.5].map(shown), ["–", "1.2", "1,234"]);
    }
}
