//! Checks a stored audience before a campaign is deployed for it. Parts stored over HTTP may
//! contain addresses that are not normalized, but the suppression list matches only the normalized
//! form.

use onward_base::Timestamp;
use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use onward_campaign_dispatch::{CampaignError, ScopedCampaigns, StoredAudience};
use onward_campaign_file::{Campaign, CampaignChecker, DeployPrerequisite, address};

/// Recipients whose stored address is invalid or not normalized: their number, and a description of
/// the first.
#[derive(Default)]
struct UnusableRecipients {
    count: u64,
    first: Option<String>,
}

/// Checks the deploy prerequisites of a campaign and of all recipients of its audience. Holds one
/// part in memory at a time.
pub(super) async fn check_audience(
    campaigns: &ScopedCampaigns,
    campaign: &Campaign,
    audience: &StoredAudience,
    now: Timestamp,
) -> Result<Vec<DeployPrerequisite>, CampaignError> {
    let (mut checker, mut unusable) = (
        CampaignChecker::new(campaign, now),
        UnusableRecipients::default(),
    );
    for number in audience.part_numbers() {
        for (position, recipient) in campaigns
            .read_recipients(audience, number)
            .await?
            .iter()
            .enumerate()
        {
            match address_error(campaign.channel, recipient) {
                None => checker.add_recipient(recipient),
                Some(reason) => {
                    unusable.count += 1;
                    let describe = || {
                        format!(
                            "`{}` (part {number}, position {position}): {reason}",
                            recipient.id
                        )
                    };
                    unusable.first.get_or_insert_with(describe);
                }
            }
        }
    }
    let (mut list, _) = checker.finish();
    if let Some(first) = unusable.first {
        // `invalid_rows: skip` applies only when an audience file is read: a stored audience is
        // deployed as a whole.
        let message = format!(
            "{} recipients have an invalid address; the first is {first}",
            unusable.count
        );
        list.retain(|it| it.id != "audience.rows");
        list.push(DeployPrerequisite::unmet("audience.rows", &message));
    }
    Ok(list)
}

/// The reason why the stored address cannot be used, or `None` if it is valid and normalized.
fn address_error(channel: DeliveryChannel, recipient: &AudienceRecipient) -> Option<String> {
    match address::parse_address(channel, &recipient.address) {
        Ok(address) if address == recipient.address => None,
        Ok(address) => Some(format!(
            "the address `{}` is not normalized: use `{address}`",
            recipient.address
        )),
        Err(reason) => Some(format!("invalid address `{}`: {reason}", recipient.address)),
    }
}
