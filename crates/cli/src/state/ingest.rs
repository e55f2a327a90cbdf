//! Lines to stored events. Reading and appending overlap: while one batch becomes durable, the next is read. Whoever types
//! line by line is answered line by line; whoever pours in a file is served in large batches.

use std::sync::Arc;
use std::thread;

use onward_api::problem::Code;
use onward_api::run::Append;
use onward_runs::{AppendResult, RunEventWrite};
use onward_store::{Appended, KeyCheck, Kind, Policy, RunStateStore as _, Store};
use tokio::sync::mpsc;

use crate::access::Access;
use crate::lines::{BUFFER_BYTES, Lines, Unreadable};

/// Events in one append.
const BATCH: usize = 10_000;

/// Bytes of lines in one append, so that large events do not fill the memory.
const BATCH_BYTES: usize = 8 << 20;

/// Portions that wait to be appended; one is what was read at a time.
const PORTIONS: usize = 16;

/// Appends in a row that may fail because the store cannot be reached.
const TRIES: u32 = 5;

/// An event that is durable.
pub(crate) struct Accepted {
    pub(crate) line: u64,
    pub(crate) appended: Appended,
}

/// A line that was not taken.
pub(crate) struct Refused {
    pub(crate) line: u64,
    pub(crate) reason: String,
}

/// Where answers go.
pub(crate) trait Sink {
    fn accepted(&mut self, accepted: &[Accepted]) -> anyhow::Result<()>;
    fn refused(&mut self, refused: &Refused);
}

struct Line {
    number: u64,
    bytes: usize,
    event: RunEventWrite,
}

enum Read {
    Line(Box<Line>),
    Refused(Refused),
    Failed(anyhow::Error),
}

/// Who takes events.
pub(crate) enum Taker {
    Store(Arc<dyn Store>),
    /// A server, and what it accepts.
    Server(Box<Access>, Policy),
}

/// Why events were not taken.
struct Refusal {
    kind: Kind,
    error: anyhow::Error,
}

impl Taker {
    fn policy(&self) -> Policy {
        match self {
            Self::Store(store) => *store.policy(),
            Self::Server(_, policy) => *policy,
        }
    }

    async fn take(&self, batch: &[Line]) -> Result<Vec<Appended>, Refusal> {
        match self {
            Self::Store(store) => {
                let events = batch.iter().map(|line| line.event.clone()).collect();
                let taken = store.append_events(events).await;
                taken.map_err(|error| Refusal { kind: error.kind(), error: error.into() })
            }
            Self::Server(access, _) => over_http(access, batch).await,
        }
    }
}

async fn over_http(access: &Access, batch: &[Line]) -> Result<Vec<Appended>, Refusal> {
    let fatal = |error: anyhow::Error| Refusal { kind: Kind::Fatal, error };
    let documents = batch.iter().map(|line| onward_api::json(&line.event.to_json()));
    let events = documents.collect::<Result<_, _>>().map_err(|problem| fatal(problem.into()))?;
    let taken = access.append(Append { events }).await.map_err(|problem| {
        let kind = match problem.code {
            Code::Unavailable | Code::RateLimited | Code::TimedOut => Kind::Retry,
            Code::OutcomeUnknown => Kind::Unknown,
            Code::Conflict => Kind::Conflict,
            Code::Unprocessable | Code::InvalidRequest | Code::TooLarge | Code::Forbidden => Kind::Invalid,
            _ => Kind::Fatal,
        };
        Refusal { kind, error: problem.into() }
    })?;
    let appended = taken.iter().map(|it| {
        let result = AppendResult::from_json(&serde_json::to_string(it)?)?;
        Ok(Appended { result, differs: it.differs })
    });
    appended.collect::<anyhow::Result<_>>().map_err(fatal)
}

