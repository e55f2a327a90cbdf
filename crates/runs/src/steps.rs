//! The steps of a run: a list in the order of their first appearance that finds a step by its id and knows how many of
//! them run, so that taking in an event costs the same however many steps there are.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{AttemptNumber, StepId, StepSnapshot, StepStatus};

/// The steps of a run. In JSON it is a list.
#[derive(Clone, Default)]
pub struct RunSteps {
    list: Vec<Arc<StepSnapshot>>,
    positions: Arc<BTreeMap<StepId, usize>>,
    tally: StepTally,
}

/// How many steps there are of what matters to the run.
#[derive(Clone, Copy, Default)]
struct StepTally {
    running: usize,
    retrying: usize,
    failed: usize,
}

impl RunSteps {
    /// The step with this id.
    pub fn find_step(&self, step_id: &str) -> Option<&StepSnapshot> {
        self.position_of(step_id).map(|place| &*self.list[place])
    }

    /// How many are running.
    pub const fn running_count(&self) -> usize {
        self.tally.running
    }

    /// How many are running after a logical attempt of theirs failed.
    pub const fn retrying_count(&self) -> usize {
        self.tally.retrying
    }

    /// How many are failed.
    pub const fn failed_count(&self) -> usize {
        self.tally.failed
    }

    pub(crate) fn position_of(&self, step_id: &str) -> Option<usize> {
        self.positions.get(step_id).copied()
    }

    pub(crate) fn push_step(&mut self, step: Arc<StepSnapshot>) {
        Arc::make_mut(&mut self.positions).insert(step.step_id.clone(), self.list.len());
        self.tally.add_step(&step);
        self.list.push(step);
    }

    /// Changes the step at `place`, but for its id.
    pub(crate) fn update_step(&mut self, place: usize, change: impl FnOnce(&mut StepSnapshot)) {
        let step = Arc::make_mut(&mut self.list[place]);
        self.tally.remove_step(step);
        change(step);
        self.tally.add_step(step);
    }
}

impl StepTally {
    const fn add_step(&mut self, step: &StepSnapshot) {
        let [running, retrying, failed] = Self::step_counts(step);
        self.running += running;
        self.retrying += retrying;
        self.failed += failed;
    }

    const fn remove_step(&mut self, step: &StepSnapshot) {
        let [running, retrying, failed] = Self::step_counts(step);
        self.running -= running;
        self.retrying -= retrying;
        self.failed -= failed;
    }

    const fn step_counts(step: &StepSnapshot) -> [usize; 3] {
        match step.latest.status {
            StepStatus::Running
                if step.latest.logical_attempt_id.as_u32() > AttemptNumber::FIRST.as_u32() =>
            {
                [1, 1, 0]
            }
            StepStatus::Running => [1, 0, 0],
            StepStatus::Failed => [0, 0, 1],
            StepStatus::Pending | StepStatus::Success | StepStatus::Skipped => [0, 0, 0],
        }
    }
}

impl Deref for RunSteps {
    type Target = [Arc<StepSnapshot>];

    fn deref(&self) -> &[Arc<StepSnapshot>] {
        &self.list
    }
}

/// All else follows from the list.
impl PartialEq for RunSteps {
    fn eq(&self, other: &Self) -> bool {
        self.list == other.list
    }
}

impl Eq for RunSteps {}

impl fmt::Debug for RunSteps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl Serialize for RunSteps {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.list.iter().map(|step| &**step))
    }
}

impl<'de> Deserialize<'de> for RunSteps {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut steps = Self::default();
        for step in Vec::<StepSnapshot>::deserialize(deserializer)? {
            if steps.position_of(&step.step_id).is_some() {
                return Err(de::Error::custom(format!(
                    "step {:?} is there twice",
                    step.step_id
                )));
            }
            steps.push_step(Arc::new(step));
        }
        Ok(steps)
    }
}
