//! What the comparison prints and writes: medians and every round, and beside them what the server
//! says of itself.

use std::fmt::Write;

use serde_json::{Value, json};

use crate::compare::dispatch::DispatchSide;
use crate::compare::dispatch::round::{Round, median};
use crate::compare::dispatch::server::PostgresSettings;
use crate::compare::page::Place;
use crate::compare::report::grouped;

pub(crate) const PLACE: Place = Place {
    begin: "<!-- compare dispatch: begin, written by `cargo xtask compare dispatch` -->",
    end: "<!-- compare dispatch: end -->",
};

/// More cores than these busy with other work are worth a word.
const OTHER_CORES_MAX: f64 = 0.5;

/// The figures of a side.
pub(crate) struct DispatchFigures {
    pub(crate) side: DispatchSide,
    pub(crate) versions: String,
    pub(crate) rounds: Vec<Round>,
}

/// One figure of every side.
struct DispatchReportRow {
    name: String,
    cells: Vec<String>,
}

impl DispatchFigures {
    fn rate(&self) -> f64 {
        median(&self.rounds, Round::rate)
    }

    /// The same in every round.
    fn settings(&self) -> &str {
        self.rounds.first().map_or("", |round| &round.settings)
    }
}

/// For people at a terminal.
pub(crate) fn table(
    machine: &str,
    settings: &PostgresSettings,
    sides: &[DispatchFigures],
) -> String {
    let mut text = format!(
        "{machine}\nPostgres {}: {}\n",
        settings.version,
        settings.in_words()
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
    let heads = sides
        .iter()
        .map(|figures| format!("{}, {}s", figures.side.name(), figures.side.unit()))
        .collect();
    text.push('\n');
    for row in [DispatchReportRow {
        name: String::new(),
        cells: heads,
    }]
    .iter()
    .chain(&rows(sides))
    {
        let cells: String = row
            .cells
            .iter()
            .map(|cell| format!(" {cell:>28}"))
            .collect();
        let _ = writeln!(text, "{:<40}{cells}", row.name);
    }
    text
}

/// For docs/benchmarks.md.
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
        settings.in_words()
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
    let heads: Vec<String> = sides
        .iter()
        .map(|figures| format!("{}, {}s", figures.side.name(), figures.side.unit()))
        .collect();
    let _ = writeln!(
        text,
        "\n| | {} |\n|---{}|",
        heads.join(" | "),
        "|---".repeat(heads.len())
    );
    for row in rows(sides) {
        let _ = writeln!(text, "| {} | {} |", row.name, row.cells.join(" | "));
    }
    let _ = writeln!(text, "\n{}{}", verdict(sides), disturbance(sides));
    text
}

fn rows(sides: &[DispatchFigures]) -> Vec<DispatchReportRow> {
    let row = |name: &str, figure: &dyn Fn(&DispatchFigures) -> String| DispatchReportRow {
        name: name.to_owned(),
        cells: sides.iter().map(figure).collect(),
    };
    let middle =
        |figures: &DispatchFigures, figure: fn(&Round) -> f64| median(&figures.rounds, figure);
    let every = |figures: &DispatchFigures, shown: &dyn Fn(&Round) -> String| {
        figures
            .rounds
            .iter()
            .map(shown)
            .collect::<Vec<String>>()
            .join(" / ")
    };
    vec![
        row("a second", &|it| grouped(it.rate())),
        row("each round", &|it| {
            every(it, &|round| grouped(round.rate()))
        }),
        row("CPU µs each, without the server", &|it| {
            format!("{:.1}", middle(it, Round::cpu_micros_each))
        }),
        row("bytes of the server's log each", &|it| {
            grouped(middle(it, Round::log_bytes_each))
        }),
        row("cores busy with other work just before", &|it| {
            every(it, &|round| format!("{:.1}", round.other_cores))
        }),
    ]
}

/// Who is faster, in words.
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
        "{} does {:.2} times as many {}s a second as {} does {}s.",
        faster.side.name(),
        faster.rate() / slower.rate(),
        faster.side.unit(),
        slower.side.name(),
        slower.side.unit(),
    )
}

/// A word of warning where the machine had other things to do.
fn disturbance(sides: &[DispatchFigures]) -> &'static str {
    let most = sides
        .iter()
        .flat_map(|figures| &figures.rounds)
        .map(|round| round.other_cores)
        .fold(0.0, f64::max);
    if most <= OTHER_CORES_MAX {
        return "";
    }
    " Other work ran on the machine meanwhile: an idle one is faster, and its rounds differ less."
}

/// Everything.
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

fn round_json(round: &Round) -> Value {
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
    use crate::compare::dispatch::DispatchSide;
    use crate::compare::dispatch::round::Round;
    use crate::compare::dispatch::server::PostgresSettings;

    fn settings() -> PostgresSettings {
        PostgresSettings {
            version: "15.18".to_owned(),
            values: vec![("fsync", "on".to_owned())],
        }
    }

    fn figures(side: DispatchSide, seconds: [f64; 3]) -> DispatchFigures {
        let round = |seconds| Round {
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
    fn the_page_has_medians_rounds_and_who_is_faster() {
        let expected = "\
two cores. Medians of 3 rounds; sides take turns.

- Postgres 15.18: fsync=on.
- Onward: version 1. Settings: its own.
- graphile-worker: version 1. Settings: its own.

| | Onward, items | graphile-worker, jobs |
|---|---|---|
| a second | 12,500 | 20,000 |
| each round | 10,000 / 12,500 / 20,000 | 20,000 / 25,000 / 10,000 |
| CPU µs each, without the server | 20.0 | 20.0 |
| bytes of the server's log each | 1,000 | 1,000 |
| cores busy with other work just before | 0.5 / 0.5 / 0.5 | 0.5 / 0.5 / 0.5 |

graphile-worker does 1.60 times as many jobs a second as Onward does items.
";
        assert_eq!(section("two cores", &settings(), &both()), expected);
    }

    #[test]
    fn other_work_on_the_machine_is_mentioned() {
        let mut sides = both();
        sides[1].rounds[2].other_cores = 1.5;
        assert!(
            section("two cores", &settings(), &sides)
                .contains("items. Other work ran on the machine meanwhile: ")
        );
    }

    #[test]
    fn the_table_says_what_the_page_says() {
        let table = table("two cores", &settings(), &both());
        assert!(table.contains("Postgres 15.18: fsync=on\n"));
        assert!(
            table.contains(&format!("\na second{:>61}{:>29}\n", "12,500", "20,000")),
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
