//! The model in spec/: that it is well formed, that its own tests pass, that random walks keep its
//! invariant, and that the code does what the model does.

use std::fs;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::command::ToolCommand;
use crate::run::{Length, XtaskRun};
use crate::tools::{self, NODE, NPM, Tool};

pub(crate) static TOOLS: &[&Tool] = &[&NODE, &NPM];

/// Where the model is, with the tools that npm installs for it.
pub(crate) const FOLDER: &str = "spec";

/// A `quint` command; `walks` says how many random walks it takes, where it takes any.
struct Quint {
    args: &'static [&'static str],
    walks: Option<u32>,
}

/// The TypeScript backend is the one that npm installs whole; the other fetches a program at run
/// time.
const QUINT: &[Quint] = &[
    Quint {
        args: &["typecheck", "journal.qnt"],
        walks: None,
    },
    Quint {
        args: &["test", "--backend=typescript", "journal.qnt"],
        walks: None,
    },
    Quint {
        args: &[
            "run",
            "--backend=typescript",
            "--max-steps=30",
            "--invariant=inv",
            "journal.qnt",
        ],
        walks: Some(2_000),
    },
    Quint {
        args: &[
            "run",
            "--backend=typescript",
            "--max-steps=30",
            "--step=probe",
            "--invariant=inv",
            "journal.qnt",
        ],
        walks: Some(1_000),
    },
];

/// The walks that are replayed through the code: illegal events are tried too.
const WALKS: Quint = Quint {
    args: &[
        "run",
        "--backend=typescript",
        "--max-steps=40",
        "--init=initTraces",
        "--step=probe",
        "journal.qnt",
    ],
    walks: Some(200),
};

/// The scripts that the code wrote, with its decisions beside each event.
const SCRIPTS: Quint = Quint {
    args: &["test", "--backend=typescript", "--main=traffic"],
    walks: None,
};

pub(crate) fn check(run: &XtaskRun) -> Result<()> {
    tools::ensure_node_modules(run, FOLDER)?;
    let search = Search::new(run.length);
    for quint in QUINT {
        quint.perform(run, &search, &[])?;
    }
    traffic(run, &search)
}

/// How far to search and from where.
struct Search {
    times: u32,
    seed: u64,
}

impl Search {
    /// The same walks every time, so that a check is repeatable; a long search goes further, and
    /// elsewhere each time. Its seed is in the command lines it prints.
    fn new(length: Length) -> Self {
        let now = || {
            SystemTime::UNIX_EPOCH
                .elapsed()
                .map_or(0, |since| since.as_secs())
        };
        match length {
            Length::Short => Self { times: 1, seed: 1 },
            Length::Long => Self {
                times: 10,
                seed: now(),
            },
        }
    }
}

impl Quint {
    fn command_line(&self, search: &Search, more: &[String]) -> Vec<String> {
        let mut line: Vec<String> = ["--no-install", "quint"]
            .iter()
            .chain(self.args)
            .map(ToString::to_string)
            .collect();
        if let Some(walks) = self.walks {
            line.extend([
                format!("--max-samples={}", walks * search.times),
                format!("--seed={}", search.seed),
            ]);
        }
        line.extend_from_slice(more);
        line
    }

    fn perform(&self, run: &XtaskRun, search: &Search, more: &[String]) -> Result<()> {
        let call = ToolCommand::new(run, "npx", self.command_line(search, more)).in_folder(FOLDER);
        eprintln!("  {call}");
        call.quiet()?;
        Ok(())
    }
}

/// The traffic between model and code, both ways, through a scratch folder.
fn traffic(run: &XtaskRun, search: &Search) -> Result<()> {
    let folder = run.root.join("target/traffic");
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .with_context(|| format!("cannot empty {}", folder.display()))?;
    }
    fs::create_dir_all(folder.join("itf"))
        .with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.display().to_string();
    let traces = WALKS.walks.unwrap_or(1) * search.times;
    WALKS.perform(
        run,
        search,
        &[
            format!("--n-traces={traces}"),
            format!("--out-itf={folder}/itf/{{seq}}.json"),
        ],
    )?;
    const REPLAY: &str = "test --workspace --locked --test journal model:: -- --nocapture";
    ToolCommand::new(run, "cargo", REPLAY.split(' '))
        .with_environment("ONWARD_TRAFFIC_DIR", &folder)
        .with_environment("ONWARD_SEED", &search.seed.to_string())
        .quiet()?;
    SCRIPTS.perform(run, search, &[format!("{folder}/traffic.qnt")])
}

#[cfg(test)]
mod tests {
    use super::{QUINT, Search};
    use crate::run::Length;

    #[test]
    fn a_short_search_is_the_same_every_time_and_a_long_one_goes_further() {
        let walk = QUINT
            .iter()
            .find(|quint| quint.walks == Some(2_000))
            .unwrap();
        let short = walk
            .command_line(&Search::new(Length::Short), &[])
            .join(" ");
        assert!(short.starts_with("--no-install quint run --backend=typescript "));
        assert!(short.ends_with(" --max-samples=2000 --seed=1"));
        let long = walk
            .command_line(
                &Search {
                    seed: 7,
                    ..Search::new(Length::Long)
                },
                &["--x".to_owned()],
            )
            .join(" ");
        assert!(long.ends_with(" --max-samples=20000 --seed=7 --x"));
    }
}
