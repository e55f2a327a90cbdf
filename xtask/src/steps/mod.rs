//! The table of checks, and the runner that performs them and stops after the first failure.
//!
//! Steps of the side lane need one core and no build of the workspace. They run beside the steps of
//! the main lane, which keep the other core busy.

mod cargo;
pub(crate) mod fuzz;
pub(crate) mod model;
pub(crate) mod mutants;
mod report;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, bail};

use crate::clock::Stopwatch;
use crate::guests;
use crate::run::{Length, XtaskRun};
use crate::steps::report::{Timing, seconds};
use crate::tidy;
use crate::tools::{
    self, CARGO_DENY, CARGO_NEXTEST, CLIPPY, FAKETIME, GIT, NODE, NPM, POSTGRES, PYTHON, RUSTFMT,
    Tool, VENV,
};

/// One row of the table.
struct Step {
    name: &'static str,
    purpose: &'static str,
    lane: Lane,
    tools: &'static [&'static Tool],
    run: fn(&XtaskRun) -> Result<()>,
}

/// Which steps run at the same time: one of each lane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lane {
    /// Before all others.
    First,
    /// Builds the workspace or runs its tests.
    Main,
    /// Uses one core.
    Side,
    /// After all others: measures, so that nothing may run beside it.
    Last,
}

/// What is printed about time at the end.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimingDetail {
    Steps,
    /// The steps and the slowest tests.
    Tests,
}

/// The report of nextest about every test; its configuration names the file.
const JUNIT: &str = "target/nextest/default/junit.xml";
const SLOWEST_TESTS: usize = 40;

static STEPS: &[Step] = &[
    Step {
        name: "tools",
        purpose: "install the programs the other steps need",
        lane: Lane::First,
        tools: &[],
        run: install_everything,
    },
    Step {
        name: "fmt",
        purpose: "the code is formatted",
        lane: Lane::Main,
        tools: &[&RUSTFMT],
        run: cargo::fmt,
    },
    Step {
        name: "tidy",
        purpose: "the rules of ARCHITECTURE.md hold",
        lane: Lane::Main,
        tools: &[&GIT],
        run: tidy::check_rules,
    },
    Step {
        name: "clippy",
        purpose: "no lint warns",
        lane: Lane::Main,
        tools: &[&CLIPPY],
        run: cargo::clippy,
    },
    Step {
        name: "build",
        purpose: "the workspace builds, once for all tests",
        lane: Lane::Main,
        tools: &[],
        run: cargo::build,
    },
    Step {
        name: "test",
        purpose: "unit, property, integration, crash and documentation tests pass",
        lane: Lane::Main,
        tools: &[
            &CARGO_NEXTEST,
            &POSTGRES,
            &FAKETIME,
            &NODE,
            &NPM,
            &PYTHON,
            &VENV,
        ],
        run: cargo::test,
    },
    Step {
        name: "guests",
        purpose: "the SDK's tests pass, and the example components are what their sources give",
        lane: Lane::Side,
        tools: &[&RUSTFMT, &CLIPPY],
        run: guests::verify,
    },
    Step {
        name: "model",
        purpose: "the model in spec/ holds its invariants and agrees with the code",
        lane: Lane::Side,
        tools: model::TOOLS,
        run: model::check,
    },
    Step {
        name: "docs",
        purpose: "the documentation builds without a warning",
        lane: Lane::Main,
        tools: &[],
        run: cargo::docs,
    },
    Step {
        name: "deny",
        purpose: "dependencies come from where they may, under licences we accept",
        lane: Lane::Side,
        tools: &[&CARGO_DENY],
        run: cargo::deny,
    },
    Step {
        name: "fuzz",
        purpose: "no input makes a parser panic",
        lane: Lane::Side,
        tools: fuzz::TOOLS,
        run: |run| fuzz::all_targets(run, fuzz::seconds_for(run)),
    },
    Step {
        name: "bench",
        purpose: "the benchmarks run, and nothing is several times slower than it should be",
        lane: Lane::Last,
        tools: &[&POSTGRES],
        run: cargo::bench,
    },
];

fn install_everything(run: &XtaskRun) -> Result<()> {
    let all: Vec<&Tool> = STEPS.iter().flat_map(|step| step.tools).copied().collect();
    tools::ensure(run, &all)?;
    tools::ensure_schemathesis(run)?;
    tools::ensure_aiosmtpd(run)?;
    tools::ensure_node_modules(run, model::FOLDER)
}

/// The steps and what each is for, one a line.
pub(crate) fn list() -> String {
    let line = |step: &Step| format!("{:<8} {}\n", step.name, step.purpose);
    STEPS.iter().map(line).collect()
}

/// Runs the steps named in `only`, or all of them.
pub(crate) fn test(run: &XtaskRun, only: &[String], detail: TimingDetail) -> Result<()> {
    let total = Stopwatch::start();
    let steps = selected(only)?;
    let timings = perform_lanes(run, &steps)?;
    if detail == TimingDetail::Tests && steps.iter().any(|step| step.name == "test") {
        let report = fs::read_to_string(run.root.join(JUNIT))
            .with_context(|| format!("cannot read {JUNIT}"))?;
        eprint!("\n{}", report::slowest_tests(&report, SLOWEST_TESTS));
    }
    eprint!("\n{}", report::table(&timings, total.elapsed()));
    Ok(())
}

