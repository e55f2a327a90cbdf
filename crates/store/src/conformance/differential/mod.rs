//! Differential testing: random sequences of operations that all store implementations must answer
//! alike.
//!
//! The checks of the suite test one guarantee each; this module tests combinations that no check
//! lists. A seed determines the sequence, so a failure only has to print its seed; the sequence is
//! shrunk before it is shown.

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

/// The policy of the stores under test, with limits so low that operations reach them.
pub const DIFFERENTIAL_POLICY: StorePolicy = StorePolicy {
    key_check: IdempotencyKeyCheck::Reject,
    accept_v1_keys: false,
    limits: StoreLimits {
        event_bytes_max: 120,
        record_bytes_max: 700,
        changes_max: 10,
        page_max: 6,
        journal_page_bytes_max: 900,
    },
};

/// Runs the sequence of `seed` on all implementations, and compares every answer and the stored
/// data at the end.
///
/// Returns the number of times each case occurred, so that a test can require all of them.
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

/// A sequence that implementations answer differently.
#[derive(Debug, Clone)]
pub struct StoreDivergence {
    /// The seed of the original sequence.
    pub seed: u64,
    /// Number of operations in the original sequence.
    pub length: usize,
    /// The shortest sequence found; its last operation is the one with different answers.
    pub operations: Vec<StoreOperation>,
    /// The name of each implementation with its answer.
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

/// Formats an operation for display: a table is shown as its name, and empty lists of a commit are
/// omitted.
fn format_operation(operation: &StoreOperation) -> String {
    let text = format!("{operation:?}");
    let text = tables::ALL_TABLES.iter().fold(text, |text, table| {
        text.replace(&format!("{table:?}"), table.name)
    });
    ["fences", "journals", "changes", "reader_advances", "events"]
        .iter()
        .fold(text, |text, list| {
            text.replace(&format!("{list}: [], "), "")
                .replace(&format!(", {list}: []"), "")
        })
}

/// The first operation that implementations answered differently.
struct FirstDivergence {
    /// Number of operations up to and including that one.
    operations: usize,
    answers: Vec<(String, String)>,
}

/// Runs the same operations on all implementations until their answers differ.
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

/// The model store that the generator reads.
const MODEL_FACTORY: MemoryStoreFactory = MemoryStoreFactory;
