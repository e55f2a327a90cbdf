//! Fuzzing, for a short while each time: the targets in fuzz/ must survive whatever bytes they get.
//!
//! No sanitizer is asked for, because sanitizers need a nightly compiler and the code under test
//! has no `unsafe`.

use std::fs;

use anyhow::{Context, Result, ensure};

use crate::command::{ToolCommand, probe};
use crate::run::{Length, XtaskRun};
use crate::tools::{CARGO_FUZZ, CXX, Tool};

pub(crate) static TOOLS: &[&Tool] = &[&CXX, &CARGO_FUZZ];

const RSS_LIMIT_MB: u32 = 2_048;
const INPUT_BYTES_MAX: u32 = 65_536;

pub(crate) fn seconds_for(run: &XtaskRun) -> u32 {
    match run.length {
        Length::Short => 15,
        Length::Long => 300,
    }
}

pub(crate) fn all_targets(run: &XtaskRun, seconds: u32) -> Result<()> {
    // cargo-fuzz takes no `--locked`, and would change a stale lock file without a word.
    const FETCH: [&str; 4] = ["fetch", "--locked", "--manifest-path", "fuzz/Cargo.toml"];
    ToolCommand::new(run, "cargo", FETCH).quiet()?;
    ToolCommand::new(run, "cargo", ["fuzz", "build", "--sanitizer", "none"]).quiet()?;
    let targets = probe(&run.root, "cargo", &["fuzz", "list"]).unwrap_or_default();
    ensure!(
        !targets.is_empty(),
        "`cargo fuzz list` names no target: add one under fuzz/fuzz_targets and a [[bin]] for it in fuzz/Cargo.toml"
    );
    for target in targets.lines() {
        one_target(run, target, seconds)?;
    }
    Ok(())
}

fn one_target(run: &XtaskRun, target: &str, seconds: u32) -> Result<()> {
    let corpus = format!("fuzz/corpus/{target}");
    fs::create_dir_all(run.root.join(&corpus))
        .with_context(|| format!("cannot make the folder {corpus}"))?;
    let seeds = format!("fuzz/seeds/{target}");
    // libFuzzer writes what it finds to the first folder, and only reads the second.
    let mut folders = vec![corpus];
    if run.root.join(&seeds).is_dir() {
        folders.push(seeds);
    }
    let printed =
        ToolCommand::new(run, "cargo", command_line(target, &folders, seconds)).quiet()?;
    let inputs = inputs_tried(&printed).with_context(|| {
        format!("{target} ended without saying how many inputs it tried: run it with --verbose")
    })?;
    ensure!(
        inputs > 0,
        "{target} tried no input at all: see why with --verbose"
    );
    eprintln!("  {target}: {inputs} inputs in {seconds} s");
    Ok(())
}

fn command_line(target: &str, folders: &[String], seconds: u32) -> Vec<String> {
    let mut args: Vec<String> = ["fuzz", "run", "--sanitizer", "none", target]
        .map(str::to_owned)
        .to_vec();
    args.extend_from_slice(folders);
    args.extend([
        "--".to_owned(),
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={RSS_LIMIT_MB}"),
        format!("-max_len={INPUT_BYTES_MAX}"),
    ]);
    args
}

/// Reads libFuzzer's last line, `Done 123 runs in 16 second(s)`.
fn inputs_tried(printed: &str) -> Option<u64> {
    printed
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("Done "))
        .and_then(|rest| rest.split(' ').next())
        .and_then(|count| count.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::{command_line, inputs_tried};

    #[test]
    fn the_scratch_corpus_comes_before_the_seeds() {
        let folders = [
            "fuzz/corpus/decode".to_owned(),
            "fuzz/seeds/decode".to_owned(),
        ];
        assert_eq!(
            command_line("decode", &folders, 15).join(" "),
            "fuzz run --sanitizer none decode fuzz/corpus/decode fuzz/seeds/decode \
             -- -max_total_time=15 -rss_limit_mb=2048 -max_len=65536"
        );
    }

    #[test]
    fn the_number_of_inputs_is_read_from_the_last_line() {
        assert_eq!(
            inputs_tried("INFO: x\nDone 42 runs in 3 second(s)\n"),
            Some(42)
        );
        assert_eq!(inputs_tried("SUMMARY: libFuzzer: deadly signal\n"), None);
    }
}
