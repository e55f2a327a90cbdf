//! The output of a comparison: a table of medians, or JSON with every repetition.

use onward_benchmarks::text_table::{ColumnWidths, group_digits};
use serde_json::{Value, json};

use crate::measurement::LoadMeasurement;
use crate::side::{ComparedEngine, EngineFacts};
use crate::workload::{ComparedWorkload, EndRates, PART_STEPS, WORKLOADS};

const WIDTHS: ColumnWidths = ColumnWidths { name: 20, cell: 11 };

/// The figures of an engine: the repetitions of each workload.
pub(crate) struct ComparisonFigures {
    pub(crate) side: ComparedEngine,
    pub(crate) facts: EngineFacts,
    pub(crate) repetitions: [Vec<LoadMeasurement>; WORKLOADS.len()],
}

impl ComparisonFigures {
    pub(crate) fn new(side: ComparedEngine, facts: EngineFacts) -> Self {
        Self {
            side,
            facts,
            repetitions: Default::default(),
        }
    }

    /// Number of repetitions of each workload.
    pub(crate) fn rounds(&self) -> usize {
        self.repetitions.first().map_or(0, Vec::len)
    }

    fn rows(&self) -> impl Iterator<Item = (&'static ComparedWorkload, &[LoadMeasurement])> {
        WORKLOADS
            .iter()
            .zip(self.repetitions.iter().map(Vec::as_slice))
    }
}

/// Formats the medians, with one table per engine.
pub(crate) fn table(sides: &[ComparisonFigures]) -> String {
    let mut text = String::new();
    for figures in sides {
        push_line(
            &mut text,
            &format!("{}: {}", figures.side.name(), figures.facts.versions),
        );
        push_line(&mut text, &format!("settings: {}", figures.facts.settings));
        push_line(
            &mut text,
            &format!("durability: {}", figures.facts.durability),
        );
        push_line(
            &mut text,
            "medians; CPU and disk: all processes of the engine; other cores: used by other processes\n",
        );
        push_cells(
            &mut text,
            "",
            [
                "per second",
                "p50 ms",
                "p99 ms",
                "CPU s",
                "CPU µs/unit",
                "MB to disk",
                "bytes/unit",
                "other cores",
            ],
        );
        for (workload, repetitions) in figures.rows() {
            push_row(
                &mut text,
                workload,
                &LoadMeasurement::median_of(repetitions),
            );
        }
        text.push('\n');
    }
    text
}

fn push_row(text: &mut String, workload: &ComparedWorkload, median: &LoadMeasurement) {
    let name = workload.name();
    let cells = [
        group_digits(median.rate),
        format!("{:.1}", median.p50_ms),
        median
            .p99_ms
            .map_or_else(String::new, |p99_ms| format!("{p99_ms:.1}")),
        format!("{:.1}", median.cpu_seconds()),
        group_digits(median.cpu_seconds() * 1e6 / median.units()),
        format!("{:.1}", median.written_bytes() / 1e6),
        group_digits(median.written_bytes() / median.units()),
        format!("{:.2}", median.other_cores),
    ];
    push_cells(text, &name, cells.each_ref().map(String::as_str));
    if let Some(EndRates { first, last }) = median.ends {
        push_cells(
            text,
            &format!("  first {PART_STEPS} steps"),
            [&group_digits(first), "", "", "", "", "", "", ""],
        );
        push_cells(
            text,
            &format!("  last {PART_STEPS} steps"),
            [&group_digits(last), "", "", "", "", "", "", ""],
        );
    }
}

