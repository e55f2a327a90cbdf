//! What the runner says about time: after each step and, sorted, at the end, so that the slow ones
//! are seen.

use std::fmt::Write;
use std::time::Duration;

/// From here on a step is marked as slow.
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Timing, table};

    fn timing(name: &'static str, seconds: u64) -> Timing {
        Timing {
            name,
            took: Duration::from_secs(seconds),
        }
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