/// Appends all of `lines`.
pub(crate) async fn all(taker: &Taker, lines: Lines, sink: &mut impl Sink) -> anyhow::Result<()> {
    let (sender, mut portions) = mpsc::channel(PORTIONS);
    // The store looks at keys again, and warns where it is to warn: once is enough.
    let mut policy = taker.policy();
    policy.keys = if policy.keys == KeyCheck::Reject { KeyCheck::Reject } else { KeyCheck::Off };
    // Not joined: it may wait for a line that never comes, and the process does not have to.
    thread::Builder::new().name("onward-lines".to_owned()).spawn(move || read(lines, &policy, &sender))?;
    let (mut batch, mut bytes) = (Vec::new(), 0);
    while let Some(first) = portions.recv().await {
        let mut next = Some(first);
        while let Some(portion) = next {
            for read in portion {
                match read {
                    Read::Line(line) => {
                        bytes += line.bytes;
                        batch.push(*line);
                    }
                    Read::Refused(refused) => sink.refused(&refused),
                    Read::Failed(error) => {
                        append(taker, batch, sink).await?;
                        return Err(error);
                    }
                }
            }
            let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
            next = if is_full { None } else { portions.try_recv().ok() };
        }
        bytes = 0;
        append(taker, std::mem::take(&mut batch), sink).await?;
    }
    Ok(())
}

/// Hands on what is at hand before it waits for more, and before it becomes too much.
fn read(mut lines: Lines, policy: &Policy, sender: &mpsc::Sender<Vec<Read>>) {
    let (mut portion, mut bytes) = (Vec::new(), 0);
    while let Some(next) = lines.next() {
        portion.push(match next {
            Ok((number, text)) => {
                bytes += text.len();
                parse(number, text, policy).unwrap_or_else(Read::Refused)
            }
            Err(Unreadable::Line { number, reason }) => Read::Refused(Refused { line: number, reason }),
            Err(Unreadable::Input(error)) => Read::Failed(error),
        });
        if bytes < BUFFER_BYTES && lines.has_more_at_hand() {
            continue;
        }
        bytes = 0;
        if sender.blocking_send(std::mem::take(&mut portion)).is_err() {
            return;
        }
    }
    // Whoever no longer listens has no use for it.
    drop(sender.blocking_send(portion));
}

fn parse(number: u64, text: &str, policy: &Policy) -> Result<Read, Refused> {
    let refuse = |reason: String| Refused { line: number, reason };
    let event = RunEventWrite::from_json(text).map_err(|error| refuse(error.to_string()))?;
    policy.check(0, &event).map_err(|invalid| refuse(invalid.to_string()))?;
    Ok(Read::Line(Box::new(Line { number, bytes: text.len(), event })))
}

/// Appends a batch; one that is refused because of a single event is halved until that event stands alone.
async fn append(taker: &Taker, batch: Vec<Line>, sink: &mut impl Sink) -> anyhow::Result<()> {
    let mut waiting = vec![batch];
    while let Some(mut batch) = waiting.pop() {
        let Some(first) = batch.first() else { continue };
        let first = first.number;
        match patiently(taker, &batch).await {
            Ok(appended) => {
                let lines = batch.iter().map(|line| line.number);
                let accepted: Vec<Accepted> =
                    lines.zip(appended).map(|(line, appended)| Accepted { line, appended }).collect();
                sink.accepted(&accepted)?;
            }
            Err(Refusal { kind, error }) if !matches!(kind, Kind::Conflict | Kind::Invalid) => {
                return Err(error.context(format!("nothing was acknowledged from line {first} on")));
            }
            Err(Refusal { error, .. }) if batch.len() == 1 => {
                sink.refused(&Refused { line: first, reason: error.to_string() });
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

/// Tries again when the store is away for a moment. That is safe: an event that was stored after all is a repetition.
async fn patiently(taker: &Taker, batch: &[Line]) -> Result<Vec<Appended>, Refusal> {
    let mut tries = 0;
    loop {
        match taker.take(batch).await {
            Err(refusal) if matches!(refusal.kind, Kind::Retry | Kind::Unknown) && tries < TRIES => {
                tries += 1;
                tokio::time::sleep(std::time::Duration::from_millis(100 << tries)).await;
            }
            outcome => return outcome,
        }
    }
}