fn push_cells(text: &mut String, name: &str, cells: [&str; 8]) {
    push_line(text, &WIDTHS.format_row(name, &cells));
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Formats medians and repetitions as JSON, with the usage of each process.
pub(crate) fn json(machine: &str, sides: &[ComparisonFigures]) -> String {
    let side = |figures: &ComparisonFigures| {
        let workloads: Vec<Value> = figures
            .rows()
            .map(|(workload, all)| workload_json(workload, all))
            .collect();
        json!({
            "side": figures.side.name(),
            "versions": figures.facts.versions,
            "settings": figures.facts.settings,
            "durability": figures.facts.durability,
            "workloads": workloads,
        })
    };
    let sides: Vec<Value> = sides.iter().map(side).collect();
    let document = json!({ "machine": machine, "sides": sides });
    format!("{document:#}\n")
}

fn workload_json(workload: &ComparedWorkload, repetitions: &[LoadMeasurement]) -> Value {
    json!({
        "work": workload.work.name(),
        "concurrency": workload.concurrency,
        "unit": workload.work.unit(),
        "median": measurement_json(&LoadMeasurement::median_of(repetitions)),
        "repetitions": repetitions.iter().map(measurement_json).collect::<Vec<Value>>(),
    })
}

fn measurement_json(one: &LoadMeasurement) -> Value {
    let processes = one
        .processes
        .iter()
        .map(|used| json!({ "name": used.name, "cpu_seconds": used.cpu_seconds, "written_bytes": used.written_bytes }));
    json!({
        "invocations": one.invocations,
        "seconds": one.seconds,
        "rate": one.rate,
        "p50_ms": one.p50_ms,
        "p99_ms": one.p99_ms,
        "first_rate": one.ends.map(|ends| ends.first),
        "last_rate": one.ends.map(|ends| ends.last),
        "processes": processes.collect::<Vec<Value>>(),
        "other_cores": one.other_cores,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{ComparisonFigures, json, table};
    use crate::measurement::{LoadMeasurement, UsedResources};
    use crate::side::{ComparedEngine, EngineFacts};
    use crate::workload::{ComparedWork, EndRates, WORKLOADS};

    fn figures() -> ComparisonFigures {
        let facts = EngineFacts {
            versions: "server 1.2.3".to_owned(),
            settings: "its own".to_owned(),
            durability: "synced".to_owned(),
        };
        let mut figures = ComparisonFigures::new(ComparedEngine::Restate, facts);
        for (workload, repetitions) in WORKLOADS.iter().zip(&mut figures.repetitions) {
            let is_long = workload.work == ComparedWork::Long;
            let used = |name| UsedResources {
                name,
                cpu_seconds: 2.5,
                written_bytes: 6_000_000.0,
            };
            repetitions.push(LoadMeasurement {
                invocations: 1_234.0,
                seconds: 10.0,
                rate: 1_234.0,
                p50_ms: 8.125,
                p99_ms: (!is_long).then_some(20.0),
                ends: is_long.then_some(EndRates {
                    first: 1_000.0,
                    last: 900.0,
                }),
                processes: vec![used("server"), used("service")],
                other_cores: 0.25,
            });
        }
        figures
    }

    #[test]
    fn the_table_has_a_row_for_each_workload_and_the_durability() {
        let expected = "\
Restate: server 1.2.3
settings: its own
durability: synced
medians; CPU and disk: all processes of the engine; other cores: used by other processes

                      per second      p50 ms      p99 ms       CPU s CPU µs/unit  MB to disk  bytes/unit other cores
chain × 1, steps           1,234         8.1        20.0         5.0         405        12.0         972        0.25
long × 1, steps            1,234         8.1                     5.0         405        12.0         972        0.25
  first 500 steps          1,000
  last 500 steps             900
chain × 64, steps          1,234         8.1        20.0         5.0         405        12.0         972        0.25
start × 64, starts         1,234         8.1        20.0         5.0         405        12.0         972        0.25
fanout × 1, steps          1,234         8.1        20.0         5.0         405        12.0         972        0.25

";
        assert_eq!(table(&[figures()]), expected);
    }

    #[test]
    fn the_json_has_every_repetition_and_every_process() {
        let document: Value = serde_json::from_str(&json("two cores", &[figures()])).unwrap();
        let long = &document["sides"][0]["workloads"][1];
        assert_eq!(
            (&long["work"], &long["median"]["first_rate"]),
            (&Value::from("long"), &Value::from(1_000.0))
        );
        assert_eq!(long["repetitions"][0]["processes"][1]["name"], "service");
        assert_eq!(long["repetitions"][0]["p99_ms"], Value::Null);
    }
}
