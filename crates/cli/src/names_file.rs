//! Reads lists of names from a file, one per line, for commands that take many.

use std::io::{self, BufRead as _};
use std::path::Path;

use anyhow::Context as _;

/// Returns the lines of a file that are not blank; `-` is standard input. Fails if there are none.
pub(crate) fn read_names_file(file: &Path) -> anyhow::Result<Vec<String>> {
    let lines: Vec<String> = match file == Path::new("-") {
        true => io::stdin().lock().lines().collect::<Result<_, _>>()?,
        false => std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}", file.display()))?
            .lines()
            .map(str::to_owned)
            .collect(),
    };
    // Some editors write a byte order mark at the start of a file.
    let trimmed = |line: &String| line.trim_start_matches('\u{feff}').trim().to_owned();
    let names: Vec<String> = lines
        .iter()
        .map(trimmed)
        .filter(|line| !line.is_empty())
        .collect();
    anyhow::ensure!(
        !names.is_empty(),
        "{} is empty: expected one entry per line",
        file.display()
    );
    Ok(names)
}
