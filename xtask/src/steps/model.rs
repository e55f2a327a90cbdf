//! The model in spec/: that it is well formed, that its own tests pass, that random walks keep its invariant, and
//! that the code does what the model does.

use anyhow::Result;

use crate::command::Call;
use crate::run::{Length, Run};
use crate::tools::{self, NODE, NPM, Tool};

pub(crate) static TOOLS: &[&Tool] = &[&NODE, &NPM];

/// A `quint` command; `samples` says how many random walks it takes, where it takes any.
struct Quint {
    args: &'static [&'static str],
    samples: Option<u32>,
}

/// The TypeScript backend is the one that npm installs whole; the other fetches a program at run time.
const QUINT: &[Quint] = &[
    Quint {
        args: &["typecheck", "journal.qnt"],
        samples: None,
    },
    Quint {
        args: &["test", "--backend=typescript", "journal.qnt"],
        samples: None,
    },
    Quint {
        args: &[
            "run",
            "--backend=typescript",
            "--max-steps=30",
            "--invariant=inv",
            "journal.qnt",
        ],
        samples: Some(2_000),
    },
];

pub(crate) fn check(run: &Run) -> Result<()> {
    tools::ensure_node_modules(run)?;
    for quint in QUINT {
        let call = Call::new(run, "npx", quint.command_line(run.length)).in_folder("spec");
        eprintln!("  {call}");
        call.quiet()?;
    }
    traffic(run)
}

impl Quint {
    fn command_line(&self, length: Length) -> Vec<String> {
        let times = match length {
            Length::Short => 1,
            Length::Long => 10,
        };
        let samples = self
            .samples
            .map(|samples| format!("--max-samples={}", samples * times));
        ["--no-install", "quint"]
            .iter()
            .chain(self.args)
            .map(|arg| (*arg).to_owned())
            .chain(samples)
            .collect()
    }
}

/// The traffic between model and code: the walks of the model, replayed against the journal.
fn traffic(run: &Run) -> Result<()> {
    if !run.root.join("crates/journal/tests/model.rs").exists() {
        eprintln!("  no crates/journal/tests/model.rs: the model is NOT compared with the code");
        return Ok(());
    }
    const ARGS: [&str; 8] = [
        "test",
        "-p",
        "onward-journal",
        "--locked",
        "--test",
        "model",
        "--",
        "--ignored",
    ];
    Call::new(run, "cargo", ARGS).shown()
}

#[cfg(test)]
mod tests {
    use super::QUINT;
    use crate::run::Length;

    #[test]
    fn a_long_run_takes_ten_times_the_samples() {
        let last = QUINT.last().unwrap();
        let short = last.command_line(Length::Short).join(" ");
        let long = last.command_line(Length::Long).join(" ");
        assert!(short.starts_with("--no-install quint run --backend=typescript "));
        assert!(short.ends_with(" --max-samples=2000"));
        assert!(long.ends_with(" --max-samples=20000"));
    }
}
