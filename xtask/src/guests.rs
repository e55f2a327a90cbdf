//! Builds the components of examples/workflows. They are committed with their digests, so that the
//! demo and the tests run without a wasm target.

mod stage;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow, ensure};
use sha2::{Digest, Sha256};
use wit_component::ComponentEncoder;

use crate::command::{ToolCommand, probe};
use crate::run::XtaskRun;

const TARGET: &str = "wasm32-unknown-unknown";
const GUESTS: [&str; 4] = ["bench", "journals", "orders", "remote"];
const BUILT: &str = "examples/workflows/built";
const DIGESTS: &str = "examples/workflows/built/digests.txt";
/// Separate from the target folder of the workspace, so that neither build blocks the other.
const TARGET_FOLDER: &str = "target/guests";

/// Whether to write or to verify the committed components.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Replaces the committed components.
    Write,
    /// Compares the built components with the committed ones.
    Check,
}

/// A component that was built from its sources.
struct BuiltComponent {
    name: &'static str,
    bytes: Vec<u8>,
}

/// Checks the Rust SDK and the example workflows: format, lints, tests and committed components.
pub(crate) fn verify(run: &XtaskRun) -> Result<()> {
    for workspace in ["sdk/rust", "examples/workflows"] {
        let cargo = |args: &[&str]| {
            ToolCommand::new(run, "cargo", args.iter().copied())
                .in_folder(workspace)
                .quiet()
        };
        cargo(&["fmt", "--all", "--check"])?;
        cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--all-features",
            "--locked",
            "--",
            "-D",
            "warnings",
        ])?;
        cargo(&["test", "--workspace", "--locked"])?;
    }
    // The tests above run without the feature `schema`, like most components.
    ToolCommand::new(
        run,
        "cargo",
        [
            "test",
            "--locked",
            "--features",
            "schema",
            "--test",
            "schema",
        ],
    )
    .in_folder("sdk/rust")
    .quiet()?;
    guests(run, Mode::Check)
}

pub(crate) fn guests(run: &XtaskRun, mode: Mode) -> Result<()> {
    let compiler =
        compiler(&probe(&run.root, "rustc", &["-vV"]).context("cannot run `rustc -vV`")?);
    if !has_target(run) {
        eprintln!(
            "  {TARGET} is not installed (`rustup target add {TARGET}`): checking the committed digests only"
        );
        return check_digests(run);
    }
    if mode == Mode::Check && !committed(run)?.starts_with(&heading(&compiler)) {
        eprintln!(
            "  the committed components were built with another compiler version: checking their digests only"
        );
        return check_digests(run);
    }
    let built = build(run)?;
    match mode {
        Mode::Write => write(run, &compiler, &built),
        Mode::Check => compare(run, &built),
    }
}

/// Identifies the compiler, because builds are reproducible only with the same one.
fn compiler(printed: &str) -> String {
    let version = printed.lines().next().unwrap_or_default();
    let host = printed
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .unwrap_or_default();
    format!("{version} on {host}")
}

fn has_target(run: &XtaskRun) -> bool {
    probe(
        &run.root,
        "rustc",
        &["--print", "target-libdir", "--target", TARGET],
    )
    .is_some_and(|folder| Path::new(&folder).is_dir())
}

fn build(run: &XtaskRun) -> Result<Vec<BuiltComponent>> {
    const ARGS: [&str; 7] = [
        "build",
        "--release",
        "--locked",
        "--target",
        TARGET,
        "--target-dir",
        "..",
    ];
    stage::copy_sources(run)?;
    let flags = stage::flags(run)?;
    ToolCommand::new(run, "cargo", ARGS)
        .in_folder(stage::FOLDER)
        .with_environment("CARGO_ENCODED_RUSTFLAGS", &flags)
        .quiet()?;
    GUESTS
        .into_iter()
        .map(|name| component(run, name))
        .collect()
}

