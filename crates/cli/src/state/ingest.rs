//! Parses lines into run events and appends them in batches. Reading and appending overlap: while
//! one batch becomes durable, the next is read. Interactive input is answered line by line; a file
//! is appended in large batches.

use std::sync::Arc;
use std::thread;

use onward_api::problem::Code;
use onward_api::run::AppendRunEventsRequest;
use onward_base::ExponentialBackoff;
use onward_runs::{AppendResult, RunEventWrite};
use onward_store::{
    EventReceipt, IdempotencyKeyCheck, RunStateStore as _, Store, StoreErrorKind, StorePolicy,
};
use tokio::sync::mpsc;

use crate::connection::TargetConnection;
use crate::line_reader::{BUFFER_BYTES, LineReadError, LineReader};

/// Maximum number of events per append.
const BATCH_EVENTS_MAX: usize = 10_000;

/// Number of line bytes after which a batch is appended, so that large events do not fill the
/// memory.
const BATCH_BYTES: usize = 8 << 20;

/// Maximum number of portions that wait to be appended; a portion is what one read returned.
const QUEUED_PORTIONS_MAX: usize = 16;

/// Maximum number of consecutive retries while the store is unreachable.
const APPEND_RETRIES_MAX: u32 = 5;

/// The delay between those retries.
const APPEND_BACKOFF: ExponentialBackoff = ExponentialBackoff {
    initial_ms: 200,
    max_ms: 3_200,
};

/// A durable event and the number of its line.
pub(crate) struct AcceptedEvent {
    pub(crate) line: u64,
    pub(crate) appended: EventReceipt,
}

/// A line that was refused, and why.
pub(crate) struct RefusedLine {
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// Receives the results of the lines.
pub(crate) trait IngestSink {
    fn on_accepted(&mut self, accepted: &[AcceptedEvent]) -> anyhow::Result<()>;
    fn on_refused(&mut self, refused: &RefusedLine);
}

struct ParsedEventLine {
    number: u64,
    bytes: usize,
    event: RunEventWrite,
}

enum IngestInput {
    Line(Box<ParsedEventLine>),
    Refused(RefusedLine),
    Failed(anyhow::Error),
}

/// The store or server that events are appended to.
pub(crate) enum AppendTarget {
    Store(Arc<dyn Store>),
    /// A server, and the policy that lines are checked against before they are sent.
    Server(Box<TargetConnection>, StorePolicy),
}

/// Why a batch was not appended. The kind determines whether it is retried, split or given up.
struct AppendFailure {
    kind: StoreErrorKind,
    error: anyhow::Error,
}

impl AppendTarget {
    fn check_policy(&self) -> StorePolicy {
        match self {
            Self::Store(store) => *store.policy(),
            Self::Server(_, policy) => *policy,
        }
    }

