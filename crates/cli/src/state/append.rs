//! `onward state append`: appends run events and prints one result per line.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::bail;
use clap::ValueEnum;
use onward_engine::projector::{self, Projector};
use onward_store::{IdempotencyKeyCheck, Store, StorePolicy};

use super::ingest::{self, AcceptedEvent, AppendTarget, RefusedLine};
use crate::connection::{AccessMode, ConnectionArgs};
use crate::console;
use crate::line_reader::LineReader;

/// Append run events: reads RunEventWrite as JSON Lines, prints one AppendResult per line
///
/// Events are appended in the order of their lines. A result is printed once its event is durable;
/// a repeated event gets the result of the first one. A line that is refused is reported on
/// standard error with its number and reason; nothing of it is stored, and the next line is read.
///
/// Snapshots are brought up to date at the end. If that fails, a warning is printed and a server
/// does it later: the exit code only concerns the lines.
///
/// Exit codes: 0 all lines were accepted, 1 some were refused, 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct StateAppendArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// File with the events; - for standard input
    #[arg(value_name = "FILE|-")]
    file: PathBuf,
    /// What to do when an idempotency key does not match its event; only with --store
    #[arg(long, value_enum, default_value_t = KeyCheckArg::Reject)]
    keys: KeyCheckArg,
    /// Also accept idempotency keys in the form of contract v1; only with --store
    ///
    /// Only the form of the key: a line must have all fields of RunEventWrite in their present
    /// form. Events of contract v1 have no tenant, project, environment, plan id and plan version;
    /// add them, write the attempts as numbers, rename eventData to payload, and remove runSeq and
    /// persistedAt. The store assigns those in the order of the lines.
    #[arg(long)]
    accept_v1_keys: bool,
    /// Report refused lines as JSON objects
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum KeyCheckArg {
    /// Refuse the event
    Reject,
    /// Store the event and print a warning
    Warn,
    /// Do not check keys
    Off,
}

impl StateAppendArgs {
    fn store_policy(&self) -> StorePolicy {
        let keys = match self.keys {
            KeyCheckArg::Reject => IdempotencyKeyCheck::Reject,
            KeyCheckArg::Warn => IdempotencyKeyCheck::Warn,
            KeyCheckArg::Off => IdempotencyKeyCheck::Off,
        };
        StorePolicy {
            key_check: keys,
            accept_v1_keys: self.accept_v1_keys,
            ..StorePolicy::default()
        }
    }

    /// Connects to a server. Fails if a key option is given, because the server applies its own
    /// policy.
    async fn connect_server(&self) -> anyhow::Result<AppendTarget> {
        if self.accept_v1_keys || !matches!(self.keys, KeyCheckArg::Reject) {
            bail!(
                "--keys and --accept-v1-keys require --store: a server applies its own key policy"
            );
        }
        Ok(AppendTarget::Server(
            Box::new(self.connection.open_connection(AccessMode::Write).await?),
            StorePolicy::default(),
        ))
    }
}

pub(crate) async fn append_run_events(args: &StateAppendArgs) -> anyhow::Result<ExitCode> {
    let lines = LineReader::open_path(&args.file)?;
    let mut output = AppendOutput {
        out: io::BufWriter::new(console::output(args.json)),
        json: args.json,
        refused_count: 0,
    };
    let Some(url) = args.connection.store_url()? else {
        ingest::ingest_lines(&args.connect_server().await?, lines, &mut output).await?;
        return Ok(ExitCode::from(u8::from(output.refused_count > 0)));
    };
    if url == "memory:" {
        bail!(
            "memory: keeps nothing: its events are lost when this command ends. Give a store that is kept"
        );
    }
    let store = onward_embed::store::open_store(&url, args.store_policy()).await?;
    let projector = Projector::new(Arc::clone(&store), projector::ProjectorOptions::default());
    let projecting = tokio::spawn(projector.run());
    let outcome =
        ingest::ingest_lines(&AppendTarget::Store(Arc::clone(&store)), lines, &mut output).await;
    projecting.abort();
    outcome?;
    if let Err(error) = catch_up_snapshots(&store).await {
        console::print_message(format_args!(
            "{}: the snapshots are behind: {error:#}. All results above are durable; a server or the next \
             append brings the snapshots up to date",
            console::style_error("warning")
        ));
    }
    Ok(ExitCode::from(u8::from(output.refused_count > 0)))
}

/// Brings the snapshots up to date with the log.
async fn catch_up_snapshots(store: &Arc<dyn Store>) -> anyhow::Result<()> {
    let mut projector = Projector::new(Arc::clone(store), projector::ProjectorOptions::default());
    // Two passes, because the next pass continues a run in which a gap was found.
    for _ in 0..2 {
        projector.run_pass().await?;
    }
    Ok(())
}

struct AppendOutput {
    out: io::BufWriter<Box<dyn io::Write>>,
    json: bool,
    refused_count: u64,
}

impl ingest::IngestSink for AppendOutput {
    fn on_accepted(&mut self, accepted: &[AcceptedEvent]) -> anyhow::Result<()> {
        for AcceptedEvent { line, appended } in accepted {
            writeln!(self.out, "{}", appended.result.to_json())?;
            if appended.differs {
                let kept = appended.result.event_id;
                let message =
                    format!("duplicate of event {kept} with different content; the first is kept");
                self.print_line_result(*line, "warning", &message);
            }
        }
        Ok(self.out.flush()?)
    }

    fn on_refused(&mut self, refused: &RefusedLine) {
        self.refused_count += 1;
        self.print_line_result(refused.line, "refused", &refused.reason);
    }
}

impl AppendOutput {
    fn print_line_result(&self, line: u64, result: &str, message: &str) {
        if self.json {
            console::print_message(
                serde_json::json!({ "line": line, "result": result, "message": message }),
            );
        } else {
            console::print_message(format_args!(
                "{}: line {line}: {message}",
                console::style_error(result)
            ));
        }
    }
}
