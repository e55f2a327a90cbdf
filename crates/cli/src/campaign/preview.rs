//! `onward campaign preview`: what people would be sent.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use onward_api::campaign::{MessagePart, PreviewedMessage, Recipient};
use onward_campaign::Composer;
use onward_server::previewed;

use super::file::Campaigned;
use crate::paint;

/// Show what recipients would be sent. Nothing is stored or sent
///
/// Exit codes: 0 it was shown, 1 something cannot be filled in, 2 it could not be shown.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// For so many of the first recipients
    #[arg(long, default_value_t = NonZeroUsize::MIN, value_name = "N")]
    limit: NonZeroUsize,
    /// For this recipient alone
    #[arg(long, value_name = "ID", conflicts_with = "limit")]
    id: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let file = Campaigned::load(&args.file)?;
    let composer = Composer::new(&file.campaign)?;
    let (mut rows, mut left, mut is_whole) = (file.rows()?, args.limit.get(), true);
    // Somebody who is named again is not reached again.
    let mut seen = HashSet::new();
    while left > 0 {
        let Some(recipient) = file.next(&mut rows)? else { break };
        if args.id.as_ref().is_some_and(|id| *id != recipient.id) || !seen.insert(recipient.id.clone()) {
            continue;
        }
        left -= 1;
        let Recipient { id, to, data } = recipient;
        let message = previewed(&composer, onward_dispatcher::Recipient { id, address: to, data });
        is_whole &= message.error.is_none();
        if args.json {
            writeln!(io::stdout(), "{}", serde_json::to_string(&message)?)?;
        } else {
            print(&message)?;
        }
    }
    if left == args.limit.get() {
        match &args.id {
            Some(id) => bail!("nobody in the audience is called {id}"),
            None => bail!("there is nobody in the audience"),
        }
    }
    Ok(ExitCode::from(u8::from(!is_whole)))
}

fn print(message: &PreviewedMessage) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{:<12} {} ({})", "to", paint::plain(&message.to), paint::plain(&message.recipient))?;
    if let Some(error) = &message.error {
        writeln!(out, "{:<12} {}", paint::error("error"), paint::plain(error))?;
    }
    let (lines, short): (Vec<_>, Vec<_>) = message.parts.iter().partition(|part| part.text.contains('\n'));
    for MessagePart { name, text } in short {
        writeln!(out, "{name:<12} {}", paint::plain(text))?;
    }
    for MessagePart { name, text } in lines {
        writeln!(out, "{name}")?;
        for line in text.lines() {
            writeln!(out, "  {}", paint::plain(line))?;
        }
    }
    writeln!(out)
}
