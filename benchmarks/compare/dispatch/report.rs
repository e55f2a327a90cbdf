//! The output of the comparison: medians, every round, and the settings of the server.

use std::fmt::Write;

use onward_benchmarks::text_table::{ColumnWidths, group_digits, push_markdown_table};
use serde_json::{Value, json};

use crate::dispatch::DispatchSide;
use crate::dispatch::round::{DispatchRound, median_over};
use crate::dispatch::server::PostgresSettings;
use crate::page::PagePlace;

pub(crate) const PLACE: PagePlace = PagePlace {
    begin: "<!-- compare dispatch: begin, written by `cargo xtask compare dispatch` -->",
    end: "<!-- compare dispatch: end -->",
};

/// With more cores in use by other processes, the report contains a warning.
const OTHER_CORES_MAX: f64 = 0.5;

/// The figures of a side.
pub(crate) struct DispatchFigures {
    pub(crate) side: DispatchSide,
    pub(crate) versions: String,
    pub(crate) rounds: Vec<DispatchRound>,
}

/// One figure of all sides.
struct DispatchReportRow {
    name: String,
    cells: Vec<String>,
}

impl DispatchFigures {
    fn rate(&self) -> f64 {
        median_over(&self.rounds, DispatchRound::rate)
    }

    /// The settings, equal in every round.
    fn settings(&self) -> &str {
        self.rounds.first().map_or("", |round| &round.settings)
    }
}

/// Formats the comparison for the terminal.
pub(crate) fn table(
    machine: &str,
    settings: &PostgresSettings,
    sides: &[DispatchFigures],
) -> String {
    let mut text = format!(
        "{machine}\nPostgres {}: {}\n",
        settings.version,
        settings.in_one_line()
    );
    for figures in sides {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "{}: {}; {}",
            figures.side.name(),
            figures.versions,
            figures.settings()
        );
    }
    text.push('\n');
    let widths = ColumnWidths { name: 40, cell: 28 };
    let _ = writeln!(text, "{}", widths.format_row("", &column_heads(sides)));
    for row in rows(sides) {
        let _ = writeln!(text, "{}", widths.format_row(&row.name, &row.cells));
    }
    text
}

/// Formats the comparison for docs/benchmarks.md.
pub(crate) fn section(
    machine: &str,
    settings: &PostgresSettings,
    sides: &[DispatchFigures],
) -> String {
    let rounds = sides.first().map_or(0, |figures| figures.rounds.len());
    let mut text = format!("{machine}. Medians of {rounds} rounds; sides take turns.\n\n");
    let _ = writeln!(
        text,
        "- Postgres {}: {}.",
        settings.version,
        settings.in_one_line()
    );
    for figures in sides {
        let _ = writeln!(
            text,
            "- {}: {}. Settings: {}.",
            figures.side.name(),
            figures.versions,
            figures.settings()
        );
    }
    let rows = rows(sides).into_iter().map(|row| (row.name, row.cells));
    push_markdown_table(&mut text, "", &column_heads(sides), rows);
    let _ = writeln!(text, "\n{}{}", verdict(sides), disturbance(sides));
    text
}

fn column_heads(sides: &[DispatchFigures]) -> Vec<String> {
    sides
        .iter()
        .map(|figures| format!("{}, {}s", figures.side.name(), figures.side.unit()))
        .collect()
}

fn rows(sides: &[DispatchFigures]) -> Vec<DispatchReportRow> {
    let row = |name: &str, figure: &dyn Fn(&DispatchFigures) -> String| DispatchReportRow {
        name: name.to_owned(),
        cells: sides.iter().map(figure).collect(),
    };
    let middle = |figures: &DispatchFigures, figure: fn(&DispatchRound) -> f64| {
        median_over(&figures.rounds, figure)
    };
    let every = |figures: &DispatchFigures, shown: &dyn Fn(&DispatchRound) -> String| {
        figures
            .rounds
            .iter()
            .map(shown)
            .collect::<Vec<String>>()
            .join(" / ")
    };
    vec![
        row("per second", &|it| group_digits(it.rate())),
        row("each round", &|it| {
            every(it, &|round| group_digits(round.rate()))
        }),
        row("CPU µs per unit, without the server", &|it| {
            format!("{:.1}", middle(it, DispatchRound::cpu_micros_each))
        }),
        row("WAL bytes per unit", &|it| {
            group_digits(middle(it, DispatchRound::log_bytes_each))
        }),
        row("cores used by other processes before the round", &|it| {
            every(it, &|round| format!("{:.1}", round.other_cores))
        }),
    ]
}

/// A sentence that names the faster side.
fn verdict(sides: &[DispatchFigures]) -> String {
    let [one, other] = sides else {
        return String::new();
    };
    let (faster, slower) = if one.rate() >= other.rate() {
        (one, other)
    } else {
        (other, one)
    };
    format!(
        "{} completes {:.2} times as many {}s per second as {} completes {}s.",
        faster.side.name(),
        faster.rate() / slower.rate(),
        faster.side.unit(),
        slower.side.name(),
        slower.side.unit(),
    )
}

