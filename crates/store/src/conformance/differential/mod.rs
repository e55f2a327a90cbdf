//! Random sequences of operations that all subjects have to answer alike.
//!
//! What the suite states one by one, this asks in combinations that nobody thought of. A seed makes the sequence, so a
//! seed is all that a failure has to print; it is shrunk before it is shown.

mod case_coverage;
mod commit_generator;
mod operation;
mod operation_generator;
mod operation_player;
mod serial_normalizer;
mod shrink;

use std::fmt;

pub use case_coverage::CaseCoverage;
pub use operation::StoreOperation;
pub use operation_generator::generate_operations;
pub use operation_player::{OperationPlayer, StoreAnswer};

use self::shrink::shrink_operations;
use super::{MemoryStoreFactory, StoreDump, StoreFactory};
use crate::{Error, IdempotencyKeyCheck, StoreLimits, StorePolicy, tables};

/// What the stores accept: limits are so low that operations reach them.
pub const DIFFERENTIAL_POLICY: StorePolicy = StorePolicy {
    key_check: IdempotencyKeyCheck::Reject,
    accept_v1_keys: false,
    limits: StoreLimits {
        event_bytes_max: 120,
        record_bytes_max: 700,
        changes_max: 10,
        page_max: 6,
    },
};

/// Has all subjects answer the sequence that `seed` makes, and compares every answer and what is stored at the end.
///
/// Returns what happened how often, so that a test can insist that everything happens sometimes.
pub async fn run_differential(
    subjects: &[&dyn StoreFactory],
    seed: u64,
    length: usize,
) -> Result<CaseCoverage, Box<StoreDivergence>> {
    let operations = generate_operations(seed, length).await;
    let found = match compare_stores(subjects, &operations).await {
        Ok(sometimes) => return Ok(sometimes),
        Err(found) => found,
    };
    let (operations, found) = shrink_operations(subjects, operations, found).await;
    Err(Box::new(StoreDivergence {
        seed,
        length,
        operations,
        answers: found.answers,
    }))
}

/// A sequence that subjects answer differently.
#[derive(Debug, Clone)]
pub struct StoreDivergence {
    /// What makes the whole sequence.
    pub seed: u64,
    /// How long that is.
    pub length: usize,
    /// The shortest sequence that was found; the last operation is the one that is answered differently.
    pub operations: Vec<StoreOperation>,
    /// Who answered what.
    pub answers: Vec<(String, String)>,
}

impl fmt::Display for StoreDivergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "answers differ (seed {:#x}, length {}):",
            self.seed, self.length
        )?;
        for (place, operation) in self.operations.iter().enumerate() {
            writeln!(f, "{:>3}. {}", place + 1, format_operation(operation))?;
        }
        self.answers
            .iter()
            .try_for_each(|(name, answer)| writeln!(f, "{name}: {answer}"))
    }
}

/// An operation for people: a table is its name, and parts that a commit does not have are left out.
fn format_operation(operation: &StoreOperation) -> String {
    let text = format!("{operation:?}");
    let text = tables::ALL_TABLES.iter().fold(text, |text, table| {
        text.replace(&format!("{table:?}"), table.name)
    });
    ["fences", "journals", "changes", "moves", "events"]
        .iter()
        .fold(text, |text, list| {
            text.replace(&format!("{list}: [], "), "")
                .replace(&format!(", {list}: []"), "")
        })
}

/// Where subjects parted.
struct FirstDivergence {
    /// How many operations were made, the last included.
    operations: usize,
    answers: Vec<(String, String)>,
}

/// Plays the same operations on all subjects, until one answers differently.
async fn compare_stores(
    subjects: &[&dyn StoreFactory],
    operations: &[StoreOperation],
) -> Result<CaseCoverage, FirstDivergence> {
    let mut players = Vec::new();
    for subject in subjects {
        let player = OperationPlayer::open(*subject).await;
        players.push(player.map_err(|error| open_failure(*subject, &error))?);
    }
    let mut sometimes = CaseCoverage::default();
    for (place, operation) in operations.iter().enumerate() {
        let mut answers = Vec::new();
        for player in &mut players {
            answers.push(player.play_operation(operation).await);
        }
        ensure_answers_agree(subjects, &answers, place + 1)?;
        sometimes.record_answer(operation, &answers[0]);
    }
    let mut dumps: Vec<Result<StoreDump, Error>> = Vec::new();
    for player in &players {
        dumps.push(player.dump_store().await);
    }
    ensure_answers_agree(subjects, &dumps, operations.len()).map(|()| sometimes)
}

fn ensure_answers_agree<T: PartialEq + fmt::Debug>(
    subjects: &[&dyn StoreFactory],
    answers: &[T],
    operations: usize,
) -> Result<(), FirstDivergence> {
    if answers.windows(2).all(|pair| pair[0] == pair[1]) {
        return Ok(());
    }
    let named = subjects
        .iter()
        .zip(answers)
        .map(|(subject, answer)| (subject.name().to_owned(), format!("{answer:?}")));
    Err(FirstDivergence {
        operations,
        answers: named.collect(),
    })
}

fn open_failure(subject: &dyn StoreFactory, error: &Error) -> FirstDivergence {
    FirstDivergence {
        operations: 0,
        answers: vec![(
            subject.name().to_owned(),
            format!("cannot be opened: {error}"),
        )],
    }
}

/// The model that sequences are generated by.
const MODEL_FACTORY: MemoryStoreFactory = MemoryStoreFactory;