fn perform_lanes(run: &XtaskRun, steps: &[&'static Step]) -> Result<Vec<Timing>> {
    let has_failed = AtomicBool::new(false);
    let perform_lane = |lane: Lane| -> Result<Vec<Timing>> {
        let mut timings = Vec::new();
        for step in steps.iter().filter(|step| step.lane == lane) {
            if has_failed.load(Ordering::Relaxed) {
                break;
            }
            let performed =
                perform(run, step).inspect_err(|_| has_failed.store(true, Ordering::Relaxed));
            timings.push(performed?);
        }
        Ok(timings)
    };
    let mut timings = perform_lane(Lane::First)?;
    let (side, main) = thread::scope(|scope| {
        let side = scope.spawn(|| perform_lane(Lane::Side));
        let main = perform_lane(Lane::Main);
        (side.join(), main)
    });
    let side = side.map_err(|_| anyhow!("the thread of the side lane panicked"))?;
    timings.extend(main?);
    timings.extend(side?);
    timings.extend(perform_lane(Lane::Last)?);
    Ok(timings)
}

fn selected(only: &[String]) -> Result<Vec<&'static Step>> {
    for name in only {
        if !STEPS.iter().any(|step| step.name == name) {
            let names: Vec<&str> = STEPS.iter().map(|step| step.name).collect();
            bail!("no step is called {name}: choose from {}", names.join(", "));
        }
    }
    let wanted = |step: &&Step| only.is_empty() || only.iter().any(|name| name == step.name);
    Ok(STEPS.iter().filter(wanted).collect())
}

fn perform(run: &XtaskRun, step: &Step) -> Result<Timing> {
    eprintln!("\n== {}: {}", step.name, step.purpose);
    let watch = Stopwatch::start();
    tools::ensure(run, step.tools)
        .and_then(|()| (step.run)(run))
        .map_err(|error| {
            anyhow!(
                "step {} failed after {}: {error:#}\nrun just this step with `{}`",
                step.name,
                seconds(watch.elapsed()),
                repeat_line(run, step)
            )
        })?;
    let took = watch.elapsed();
    eprintln!("== {} passed in {}", step.name, seconds(took));
    Ok(Timing {
        name: step.name,
        took,
    })
}

fn repeat_line(run: &XtaskRun, step: &Step) -> String {
    let long = match run.length {
        Length::Short => "",
        Length::Long => " --long",
    };
    format!("cargo xtask test{long} --only {}", step.name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use anyhow::bail;

    use super::{Lane, STEPS, Step, perform, perform_lanes, selected};
    use crate::run::{Length, Output, XtaskRun};

    fn here(length: Length) -> XtaskRun {
        XtaskRun {
            root: PathBuf::from(env!("CARGO_MANIFEST_DIR")),
            length,
            output: Output::OnFailure,
        }
    }

    #[test]
    fn step_names_are_unique() {
        let names: BTreeSet<&str> = STEPS.iter().map(|step| step.name).collect();
        assert_eq!(names.len(), STEPS.len());
    }

    #[test]
    fn chosen_steps_keep_the_order_of_the_table() {
        let chosen = selected(&["deny".to_owned(), "fmt".to_owned()]).unwrap();
        let names: Vec<&str> = chosen.iter().map(|step| step.name).collect();
        assert_eq!(names, ["fmt", "deny"]);
    }

    #[test]
    fn an_unknown_step_is_answered_with_the_known_ones() {
        let error = selected(&["fuz".to_owned()]).err().unwrap().to_string();
        assert!(error.starts_with("no step is called fuz: choose from tools, fmt, "));
    }

    #[test]
    fn a_failed_step_is_the_last_of_its_lane_and_nothing_is_measured_after_it() {
        static FAILING: Step = Step {
            name: "failing",
            purpose: "fail",
            lane: Lane::Side,
            tools: &[],
            run: |_| bail!("`false` failed"),
        };
        static LATER: Step = Step {
            name: "later",
            purpose: "never run",
            lane: Lane::Last,
            tools: &[],
            run: |_| panic!("a step ran after a failure"),
        };
        let error = perform_lanes(&here(Length::Short), &[&FAILING, &LATER]).err();
        assert!(error.unwrap().to_string().starts_with("step failing"));
    }

    #[test]
    fn a_failing_step_says_how_to_run_only_itself() {
        let step = Step {
            name: "broken",
            purpose: "fail",
            lane: Lane::Main,
            tools: &[],
            run: |_| bail!("`false` failed"),
        };
        let error = perform(&here(Length::Long), &step).err().unwrap();
        let text = error.to_string();
        assert!(text.contains(" s: `false` failed\n"));
        assert!(text.ends_with("run just this step with `cargo xtask test --long --only broken`"));
    }
}
