//! Durations of the steps: printed after each step and, sorted, at the end.

use std::fmt::Write;
use std::time::Duration;

/// A step that takes at least this long is marked as slow.
const SLOW: Duration = Duration::from_secs(60);

pub(crate) struct Timing {
    pub(crate) name: &'static str,
    pub(crate) took: Duration,
}

pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

/// The slowest first, then the total.
pub(crate) fn table(timings: &[Timing], total: Duration) -> String {
    let mut rows: Vec<&Timing> = timings.iter().collect();
    rows.sort_by_key(|timing| std::cmp::Reverse(timing.took));
    let mut text = String::new();
    for row in rows {
        let mark = if row.took >= SLOW { "  slow" } else { "" };
        push_row(&mut text, row.name, row.took, mark);
    }
    push_row(&mut text, "total", total, "");
    text
}

fn push_row(text: &mut String, name: &str, took: Duration, mark: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(text, "{name:<8} {:>10}{mark}", seconds(took));
}

/// The total and the slowest tests of a report in JUnit's format, as nextest writes it.
pub(crate) fn slowest_tests(junit: &str, count: usize) -> String {
    let mut tests: Vec<(f64, String)> = junit
        .split("<testcase ")
        .skip(1)
        .filter_map(|element| {
            let time = attribute(element, "time")?.parse().ok()?;
            let (binary, name) = (
                attribute(element, "classname")?,
                attribute(element, "name")?,
            );
            Some((time, format!("{binary} {name}")))
        })
        .collect();
    tests.sort_by(|one, other| other.0.total_cmp(&one.0));
    let total: f64 = tests.iter().map(|(time, _)| time).sum();
    let mut text = format!("{} tests, {total:.1} s one after the other\n", tests.len());
    for (time, name) in tests.iter().take(count) {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{time:>10.1} s  {name}");
    }
    text
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = element.split_once(&format!("{name}=\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timing, slowest_tests, table};

    fn timing(name: &'static str, seconds: u64) -> Timing {
        Timing {
            name,
            took: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_slowest_tests_come_first() {
        let junit = r#"<testsuite><testcase name="a" classname="x::y" time="0.5"/>
            <testcase name="b" classname="x" time="12.25"></testcase></testsuite>"#;
        let expected = "2 tests, 12.8 s one after the other\n      12.2 s  x b\n";
        assert_eq!(slowest_tests(junit, 1), expected);
    }

    #[test]
    fn the_table_is_sorted_and_marks_slow_steps() {
        let timings = [timing("fmt", 1), timing("test", 60), timing("docs", 59)];
        let expected = "\
test         60.0 s  slow
docs         59.0 s
fmt           1.0 s
total       121.0 s
";
        assert_eq!(table(&timings, Duration::from_secs(121)), expected);
    }
}
