//! Numbers and tables as text, for terminals and for Markdown pages.

use std::fmt::Write;

/// Formats a number with thousands separators and without decimal places.
pub fn group_digits(value: f64) -> String {
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

/// Formats a number with thousands separators; with two decimal places if it is below 10 and not
/// whole.
pub fn format_figure(value: f64) -> String {
    if value.abs() < 10.0 && value.fract() != 0.0 {
        return format!("{value:.2}");
    }
    group_digits(value)
}

/// Widths of the columns of a table, in characters.
#[derive(Clone, Copy, Debug)]
pub struct ColumnWidths {
    /// Width of the first column, which is aligned left.
    pub name: usize,
    /// Width of the other columns, which are aligned right.
    pub cell: usize,
}

impl ColumnWidths {
    /// Formats one line, without spaces at its end.
    pub fn format_row<S: AsRef<str>>(self, name: &str, cells: &[S]) -> String {
        let mut line = format!("{name:<width$}", width = self.name);
        for cell in cells {
            // Writing to a String cannot fail.
            let _ = write!(line, " {:>width$}", cell.as_ref(), width = self.cell);
        }
        line.truncate(line.trim_end().len());
        line
    }
}

/// Appends a Markdown table after an empty line. Each row is its name and one cell per column.
pub fn push_markdown_table<N, C>(
    text: &mut String,
    title: &str,
    columns: &[N],
    rows: impl IntoIterator<Item = (String, Vec<C>)>,
) where
    N: AsRef<str>,
    C: AsRef<str>,
{
    let line = |name: &str, cells: &[String]| match name {
        "" => format!("| | {} |\n", cells.join(" | ")),
        name => format!("| {name} | {} |\n", cells.join(" | ")),
    };
    let columns: Vec<String> = columns.iter().map(|it| it.as_ref().to_owned()).collect();
    text.push('\n');
    text.push_str(&line(title, &columns));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "|---{}|", "|---".repeat(columns.len()));
    for (name, cells) in rows {
        let cells: Vec<String> = cells.iter().map(|it| it.as_ref().to_owned()).collect();
        text.push_str(&line(&name, &cells));
    }
}

#[cfg(test)]
mod tests {
    use super::{ColumnWidths, format_figure, group_digits, push_markdown_table};

    #[test]
    fn large_numbers_have_commas_and_small_ones_a_point() {
        for (value, shown) in [
            (0.0, "0"),
            (1.234, "1.23"),
            (12.34, "12"),
            (999.0, "999"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(format_figure(value), shown);
        }
        assert_eq!(group_digits(1.234), "1");
    }

    #[test]
    fn a_row_is_aligned_and_has_no_spaces_at_its_end() {
        let widths = ColumnWidths { name: 6, cell: 4 };
        assert_eq!(widths.format_row("a", &["1", "23", ""]), "a         1   23");
    }

    #[test]
    fn a_markdown_table_has_a_head_and_a_line_per_row() {
        let mut text = String::new();
        push_markdown_table(
            &mut text,
            "",
            &["a", "b"],
            [("x".to_owned(), vec!["1", "2"])],
        );
        assert_eq!(text, "\n| | a | b |\n|---|---|---|\n| x | 1 | 2 |\n");
    }
}
