//! `onward state append`: events in, one answer a line out.

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::ValueEnum;
use onward_engine::projector::{self, Projector};
use onward_store::{KeyCheck, Policy, Store};

use super::ingest::{self, Accepted, Refused, Taker};
use crate::access::{PlaceArgs, Want};
use crate::lines::Lines;
use crate::paint;

/// Append run events: JSON Lines of RunEventWrite in, one AppendResult a line out
///
/// Events are appended in the order of their lines. A line is answered once its event is durable; a repeated event is
/// answered with what the first one was given. A line that cannot be taken is reported with its number and reason on
/// standard error, nothing of it is stored, and the next line is read.
///
/// Exit codes: 0 all lines were taken, 1 some were refused, 2 the command could not be carried out.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: PlaceArgs,
    /// The events; - for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// What to do about an idempotency key that is not the one its event gives
    #[arg(long, value_enum, default_value_t = Keys::Reject)]
    keys: Keys,
    /// Take idempotency keys of contract v1 as well, to import logs of that time
    #[arg(long)]
    accept_v1_keys: bool,
    /// Report refused lines as JSON objects
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Keys {
    /// Refuse the event
    Reject,
    /// Store the event and warn
    Warn,
    /// Do not look
    Off,
}

impl Args {
    fn policy(&self) -> Policy {
        let keys = match self.keys {
            Keys::Reject => KeyCheck::Reject,
            Keys::Warn => KeyCheck::Warn,
            Keys::Off => KeyCheck::Off,
        };
        Policy { keys, accept_v1_keys: self.accept_v1_keys, ..Policy::default() }
    }

    /// What a server accepts, it says itself.
    async fn server(&self) -> anyhow::Result<Taker> {
        if self.accept_v1_keys || !matches!(self.keys, Keys::Reject) {
            bail!("--keys and --accept-v1-keys are for a store; a server takes events by its own rules");
        }
        Ok(Taker::Server(Box::new(self.place.open(Want::Write).await?), Policy::default()))
    }
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let lines = Lines::open(&args.file)?;
    let mut answers = Answers { out: io::BufWriter::new(io::stdout()), json: args.json, refused: 0 };
    let Some(url) = args.place.store_url()? else {
        ingest::all(&args.server().await?, lines, &mut answers).await?;
        return Ok(ExitCode::from(u8::from(answers.refused > 0)));
    };
    let store = onward_embed::store::open(&url, args.policy()).await?;
    let projector = Projector::new(Arc::clone(&store), projector::Options::default());
    let projecting = tokio::spawn(projector.run());
    let outcome = ingest::all(&Taker::Store(Arc::clone(&store)), lines, &mut answers).await;
    projecting.abort();
    outcome?;
    catch_up(&store).await?;
    Ok(ExitCode::from(u8::from(answers.refused > 0)))
}

/// Leaves the snapshots as new as the log.
async fn catch_up(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let mut projector = Projector::new(Arc::clone(store), projector::Options::default());
    // Twice, because a run in which a gap was seen is taken on again by the next pass.
    for _ in 0..2 {
        projector.pass().await?;
    }
    Ok(())
}

struct Answers {
    out: io::BufWriter<io::Stdout>,
    json: bool,
    refused: u64,
}

impl ingest::Sink for Answers {
    fn accepted(&mut self, accepted: &[Accepted]) -> anyhow::Result<()> {
        for Accepted { line, appended } in accepted {
            writeln!(self.out, "{}", appended.result.to_json())?;
            if appended.differs {
                let kept = appended.result.event_id;
                let message = format!("repeats event {kept} but says something else; the first one is kept");
                self.tell(*line, "warning", &message);
            }
        }
        Ok(self.out.flush()?)
    }

    fn refused(&mut self, refused: &Refused) {
        self.refused += 1;
        self.tell(refused.line, "refused", &refused.reason);
    }
}

impl Answers {
    fn tell(&self, line: u64, verdict: &str, message: &str) {
        if self.json {
            paint::say(serde_json::json!({ "line": line, "verdict": verdict, "message": message }));
        } else {
            paint::say(format_args!("{}: line {line}: {message}", paint::error(verdict)));
        }
    }
}
