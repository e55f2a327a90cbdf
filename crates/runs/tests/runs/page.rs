//! Keeps the tables of `spec/runs.md` in step with the code.

use std::fs;

use onward_runs::{
    AttemptRelation, RunAction, RunEventKind, RunStatus, RunTransitionState, StepAction,
    StepStatus, run_allows_step, run_transition, step_transition,
};

/// The page holds these very rows.
fn assert_on_page(rows: &[String]) {
    let page =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec/runs.md")).unwrap();
    let table = rows.concat();
    assert!(page.contains(&table), "spec/runs.md should hold\n{table}");
}

fn row(cells: impl IntoIterator<Item = String>) -> String {
    let cells: Vec<String> = cells.into_iter().collect();
    format!("| {} |\n", cells.join(" | "))
}

fn head(statuses: impl Iterator<Item = &'static str>) -> String {
    let cells: Vec<String> = [""]
        .into_iter()
        .chain(statuses)
        .map(str::to_owned)
        .collect();
    let line = "|---".repeat(cells.len());
    format!("{}{line}|\n", row(cells))
}

fn known<T>(select: impl Fn(RunEventKind) -> Option<T>) -> impl Iterator<Item = (&'static str, T)> {
    RunEventKind::KNOWN
        .iter()
        .filter_map(move |(name, kind)| select(*kind).map(|act| (*name, act)))
}

fn run_cell(status: RunStatus, act: RunAction) -> String {
    let next = |cancelling, busy| {
        run_transition(
            RunTransitionState {
                status,
                is_cancelling: cancelling,
                has_running_step: busy,
            },
            act,
        )
    };
    let word = |next: Option<RunStatus>| match next {
        None => "–".to_owned(),
        Some(next) if next == status => "stays".to_owned(),
        Some(next) => next.to_string(),
    };
    let note = match [
        next(false, false),
        next(true, false),
        next(false, true),
        next(true, true),
    ] {
        [free, cancelling, busy, both] if cancelling == free && busy == free && both == free => "",
        [free, None, busy, None] if busy == free => ", unless being cancelled",
        [free, cancelling, None, None] if cancelling == free => ", unless a step is running",
        other => panic!("unexpected pattern {other:?}"),
    };
    word(next(false, false)) + note
}

#[test]
fn the_table_of_runs_matches_the_code() {
    let mut rows = vec![head(RunStatus::ALL.iter().map(|status| status.as_str()))];
    for (name, act) in known(|kind| {
        if let RunEventKind::Run(act) = kind {
            Some(act)
        } else {
            None
        }
    }) {
        let cells = RunStatus::ALL.iter().map(|status| run_cell(*status, act));
        rows.push(row([format!("`{name}`")].into_iter().chain(cells)));
    }
    for (name, act) in known(|kind| {
        if let RunEventKind::Step(act) = kind {
            Some(act)
        } else {
            None
        }
    }) {
        let allowed = |status: &RunStatus| {
            if run_allows_step(*status, act) {
                "see below"
            } else {
                "–"
            }
        };
        let cells = RunStatus::ALL
            .iter()
            .map(|status| allowed(status).to_owned());
        rows.push(row([format!("`{name}`")].into_iter().chain(cells)));
    }
    assert_on_page(&rows);
}

const fn describe_relation(attempt: AttemptRelation) -> &'static str {
    match attempt {
        AttemptRelation::Same => "the same attempt",
        AttemptRelation::EngineRetry => "the same attempt, tried again by the platform",
        AttemptRelation::NextLogical => "the next attempt",
        AttemptRelation::OutOfOrder => "any other attempt",
    }
}

fn step_cell(status: StepStatus, act: StepAction, attempt: AttemptRelation) -> String {
    step_transition(status, act, attempt).map_or_else(|| "–".to_owned(), |next| next.to_string())
}

#[test]
fn the_table_of_steps_matches_the_code() {
    let mut rows = vec![head(StepStatus::ALL.iter().map(|status| status.as_str()))];
    for (name, act) in known(|kind| {
        if let RunEventKind::Step(act) = kind {
            Some(act)
        } else {
            None
        }
    }) {
        for attempt in AttemptRelation::ALL
            .into_iter()
            .filter(|attempt| *attempt != AttemptRelation::OutOfOrder)
        {
            let cells = StepStatus::ALL
                .iter()
                .map(|status| step_cell(*status, act, attempt));
            rows.push(row([format!("`{name}`, {}", describe_relation(attempt))]
                .into_iter()
                .chain(cells)));
        }
        assert!(
            StepStatus::ALL.iter().all(|status| step_transition(
                *status,
                act,
                AttemptRelation::OutOfOrder
            )
            .is_none())
        );
    }
    assert_on_page(&rows);
}