    async fn append_batch(
        &self,
        batch: &[ParsedEventLine],
    ) -> Result<Vec<EventReceipt>, AppendFailure> {
        match self {
            Self::Store(store) => {
                let events = batch.iter().map(|line| line.event.clone()).collect();
                let receipts = store.append_events(events).await;
                receipts.map_err(|error| AppendFailure {
                    kind: error.kind(),
                    error: error.into(),
                })
            }
            Self::Server(access, _) => append_over_http(access, batch).await,
        }
    }
}

async fn append_over_http(
    access: &TargetConnection,
    batch: &[ParsedEventLine],
) -> Result<Vec<EventReceipt>, AppendFailure> {
    let fatal = |error: anyhow::Error| AppendFailure {
        kind: StoreErrorKind::Fatal,
        error,
    };
    let documents = batch
        .iter()
        .map(|line| onward_api::parse_json(&line.event.to_json()));
    let events = documents
        .collect::<Result<_, _>>()
        .map_err(|problem| fatal(problem.into()))?;
    let results = access
        .append_run_events(AppendRunEventsRequest { events })
        .await
        .map_err(|problem| {
            let kind = match problem.code {
                Code::Unavailable | Code::RateLimited | Code::TimedOut => StoreErrorKind::Retry,
                Code::OutcomeUnknown => StoreErrorKind::Unknown,
                Code::Conflict => StoreErrorKind::Conflict,
                Code::Unprocessable | Code::InvalidRequest | Code::TooLarge | Code::Forbidden => {
                    StoreErrorKind::Invalid
                }
                _ => StoreErrorKind::Fatal,
            };
            AppendFailure {
                kind,
                error: problem.into(),
            }
        })?;
    let appended = results.iter().map(|it| {
        let result = AppendResult::from_json(&serde_json::to_string(it)?)?;
        Ok(EventReceipt {
            result,
            differs: it.differs,
        })
    });
    appended.collect::<anyhow::Result<_>>().map_err(fatal)
}

/// Appends all events of `lines` and reports each line to `sink`.
pub(crate) async fn ingest_lines(
    target: &AppendTarget,
    lines: LineReader,
    sink: &mut impl IngestSink,
) -> anyhow::Result<()> {
    let (sender, mut portions) = mpsc::channel(QUEUED_PORTIONS_MAX);
    // The store checks the keys again and issues the warnings, so none is issued here.
    let mut policy = target.check_policy();
    policy.key_check = if policy.key_check == IdempotencyKeyCheck::Reject {
        IdempotencyKeyCheck::Reject
    } else {
        IdempotencyKeyCheck::Off
    };
    // The thread is not joined: it may block on input that never comes, and the process must still
    // exit.
    thread::Builder::new()
        .name("onward-lines".to_owned())
        .spawn(move || read_lines(lines, &policy, &sender))?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(first) = portions.recv().await {
        let mut next = Some(first);
        while let Some(portion) = next {
            for read in portion {
                match read {
                    IngestInput::Line(line) => {
                        bytes += line.bytes;
                        batch.push(*line);
                    }
                    IngestInput::Refused(refused) => sink.on_refused(&refused),
                    IngestInput::Failed(error) => {
                        append_halving(target, batch, sink).await?;
                        return Err(error);
                    }
                }
            }
            let is_full = batch.len() >= BATCH_EVENTS_MAX || bytes >= BATCH_BYTES;
            next = if is_full {
                None
            } else {
                portions.try_recv().ok()
            };
        }
        bytes = 0;
        append_halving(target, std::mem::take(&mut batch), sink).await?;
    }
    Ok(())
}

/// Reads and parses lines. Sends a portion before it would block on input, and when the portion
/// reaches [`BUFFER_BYTES`].
fn read_lines(
    mut lines: LineReader,
    policy: &StorePolicy,
    sender: &mpsc::Sender<Vec<IngestInput>>,
) {
    let (mut portion, mut bytes) = (Vec::new(), 0);
    while let Some(next) = lines.next_line() {
        portion.push(match next {
            Ok((number, text)) => {
                bytes += text.len();
                parse_line(number, text, policy).unwrap_or_else(IngestInput::Refused)
            }
            Err(LineReadError::Line { number, reason }) => IngestInput::Refused(RefusedLine {
                line: number,
                reason,
            }),
            Err(LineReadError::Input(error)) => IngestInput::Failed(error),
        });
        if bytes < BUFFER_BYTES && lines.has_buffered_input() {
            continue;
        }
        bytes = 0;
        if sender.blocking_send(std::mem::take(&mut portion)).is_err() {
            return;
        }
    }
    // The receiver may be gone; then the portion is not needed.
    drop(sender.blocking_send(portion));
}

fn parse_line(number: u64, text: &str, policy: &StorePolicy) -> Result<IngestInput, RefusedLine> {
    let refuse = |reason: String| RefusedLine {
        line: number,
        reason,
    };
    let event = RunEventWrite::from_json(text).map_err(|error| refuse(error.to_string()))?;
    policy
        .check_event(0, &event)
        .map_err(|invalid| refuse(invalid.to_string()))?;
    Ok(IngestInput::Line(Box::new(ParsedEventLine {
        number,
        bytes: text.len(),
        event,
    })))
}

/// Appends a batch. If it is refused because of a single event, the batch is halved until that
/// event is alone.
async fn append_halving(
    target: &AppendTarget,
    batch: Vec<ParsedEventLine>,
    sink: &mut impl IngestSink,
) -> anyhow::Result<()> {
    let mut waiting = vec![batch];
    while let Some(mut batch) = waiting.pop() {
        let Some(first) = batch.first() else { continue };
        let first = first.number;
        match append_with_retry(target, &batch).await {
            Ok(appended) => {
                let lines = batch.iter().map(|line| line.number);
                let accepted: Vec<AcceptedEvent> = lines
                    .zip(appended)
                    .map(|(line, appended)| AcceptedEvent { line, appended })
                    .collect();
                sink.on_accepted(&accepted)?;
            }
            Err(AppendFailure { kind, error })
                if !matches!(kind, StoreErrorKind::Conflict | StoreErrorKind::Invalid) =>
            {
                return Err(error.context(format!("no line from line {first} on was acknowledged")));
            }
            Err(AppendFailure { error, .. }) if batch.len() == 1 => {
                sink.on_refused(&RefusedLine {
                    line: first,
                    reason: error.to_string(),
                });
            }
            Err(_) => {
                let second = batch.split_off(batch.len() / 2);
                waiting.push(second);
                waiting.push(batch);
            }
        }
    }
    Ok(())
}

/// Retries with backoff while the store is unreachable or the outcome is unknown. This is safe: an
/// event that was stored is deduplicated.
async fn append_with_retry(
    target: &AppendTarget,
    batch: &[ParsedEventLine],
) -> Result<Vec<EventReceipt>, AppendFailure> {
    let mut tries = 0;
    loop {
        match target.append_batch(batch).await {
            Err(refusal)
                if matches!(
                    refusal.kind,
                    StoreErrorKind::Retry | StoreErrorKind::Unknown
                ) && tries < APPEND_RETRIES_MAX =>
            {
                tries += 1;
                let entropy = getrandom::u64().unwrap_or_default();
                let delay_ms = APPEND_BACKOFF.delay_ms(tries, entropy);
                tokio::time::sleep(std::time::Duration::from_millis(delay_ms)).await;
            }
            outcome => return outcome,
        }
    }
}