/// A warning if other processes used the machine.
fn disturbance(sides: &[DispatchFigures]) -> &'static str {
    let most = sides
        .iter()
        .flat_map(|figures| &figures.rounds)
        .map(|round| round.other_cores)
        .fold(0.0, f64::max);
    if most <= OTHER_CORES_MAX {
        return "";
    }
    " Other processes used the machine: an idle machine is faster, and its rounds differ less."
}

/// Formats all figures as JSON.
pub(crate) fn json(
    machine: &str,
    settings: &PostgresSettings,
    sides: &[DispatchFigures],
) -> String {
    let server: serde_json::Map<String, Value> = settings
        .values
        .iter()
        .map(|(name, value)| ((*name).to_owned(), json!(value)))
        .collect();
    let side = |figures: &DispatchFigures| {
        json!({
            "side": figures.side.name(),
            "versions": figures.versions,
            "settings": figures.settings(),
            "unit": figures.side.unit(),
            "median": { "rate": figures.rate() },
            "rounds": figures.rounds.iter().map(round_json).collect::<Vec<Value>>(),
        })
    };
    let document = json!({
        "machine": machine,
        "server": { "version": settings.version, "settings": server },
        "sides": sides.iter().map(side).collect::<Vec<Value>>(),
    });
    format!("{document:#}\n")
}

fn round_json(round: &DispatchRound) -> Value {
    json!({
        "count": round.count,
        "seconds": round.seconds,
        "rate": round.rate(),
        "cpu_seconds": round.cpu_seconds,
        "log_bytes": round.log_bytes,
        "other_cores": round.other_cores,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{DispatchFigures, json, section, table};
    use crate::dispatch::DispatchSide;
    use crate::dispatch::round::DispatchRound;
    use crate::dispatch::server::PostgresSettings;

    fn settings() -> PostgresSettings {
        PostgresSettings {
            version: "15.18".to_owned(),
            values: vec![("fsync", "on".to_owned())],
        }
    }

    fn figures(side: DispatchSide, seconds: [f64; 3]) -> DispatchFigures {
        let round = |seconds| DispatchRound {
            count: 100_000.0,
            seconds,
            cpu_seconds: 2.0,
            log_bytes: 1e8,
            other_cores: 0.5,
            settings: "its own".to_owned(),
        };
        DispatchFigures {
            side,
            versions: "version 1".to_owned(),
            rounds: seconds.map(round).to_vec(),
        }
    }

    fn both() -> [DispatchFigures; 2] {
        [
            figures(DispatchSide::Onward, [10.0, 8.0, 5.0]),
            figures(DispatchSide::Graphile, [5.0, 4.0, 10.0]),
        ]
    }

    #[test]
    fn the_page_has_medians_rounds_and_the_faster_side() {
        let expected = "\
two cores. Medians of 3 rounds; sides take turns.

- Postgres 15.18: fsync=on.
- Onward: version 1. Settings: its own.
- graphile-worker: version 1. Settings: its own.

| | Onward, items | graphile-worker, jobs |
|---|---|---|
| per second | 12,500 | 20,000 |
| each round | 10,000 / 12,500 / 20,000 | 20,000 / 25,000 / 10,000 |
| CPU µs per unit, without the server | 20.0 | 20.0 |
| WAL bytes per unit | 1,000 | 1,000 |
| cores used by other processes before the round | 0.5 / 0.5 / 0.5 | 0.5 / 0.5 / 0.5 |

graphile-worker completes 1.60 times as many jobs per second as Onward completes items.
";
        assert_eq!(section("two cores", &settings(), &both()), expected);
    }

    #[test]
    fn load_of_other_processes_is_reported() {
        let mut sides = both();
        sides[1].rounds[2].other_cores = 1.5;
        assert!(
            section("two cores", &settings(), &sides)
                .contains("items. Other processes used the machine: ")
        );
    }

    #[test]
    fn the_table_has_the_figures_of_the_page() {
        let table = table("two cores", &settings(), &both());
        assert!(table.contains("Postgres 15.18: fsync=on\n"));
        assert!(
            table.contains(&format!("\nper second{:>59}{:>29}\n", "12,500", "20,000")),
            "{table}"
        );
    }

    #[test]
    fn the_json_has_every_round_and_the_settings_of_the_server() {
        let document: Value =
            serde_json::from_str(&json("two cores", &settings(), &both())).unwrap();
        assert_eq!(document["server"]["settings"]["fsync"], "on");
        let queue = &document["sides"][1];
        assert_eq!(
            (&queue["unit"], &queue["median"]["rate"]),
            (&Value::from("job"), &Value::from(20_000.0))
        );
        assert_eq!(queue["rounds"][2]["rate"], 10_000.0);
    }
}
