//! Checks a stored audience before a campaign is deployed for it. Parts stored over HTTP may
//! contain addresses that are not normalized, but the suppression list matches only the normalized
//! form.

use std::sync::Arc;

use onward_api::problem::Problem;
use onward_base::Timestamp;
use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use onward_campaign_dispatch::{ScopedCampaigns, StoredAudience};
use onward_campaign_file::{Campaign, CampaignChecker, DeployPrerequisite, address};

use super::ApiService;
use super::problems::campaign_problem;
use super::template_workers::RequestBudget;

/// The checks of a campaign and of the recipients read so far.
struct AudienceCheck {
    checker: CampaignChecker,
    channel: DeliveryChannel,
    unusable: UnusableRecipients,
}

/// Recipients whose stored address is invalid or not normalized: their number, and a description of
/// the first.
#[derive(Default)]
struct UnusableRecipients {
    count: u64,
    first: Option<String>,
}

impl AudienceCheck {
    fn add_part(&mut self, number: u32, recipients: &[AudienceRecipient]) {
        for (position, recipient) in recipients.iter().enumerate() {
            match address_error(self.channel, recipient) {
                None => self.checker.add_recipient(recipient),
                Some(reason) => {
                    self.unusable.count += 1;
                    let describe = || {
                        format!(
                            "`{}` (part {number}, position {position}): {reason}",
                            recipient.id
                        )
                    };
                    self.unusable.first.get_or_insert_with(describe);
                }
            }
        }
    }

    fn finish(self) -> Vec<DeployPrerequisite> {
        let (mut list, _) = self.checker.finish();
        if let Some(first) = self.unusable.first {
            // `invalid_rows: skip` applies only when an audience file is read: a stored audience is
            // deployed as a whole.
            let message = format!(
                "{} recipients have an invalid address; the first is {first}",
                self.unusable.count
            );
            list.retain(|it| it.id != "audience.rows");
            list.push(DeployPrerequisite::unmet("audience.rows", &message));
        }
        list
    }
}

impl ApiService {
    /// Checks the deploy prerequisites of a campaign and of all recipients of its audience. Holds
    /// one part in memory at a time.
    pub(super) async fn check_audience(
        &self,
        campaigns: &ScopedCampaigns,
        campaign: &Arc<Campaign>,
        audience: &StoredAudience,
        (now, budget): (Timestamp, &RequestBudget),
    ) -> Result<Vec<DeployPrerequisite>, Problem> {
        let own = Arc::clone(campaign);
        let begin = move || AudienceCheck {
            channel: own.channel,
            checker: CampaignChecker::new(own, now),
            unusable: UnusableRecipients::default(),
        };
        let mut check = self.run_template_work(budget, begin).await?;
        for number in audience.part_numbers() {
            let recipients = campaigns
                .read_recipients(audience, number)
                .await
                .map_err(campaign_problem)?;
            let add_part = move || {
                check.add_part(number, &recipients);
                check
            };
            check = self.run_template_work(budget, add_part).await?;
        }
        let (own, service) = (Arc::clone(campaign), self.clone());
        self.run_template_work(budget, move || {
            service.add_provider_checks(&own, check.finish())
        })
        .await
    }
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