fn component(run: &XtaskRun, name: &'static str) -> Result<BuiltComponent> {
    let path = format!("{TARGET_FOLDER}/{TARGET}/release/{name}.wasm");
    let module = fs::read(run.root.join(&path)).with_context(|| format!("cannot read {path}"))?;
    let bytes = encode(&module).with_context(|| format!("cannot convert {path} to a component"))?;
    Ok(BuiltComponent { name, bytes })
}

fn encode(module: &[u8]) -> Result<Vec<u8>> {
    ComponentEncoder::default()
        .validate(true)
        .module(module)?
        .encode()
}

fn write(run: &XtaskRun, compiler: &str, guests: &[BuiltComponent]) -> Result<()> {
    fs::create_dir_all(run.root.join(BUILT))
        .with_context(|| format!("cannot create the folder {BUILT}"))?;
    let mut digests = heading(compiler);
    for guest in guests {
        let path = path_of(guest.name);
        fs::write(run.root.join(&path), &guest.bytes)
            .with_context(|| format!("cannot write {path}"))?;
        eprintln!("  {path}: {} bytes", guest.bytes.len());
        digests.push_str(&line(guest.name, &guest.bytes));
    }
    fs::write(run.root.join(DIGESTS), digests).with_context(|| format!("cannot write {DIGESTS}"))
}

fn compare(run: &XtaskRun, guests: &[BuiltComponent]) -> Result<()> {
    check_digests(run)?;
    for guest in guests {
        let path = path_of(guest.name);
        ensure!(
            read(run, &path)? == guest.bytes,
            "{path} differs from its sources: run `cargo xtask guests` and commit the result"
        );
    }
    eprintln!("  {} components match their sources", guests.len());
    Ok(())
}

/// Checks each committed component against its committed digest.
fn check_digests(run: &XtaskRun) -> Result<()> {
    let committed = committed(run)?;
    for name in GUESTS {
        let path = path_of(name);
        let line = line(name, &read(run, &path)?);
        ensure!(
            committed.lines().any(|known| known == line.trim_end()),
            "the digest of {path} differs from {DIGESTS}: restore both files, or run `cargo xtask guests`"
        );
    }
    Ok(())
}

fn committed(run: &XtaskRun) -> Result<String> {
    String::from_utf8(read(run, DIGESTS)?).map_err(|_| anyhow!("{DIGESTS} is not UTF-8 text"))
}

fn read(run: &XtaskRun, path: &str) -> Result<Vec<u8>> {
    fs::read(run.root.join(path))
        .with_context(|| format!("cannot read {path}: run `cargo xtask guests`"))
}

fn path_of(name: &str) -> String {
    format!("{BUILT}/{name}.wasm")
}

/// The first line of the digests: the compiler that built the components.
fn heading(compiler: &str) -> String {
    format!("# {compiler}\n")
}

/// A line in the format of `sha256sum`.
fn line(name: &str, bytes: &[u8]) -> String {
    let mut line = String::new();
    for byte in Sha256::digest(bytes) {
        // Writing to a String cannot fail.
        let _ = write!(line, "{byte:02x}");
    }
    line + "  " + name + ".wasm\n"
}

#[cfg(test)]
mod tests {
    use super::{compiler, encode, line};

    #[test]
    fn a_digest_line_has_the_format_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  echo.wasm\n";
        assert_eq!(line("echo", b""), empty);
    }

    #[test]
    fn a_compiler_is_identified_by_version_and_host() {
        let printed =
            "rustc 1.95.0 (59807616e 2026-04-14)\nbinary: rustc\nhost: x86_64-unknown-linux-gnu\n";
        assert_eq!(
            compiler(printed),
            "rustc 1.95.0 (59807616e 2026-04-14) on x86_64-unknown-linux-gnu"
        );
    }

    #[test]
    fn an_invalid_module_is_rejected() {
        assert!(encode(b"not wasm").is_err());
    }
}
