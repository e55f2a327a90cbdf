//! What a comparison prints: a table for people, or JSON with every repetition.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::compare::measurement::Measurement;
use crate::compare::side::{ComparedEngine, Facts};
use crate::compare::workload::{Ends, PART_STEPS, WORKLOADS, Workload};

/// The figures of a side: for each workload, its repetitions.
pub(crate) struct ComparisonFigures {
    pub(crate) side: ComparedEngine,
    pub(crate) facts: Facts,
    pub(crate) repetitions: [Vec<Measurement>; WORKLOADS.len()],
}

impl ComparisonFigures {
    pub(crate) fn new(side: ComparedEngine, facts: Facts) -> Self {
        Self {
            side,
            facts,
            repetitions: Default::default(),
        }
    }

    /// How often each workload was measured.
    pub(crate) fn rounds(&self) -> usize {
        self.repetitions.first().map_or(0, Vec::len)
    }

    fn rows(&self) -> impl Iterator<Item = (&'static Workload, &[Measurement])> {
        WORKLOADS
            .iter()
            .zip(self.repetitions.iter().map(Vec::as_slice))
    }
}

/// The medians, a table for each side.
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
            "medians; CPU and disk are of all its processes; other cores: busy with neither them nor the driver\n",
        );
        push_cells(
            &mut text,
            "",
            [
                "a second",
                "p50 ms",
                "p99 ms",
                "CPU s",
                "CPU µs each",
                "MB to disk",
                "bytes each",
                "other cores",
            ],
        );
        for (workload, repetitions) in figures.rows() {
            push_row(&mut text, workload, &Measurement::median(repetitions));
        }
        text.push('\n');
    }
    text
}

fn push_row(text: &mut String, workload: &Workload, median: &Measurement) {
    let name = workload.name();
    let cells = [
        grouped(median.rate),
        format!("{:.1}", median.p50_ms),
        median
            .p99_ms
            .map_or_else(String::new, |p99_ms| format!("{p99_ms:.1}")),
        format!("{:.1}", median.cpu_seconds()),
        grouped(median.cpu_seconds() * 1e6 / median.units()),
        format!("{:.1}", median.written_bytes() / 1e6),
        grouped(median.written_bytes() / median.units()),
        format!("{:.2}", median.other_cores),
    ];
    push_cells(text, &name, cells.each_ref().map(String::as_str));
    if let Some(Ends { first, last }) = median.ends {
        push_cells(
            text,
            &format!("  its first {PART_STEPS}"),
            [&grouped(first), "", "", "", "", "", "", ""],
        );
        push_cells(
            text,
            &format!("  its last {PART_STEPS}"),
            [&grouped(last), "", "", "", "", "", "", ""],
        );
    }
}

fn push_cells(text: &mut String, name: &str, cells: [&str; 8]) {
    let mut line = format!("{name:<20}");
    for cell in cells {
        // Writing to a String cannot fail.
        let _ = write!(line, " {cell:>11}");
    }
    push_line(text, line.trim_end());
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// A whole number with commas.
pub(crate) fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Everything: medians and repetitions, and for each process by itself what it used.
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

fn workload_json(workload: &Workload, repetitions: &[Measurement]) -> Value {
    json!({
        "work": workload.work.name(),
        "concurrency": workload.concurrency,
        "unit": workload.work.unit(),
        "median": measurement_json(&Measurement::median(repetitions)),
        "repetitions": repetitions.iter().map(measurement_json).collect::<Vec<Value>>(),
    })
}

fn measurement_json(one: &Measurement) -> Value {
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
    use crate::compare::measurement::{Measurement, Used};
    use crate::compare::side::{ComparedEngine, Facts};
    use crate::compare::workload::{Ends, WORKLOADS, Work};

    fn figures() -> ComparisonFigures {
        let facts = Facts {
            versions: "server 1.2.3".to_owned(),
            settings: "its own".to_owned(),
            durability: "synced".to_owned(),
        };
        let mut figures = ComparisonFigures::new(ComparedEngine::Restate, facts);
        for (workload, repetitions) in WORKLOADS.iter().zip(&mut figures.repetitions) {
            let is_long = workload.work == Work::Long;
            let used = |name| Used {
                name,
                cpu_seconds: 2.5,
                written_bytes: 6_000_000.0,
            };
            repetitions.push(Measurement {
                invocations: 1_234.0,
                seconds: 10.0,
                rate: 1_234.0,
                p50_ms: 8.125,
                p99_ms: (!is_long).then_some(20.0),
                ends: is_long.then_some(Ends {
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
    fn the_table_has_a_row_for_each_workload_and_says_what_is_durable() {
        let expected = "\
Restate: server 1.2.3
settings: its own
durability: synced
medians; CPU and disk are of all its processes; other cores: busy with neither them nor the driver

                        a second      p50 ms      p99 ms       CPU s CPU µs each  MB to disk  bytes each other cores
chain × 1, steps           1,234         8.1        20.0         5.0         405        12.0         972        0.25
long × 1, steps            1,234         8.1                     5.0         405        12.0         972        0.25
  its first 500            1,000
  its last 500               900
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
