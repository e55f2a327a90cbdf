//! The steps of a run: a list in the order of first appearance, with an index by step id and
//! counters by status, so that the cost of reducing an event does not depend on the number of
//! steps.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{AttemptNumber, StepId, StepSnapshot, StepStatus};

/// The steps of a run with an index and counters. It serializes as a JSON list.
#[derive(Clone, Default)]
pub struct RunSteps {
    list: Vec<Arc<StepSnapshot>>,
    positions: Arc<BTreeMap<StepId, usize>>,
    tally: StepTally,
}

/// Number of steps in each of the statuses that matter to the run.
#[derive(Clone, Copy, Default)]
struct StepTally {
    running: usize,
    retrying: usize,
    failed: usize,
}

impl RunSteps {
    /// Returns the step with this id; `None` if no event named it yet.
    pub fn find_step(&self, step_id: &str) -> Option<&StepSnapshot> {
        self.position_of(step_id).map(|place| &*self.list[place])
    }

    /// Number of running steps.
    pub const fn running_count(&self) -> usize {
        self.tally.running
    }

    /// Number of steps that run again after one of their logical attempts failed.
    pub const fn retrying_count(&self) -> usize {
        self.tally.retrying
    }

    /// Number of failed steps.
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

    /// Changes the step at `place` and updates the counters; `change` must not change the step id.
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

/// Compares the lists only: the index and the counters follow from them.
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
                    "duplicate step {:?}",
                    step.step_id
                )));
            }
            steps.push_step(Arc::new(step));
        }
        Ok(steps)
    }
}
