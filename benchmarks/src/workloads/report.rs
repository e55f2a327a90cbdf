//! Output of a benchmark: a table, or one JSON object per database.

use serde_json::{Map, Value, json};

use super::BenchTaskRunner;
use super::database::BenchEnvironment;
use super::figures::BenchFigures;
use crate::text_table::{ColumnWidths, format_figure};

/// The figures of all databases, in the order of the plan.
pub struct BenchReport {
    tasks: BenchTaskRunner,
    places: Vec<(BenchEnvironment, Vec<BenchFigures>)>,
}

impl BenchReport {
    pub(super) const fn new(
        tasks: BenchTaskRunner,
        places: Vec<(BenchEnvironment, Vec<BenchFigures>)>,
    ) -> Self {
        Self { tasks, places }
    }

    /// Formats one table for each database.
    pub fn to_tables(&self) -> String {
        let tables = self.places.iter().map(|(facts, all)| {
            let lines = format_table(self.tasks, facts, all);
            lines.iter().map(|line| format!("{line}\n")).collect()
        });
        tables.collect::<Vec<String>>().join("\n")
    }

    /// Formats one JSON object per line, one for each database.
    pub fn to_json_lines(&self) -> String {
        self.places
            .iter()
            .map(|(facts, all)| format!("{}\n", report_json(self.tasks, facts, all)))
            .collect()
    }
}

const WIDTHS: ColumnWidths = ColumnWidths { name: 24, cell: 11 };

/// Column headings of the table.
const COLUMN_HEADS: [&str; 9] = [
    "a second",
    "p50 ms",
    "p99 ms",
    "commits",
    "MB written",
    "bytes each",
    "CPU s",
    "CPU µs each",
    "× yardstick",
];

fn format_table(
    tasks: BenchTaskRunner,
    facts: &BenchEnvironment,
    all: &[BenchFigures],
) -> Vec<String> {
    let machine = &facts.machine;
    let kernel = machine.kernel.as_deref().unwrap_or("unknown");
    let mut lines = vec![
        format!("onward {}, {}: {}", env!("CARGO_PKG_VERSION"), facts.store, facts.durability),
        format!(
            "{} cores, kernel {kernel}{}; the driver runs on them too; tasks: {}",
            machine.cores,
            machine.file_system.as_ref().map_or_else(String::new, |kind| format!(", {kind}")),
            tasks.as_str(),
        ),
        "yardstick: plain one-row commits of the same database, one after the other, before and after".to_owned(),
        String::new(),
        WIDTHS.format_row("", &COLUMN_HEADS),
    ];
    for figures in all {
        lines.push(WIDTHS.format_row(&workload_label(figures), &format_cells(figures)));
        for more in &figures.extra_figures {
            lines.push(
                format!(
                    "  {:<34} {:>12} {}",
                    more.label,
                    format_figure(more.value),
                    more.unit
                )
                .trim_end()
                .to_owned(),
            );
        }
        let before_and_after = figures.commit_rates.map(format_figure).join(" and ");
        lines.push(format!(
            "  {:<34} {before_and_after} commits/s",
            "yardstick"
        ));
    }
    lines
}

fn workload_label(figures: &BenchFigures) -> String {
    format!(
        "{} × {}, {}s",
        figures.workload, figures.concurrency, figures.unit
    )
}

fn format_cells(figures: &BenchFigures) -> [String; 9] {
    let ms = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
    let whole = |value: Option<f64>| value.map_or_else(String::new, format_figure);
    let used = &figures.used;
    let written = used.written_bytes.map(|bytes| bytes as f64);
    let cpu = used.cpu.map(|cpu| cpu.as_secs_f64());
    [
        format_figure(figures.per_second()),
        ms(figures.latencies.p50_ms()),
        ms(figures.latencies.p99_ms()),
        whole(used.commits.map(|count| count as f64)),
        written.map_or_else(String::new, |bytes| format!("{:.1}", bytes / 1e6)),
        whole(written.map(|bytes| figures.per_unit(bytes))),
        cpu.map_or_else(String::new, |seconds| format!("{seconds:.2}")),
        whole(cpu.map(|seconds| figures.per_unit(seconds * 1e6))),
        format!("{:.2}", figures.per_second() / figures.mean_commit_rate()),
    ]
}

fn report_json(tasks: BenchTaskRunner, facts: &BenchEnvironment, all: &[BenchFigures]) -> Value {
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "store": facts.store,
        "durability": facts.durability,
        "tasks": tasks.as_str(),
        "machine": {
            "cores": facts.machine.cores,
            "kernel": facts.machine.kernel,
            "fileSystem": facts.machine.file_system,
        },
        "workloads": all.iter().map(workload_json).collect::<Vec<Value>>(),
    })
}

fn workload_json(figures: &BenchFigures) -> Value {
    let used = &figures.used;
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("workload", json!(figures.workload));
    put("concurrency", json!(figures.concurrency));
    put("unit", json!(figures.unit));
    put("executions", json!(figures.executions));
    put("units", json!(figures.units));
    put("seconds", json!(figures.took.as_secs_f64()));
    put("perSecond", json!(figures.per_second()));
    put("p50Ms", json!(figures.latencies.p50_ms()));
    put("p99Ms", json!(figures.latencies.p99_ms()));
    put("commits", json!(used.commits));
    put("writtenBytes", json!(used.written_bytes));
    put("cpuSeconds", json!(used.cpu.map(|cpu| cpu.as_secs_f64())));
    put(
        "driverCpuSeconds",
        json!(used.driver_cpu.map(|cpu| cpu.as_secs_f64())),
    );
    put("rawCommitsPerSecond", json!(figures.commit_rates));
    put(
        "timesRaw",
        json!(figures.per_second() / figures.mean_commit_rate()),
    );
    for more in &figures.extra_figures {
        put(more.key, json!(more.value));
    }
    Value::Object(object)
}
