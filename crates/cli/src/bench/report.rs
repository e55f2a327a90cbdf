//! Output of a benchmark: a table, or one JSON object per database.

use std::io::{self, Write as _};

use serde_json::{Map, Value, json};

use super::BenchTaskRunner;
use super::database::BenchEnvironment;
use super::figures::BenchFigures;

pub(super) fn print_report(
    as_json: bool,
    tasks: BenchTaskRunner,
    places: &[(BenchEnvironment, Vec<BenchFigures>)],
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (number, (facts, all)) in places.iter().enumerate() {
        if as_json {
            writeln!(out, "{}", report_json(tasks, facts, all))?;
            continue;
        }
        if number > 0 {
            writeln!(out)?;
        }
        for line in format_table(tasks, facts, all) {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

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
        format_row("", &COLUMN_HEADS.map(str::to_owned)),
    ];
    for figures in all {
        lines.push(format_row(&workload_label(figures), &format_cells(figures)));
        for more in &figures.extra_figures {
            lines.push(
                format!(
                    "  {:<34} {:>12} {}",
                    more.label,
                    group_digits(more.value),
                    more.unit
                )
                .trim_end()
                .to_owned(),
            );
        }
        let before_and_after = figures.commit_rates.map(group_digits).join(" and ");
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
    let whole = |value: Option<f64>| value.map_or_else(String::new, group_digits);
    let used = &figures.used;
    let written = used.written_bytes.map(|bytes| bytes as f64);
    let cpu = used.cpu.map(|cpu| cpu.as_secs_f64());
    [
        group_digits(figures.per_second()),
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

fn format_row(name: &str, cells: &[String; 9]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>11}")).collect();
    format!("{name:<24} {}", cells.join(" "))
        .trim_end()
        .to_owned()
}

/// Formats a number with thousands separators; with two decimal places if it is below 10 and not
/// whole.
fn group_digits(value: f64) -> String {
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
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

#[cfg(test)]
mod tests {
    use super::group_digits;

    #[test]
    fn large_numbers_have_commas_and_small_ones_a_point() {
        for (value, shown) in [
            (0.0, "0"),
            (1.234, "1.23"),
            (12.34, "12"),
            (999.0, "999"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(group_digits(value), shown);
        }
    }
}
