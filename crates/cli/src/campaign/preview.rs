//! `onward campaign preview`: renders the messages of a campaign without sending them.

use std::collections::HashSet;
use std::io::{self, Write as _};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use onward_api::campaign::{MessagePart, MessagePreview, RecipientInput};
use onward_campaign_file::TemplateComposer;
use onward_service::preview_message;

use super::local_campaign::LocalCampaign;
use crate::console;

/// Show the messages that recipients would receive; store and send nothing
///
/// Exit codes: 0 all messages were rendered, 1 a template could not be filled in, 2 the command
/// failed.
#[derive(clap::Args)]
pub(crate) struct CampaignPreviewArgs {
    /// Campaign file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Number of recipients to show, from the first row on
    #[arg(long, default_value_t = NonZeroUsize::MIN, value_name = "N")]
    limit: NonZeroUsize,
    /// Show only the recipient with this id
    #[arg(long, value_name = "ID", conflicts_with = "limit")]
    id: Option<String>,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub(crate) async fn preview_campaign(args: &CampaignPreviewArgs) -> anyhow::Result<ExitCode> {
    let file = LocalCampaign::load(&args.file)?;
    let composer = TemplateComposer::new(&file.campaign)?;
    let (mut rows, mut left, mut is_complete) = (file.open_audience()?, args.limit.get(), true);
    // A recipient id that occurs again is a duplicate and is not sent to twice.
    let mut seen = HashSet::new();
    while left > 0 {
        let Some(recipient) = file.next_recipient(&mut rows)? else {
            break;
        };
        if args.id.as_ref().is_some_and(|id| *id != recipient.id)
            || !seen.insert(recipient.id.clone())
        {
            continue;
        }
        left -= 1;
        let RecipientInput { id, to, data } = recipient;
        let message = preview_message(
            &composer,
            onward_campaign_core::AudienceRecipient {
                id,
                address: to,
                data,
            },
        );
        is_complete &= message.error.is_none();
        if args.json {
            writeln!(
                console::json_output(),
                "{}",
                serde_json::to_string(&message)?
            )?;
        } else {
            print_preview(&message)?;
        }
    }
    if left == args.limit.get() {
        match &args.id {
            Some(id) => bail!("recipient {id} not found in the audience (--id)"),
            None => bail!("the audience has no recipients"),
        }
    }
    Ok(ExitCode::from(u8::from(!is_complete)))
}

fn print_preview(message: &MessagePreview) -> io::Result<()> {
    let mut out = console::text_output();
    writeln!(
        out,
        "{:<12} {} ({})",
        "to",
        console::escape_control_chars(&message.to),
        console::escape_control_chars(&message.recipient)
    )?;
    if let Some(error) = &message.error {
        writeln!(
            out,
            "{:<12} {}",
            console::style_error("error"),
            console::escape_control_chars(error)
        )?;
    }
    let (lines, short): (Vec<_>, Vec<_>) = message
        .parts
        .iter()
        .partition(|part| part.text.contains('\n'));
    for MessagePart { name, text } in short {
        writeln!(out, "{name:<12} {}", console::escape_control_chars(text))?;
    }
    for MessagePart { name, text } in lines {
        writeln!(out, "{name}")?;
        for line in text.lines() {
            writeln!(out, "  {}", console::escape_control_chars(line))?;
        }
    }
    writeln!(out)
}
