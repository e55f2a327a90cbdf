//! Validates the input of campaign requests: campaigns, recipients, addresses, resolutions and page
//! cursors.

use onward_api::RawJson;
use onward_api::campaign::{ChannelName, RecipientInput};
use onward_api::outbox::ItemResolution;
use onward_api::problem::{Code, Problem};
use onward_campaign_dispatch::Resolution;
use onward_campaign_file::Campaign;

use super::campaign_documents::delivery_channel;
use super::problems::{INVALID_CURSOR, check_length, invalid_field};

/// Maximum lengths in characters: the reason of an operation, an address, an id.
pub(super) const REASON_MAX: usize = 1_024;
pub(super) const ADDRESS_MAX: usize = 1_024;
pub(super) const ID_MAX: usize = 255;

pub(super) fn parse_campaign(campaign: &RawJson) -> Result<Campaign, Problem> {
    Campaign::from_document(campaign.as_str())
        .map_err(|error| Problem::new(Code::Unprocessable, format!("invalid campaign: {error}")))
}

pub(super) fn parse_recipient(
    recipient: RecipientInput,
) -> Result<onward_campaign_core::AudienceRecipient, Problem> {
    let RecipientInput { id, to, data } = recipient;
    if id.is_empty() || to.is_empty() {
        return Err(Problem::new(
            Code::Unprocessable,
            "a recipient needs an id and an address: `id` and `to` must not be empty",
        ));
    }
    if id.chars().chain(to.chars()).any(char::is_control) {
        return Err(Problem::new(
            Code::Unprocessable,
            "`id` and `to` of a recipient must not contain control characters",
        ));
    }
    check_length("id", &id, ID_MAX)?;
    check_length("to", &to, ADDRESS_MAX)?;
    Ok(onward_campaign_core::AudienceRecipient {
        id,
        address: to,
        data,
    })
}

/// Normalizes an address to the form that audiences use. Fails if it is invalid for the channel.
pub(super) fn normalize_address(channel: ChannelName, address: &str) -> Result<String, Problem> {
    let channel = delivery_channel(channel);
    onward_campaign_file::address::parse_address(channel, address.trim()).map_err(|reason| {
        Problem::new(
            Code::Unprocessable,
            format!("invalid address {address}: {reason}"),
        )
    })
}

/// Validates a resolution and its reason. Fails if the reason is empty.
pub(super) fn parse_resolution(
    resolution: ItemResolution,
    message_id: Option<String>,
    reason: &str,
) -> Result<Resolution, Problem> {
    check_length("reason", reason, REASON_MAX)?;
    if reason.trim().is_empty() {
        return Err(Problem::new(
            Code::Unprocessable,
            "reason: required; state how the outcome of the item was determined",
        ));
    }
    if message_id
        .as_deref()
        .is_some_and(|id| id.chars().any(char::is_control))
    {
        return Err(Problem::new(
            Code::Unprocessable,
            "messageId must not contain line breaks or control characters",
        ));
    }
    Ok(match resolution {
        ItemResolution::Sent => Resolution::Sent(message_id),
        ItemResolution::Failed => Resolution::Failed,
        ItemResolution::Resend => Resolution::Retry,
    })
}

/// Parses the cursor after which a list continues. Fails if it is malformed.
pub(super) fn parse_page_cursor<T>(
    after: Option<&str>,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Problem> {
    after
        .map(|text| parse(text).ok_or_else(|| invalid_field("after", INVALID_CURSOR)))
        .transpose()
}
