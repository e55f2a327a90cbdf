//! `onward state events`: prints the events of a run.

use std::io::{self, Write as _};
use std::process::ExitCode;

use onward_api::problem::Code;
use onward_api::run::UnreadableRunEvent;
use onward_runs::RunId;

use crate::connection::{AccessMode, ConnectionArgs};
use crate::console;

/// Maximum number of events per request.
const EVENT_PAGE_SIZE: u32 = 1_000;

/// Print the events of a run as JSON Lines, ordered by sequence number
///
/// An event that cannot be read is reported on standard error and skipped.
///
/// Exit codes: 0 the events were printed, also if there are none, 1 some of them cannot be read,
/// 2 the command failed.
#[derive(clap::Args)]
pub(crate) struct StateEventsArgs {
    #[command(flatten)]
    connection: ConnectionArgs,
    /// Id of the run
    run: RunId,
    /// Only events after this sequence number
    #[arg(long, value_name = "N", default_value_t = 0)]
    after: u64,
    /// Maximum number of events to print
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    limit: usize,
}

pub(crate) async fn print_run_events(args: &StateEventsArgs) -> anyhow::Result<ExitCode> {
    let onward = args.connection.open_connection(AccessMode::Read).await?;
    let mut out = io::BufWriter::new(console::json_output());
    let (mut after, mut left, mut unreadable) = (args.after, args.limit, 0_u64);
    while left > 0 {
        let limit = u32::try_from(left)
            .unwrap_or(EVENT_PAGE_SIZE)
            .min(EVENT_PAGE_SIZE);
        let page = match onward.get_run_events(&args.run, after, limit, 0).await {
            Err(problem) if problem.code == Code::NoRun => break,
            page => page?,
        };
        if page.events.is_empty() && page.unreadable.is_none() {
            break;
        }
        (after, left) = (page.watermark, left - page.events.len().min(left));
        for event in &page.events {
            writeln!(out, "{}", event.as_str())?;
        }
        if let Some(skipped) = page.unreadable {
            out.flush()?;
            let UnreadableRunEvent { run_seq, message } = &skipped;
            console::print_message(format_args!("event {run_seq} is skipped: {message}"));
            after = *run_seq;
            unreadable += 1;
        }
    }
    out.flush()?;
    Ok(ExitCode::from(u8::from(unreadable > 0)))
}
