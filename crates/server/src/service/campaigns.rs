//! Campaigns: checking, deploying, watching, settling.

use std::io;

use async_trait::async_trait;
use onward_api::campaign::{
    AudiencePart, AuditEntry, AuditListing, AuditPage, By, CampaignListing, CampaignPage, CampaignRun, CampaignSummary,
    Campaigning, ChannelName, Checked, Control, DeployCampaign, DeployedCampaign, MessagePart, Preview, Previewed,
    PreviewedMessage, Reached, Recipient, RunWaits, UnderWay,
};
use onward_api::finding::{self, Finding};
use onward_api::outbox::{
    DoubtListing, ItemVerdict, Job, JobListing, JobPage, OutboxItem, OutboxListing, OutboxPage, Settle, SettleMany,
    Settlement, Suppress, Suppression, SuppressionListing, SuppressionPage, Unsettled, Unsuppressed,
};
use onward_api::problem::{Code, Problem};
use onward_api::{Json, json};
use onward_campaign::{Campaign, Composer, Facts, Prerequisite, ProviderRef, check};
use onward_dispatch::{Channel, JobStatus, RunStatus};
use onward_dispatcher::{
    Ailment, Campaigns, Deployed, Deployment, Entropy, Flaw, JobFilter, JobPlace, Looked, Pace, Place, Refused, Scope,
    Verdict, examine,
};
use onward_store::tables::{self, CampaignRun as Row};

use super::executions::{KEY_MAX, page_size};
use super::refused::{fitting, store, unreadable};
use super::told;
use super::{Service, audience};

/// Things of a page, unless told.
const PAGE: u32 = 100;

/// Recipients of a preview.
const PREVIEW_MAX: usize = 100;

/// Items of one verdict.
const SETTLED_MAX: usize = 1_000;

/// Characters of the name of an audience, and the number of its last part.
const AUDIENCE_MAX: usize = 100;
const PART_MAX: u32 = 98_999;

/// Characters of who wants something, of why, and of addresses.
const WHO_MAX: usize = 200;
const WHY_MAX: usize = 1_024;
const ADDRESS_MAX: usize = 1_024;
const ID_MAX: usize = 255;

impl Service {
    fn campaigns(&self) -> Campaigns {
        let scope = self.client.scope();
        let workspace = format!("{}/{}", scope.project, scope.environment);
        let scope = Scope { tenant: scope.tenant.to_string().into(), workspace: workspace.into() };
        Campaigns::new(std::sync::Arc::clone(self.client.store()), scope)
    }

    /// Looks whether any campaign run is stuck.
    pub(super) async fn examine_campaigns(
        &self,
        report: &mut (dyn FnMut(&Finding) -> io::Result<()> + Send),
    ) -> Result<Looked, Problem> {
        let campaigns = self.campaigns();
        let scope = self.checked().map(|_| campaigns.scope());
        let mut tell = |Flaw { run, ailment, message }: Flaw| {
            let code = match ailment {
                Ailment::Missing => finding::Code::CampaignIncomplete,
                Ailment::Differs => finding::Code::CampaignDiffers,
                Ailment::Forgotten => finding::Code::CampaignForgotten,
                Ailment::InDoubt => finding::Code::CampaignInDoubt,
                Ailment::Late => finding::Code::CampaignLate,
            };
            drop(report(&Finding::of_campaign(run.to_string(), code, message)));
        };
        examine(&**self.client.store(), scope, &mut tell).await.map_err(store)
    }

    /// Who wants something, for the record: whoever the token belongs to, and whoever they say.
    fn who(&self, by: Option<&str>) -> Result<String, Problem> {
        fitting("by", by.unwrap_or_default(), WHO_MAX)?;
        let said = by.filter(|by| !by.is_empty());
        Ok(match (said, &self.asker) {
            (Some(said), Some(token)) => format!("{said} (token {token})"),
            (Some(said), None) => said.to_owned(),
            (None, Some(token)) => format!("token {token}"),
            (None, None) => "somebody".to_owned(),
        })
    }

    /// What has to be so before a campaign is deployed, as far as it can be told without its audience.
    async fn prerequisites(&self, campaign: &Campaign) -> Result<Vec<Prerequisite>, Problem> {
        let now = self.client.store().now().await.map_err(store)?;
        Ok(self.with_provider(campaign, check(campaign, &Facts { now, sample: &[], report: None })))
    }

    /// What has to be so with the campaign, and with whoever is to send it.
    fn with_provider(&self, campaign: &Campaign, mut all: Vec<Prerequisite>) -> Vec<Prerequisite> {
        all.extend(self.house.as_ref().map(|house| house.check(campaign)).unwrap_or_default());
        all
    }

    async fn shown(&self, campaigns: &Campaigns, row: Row) -> Result<CampaignRun, Problem> {
        let tally = campaigns.tally(&row.id).await.map_err(problem)?;
        let retried_by = campaigns.retried_by(&row).await.map_err(problem)?.map(|run| run.id.to_string());
        let provider = match Campaign::from_document(&row.document).map(|campaign| campaign.provider) {
            Ok(ProviderRef::Named(name)) => name,
            Ok(ProviderRef::Inline(definition)) => definition.keys().cloned().collect(),
            Err(_) => String::new(),
        };
        let (mut under_way, mut waits) = (None, None);
        match campaigns.pace(&row).await.map_err(problem)? {
            Some(Pace::UnderWay { jobs, until }) => under_way = Some(UnderWay { jobs, until: until.to_string() }),
            Some(Pace::Waits(until, why)) => {
                waits = Some(RunWaits { until: until.to_string(), why: why.map(|why| why.to_string()) });
            }
            None => {}
        }
        let (summary, tally) = (told::summary(&row), told::tally(&tally));
        Ok(CampaignRun { summary, tally, provider, retried_by, under_way, waits })
    }
}

fn parsed(campaign: &Json) -> Result<Campaign, Problem> {
    Campaign::from_document(campaign.as_str())
        .map_err(|error| Problem::new(Code::Unprocessable, format!("the campaign: {error}")))
}

/// What somebody would be sent, or why there is nothing that can be.
pub fn previewed(composer: &Composer, recipient: onward_dispatcher::Recipient) -> PreviewedMessage {
    let (parts, error) = match composer.preview(&recipient) {
        Ok(message) => (message.parts, None),
        Err(error) => (Vec::new(), Some(error)),
    };
    let parts = parts.into_iter().map(|(name, text)| MessagePart { name, text }).collect();
    PreviewedMessage { recipient: recipient.id, to: recipient.address, parts, error }
}

fn deployed(deployed: &Deployed) -> DeployedCampaign {
    let Deployed { run, existed, items, jobs, left_out } = deployed;
    let (run, prerequisites) = (run.to_string(), Vec::new());
    DeployedCampaign { run, existed: *existed, items: *items, jobs: *jobs, left_out: *left_out, prerequisites }
}

/// What has to be so before a campaign is deployed, if it is.
fn met(prerequisites: Vec<Prerequisite>) -> Result<Vec<onward_api::campaign::Prerequisite>, Problem> {
    let unmet = prerequisites.iter().filter(|it| !it.pass).map(|it| format!("{}: {}", it.id, it.message));
    let unmet = unmet.collect::<Vec<_>>().join("; ");
    let prerequisites = prerequisites.into_iter().map(told::prerequisite).collect();
    if unmet.is_empty() {
        return Ok(prerequisites);
    }
    Err(Problem { prerequisites, ..Problem::new(Code::Unprocessable, unmet) })
}

fn recipient(recipient: Recipient) -> Result<onward_dispatcher::Recipient, Problem> {
    let Recipient { id, to, data } = recipient;
    if id.is_empty() || to.is_empty() {
        return Err(Problem::new(Code::Unprocessable, "a recipient has an id, and an address to be reached at"));
    }
    if id.chars().chain(to.chars()).any(char::is_control) {
        return Err(Problem::new(Code::Unprocessable, "ids and addresses have no control characters"));
    }
    fitting("the id of a recipient", &id, ID_MAX)?;
    fitting("the address of a recipient", &to, ADDRESS_MAX)?;
    Ok(onward_dispatcher::Recipient { id, address: to, data })
}

/// An address as audiences have it.
fn reached_at(channel: ChannelName, address: &str) -> Result<String, Problem> {
    let wrong = |reason: &str| Problem::new(Code::Unprocessable, format!("the address {address}: {reason}"));
    let channel = Channel::parse(channel.as_str()).ok_or_else(|| wrong("no such channel"))?;
    onward_campaign::address::parse(channel, address.trim()).map_err(wrong)
}

/// A verdict, and how it is known.
fn founded(verdict: ItemVerdict, message_id: Option<String>, why: &str) -> Result<Verdict, Problem> {
    fitting("why", why, WHY_MAX)?;
    if why.trim().is_empty() {
        return Err(Problem::new(Code::Unprocessable, "why: how it is known what became of the item"));
    }
    if message_id.as_deref().is_some_and(|id| id.chars().any(char::is_control)) {
        return Err(Problem::new(Code::Unprocessable, "the id of a message has no line breaks or control characters"));
    }
    Ok(match verdict {
        ItemVerdict::Sent => Verdict::Served(message_id),
        ItemVerdict::Failed => Verdict::Failed,
        ItemVerdict::Again => Verdict::Again,
    })
}

/// Where a list goes on.
fn place<T>(after: Option<&str>, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, Problem> {
    after.map(|text| parse(text).ok_or_else(|| unreadable("after", "that is not where a page ended"))).transpose()
}

/// Why the dispatcher refused.
pub(super) fn problem(refused: Refused) -> Problem {
    let code = match &refused {
        Refused::NoRun(_) | Refused::NoItem(_) | Refused::NoJob(_) | Refused::NoAudience(_) => Code::NotFound,
        Refused::Cancelled(_)
        | Refused::NotInDoubt(_)
        | Refused::NotDead(_)
        | Refused::NotOver(_)
        | Refused::Undecided(..)
        | Refused::Retried(..) => Code::Conflict,
        Refused::AudienceOld(_)
        | Refused::Over(_)
        | Refused::AtWork(_)
        | Refused::Held(..)
        | Refused::PartMissing(..)
        | Refused::PartTaken(..) => Code::Conflict,
        Refused::NobodyToReach | Refused::EverybodyReached | Refused::PartSize(_) | Refused::TooManyJobs(_) => {
            Code::Unprocessable
        }
        Refused::Ambiguous(_) | Refused::TooShort(_) => Code::AmbiguousId,
        Refused::KeyTaken(_) => Code::KeyTaken,
        Refused::Reached { .. } => Code::ReachedBefore,
        Refused::Store(_) => Code::Internal,
    };
    match refused {
        Refused::Store(error) => store(error),
        other => Problem::new(code, other.to_string()),
    }
}

#[async_trait]
impl Campaigning for Service {
    async fn check_campaign(&self, campaign: Json) -> Result<Checked, Problem> {
        let prerequisites = self.prerequisites(&parsed(&campaign)?).await?;
        let pass = prerequisites.iter().all(|it| it.pass);
        Ok(Checked { pass, prerequisites: prerequisites.into_iter().map(told::prerequisite).collect() })
    }

    async fn preview_campaign(&self, preview: Preview) -> Result<Previewed, Problem> {
        let campaign = parsed(&preview.campaign)?;
        if preview.recipients.len() > PREVIEW_MAX {
            return Err(Problem::new(Code::Unprocessable, "a preview is for at most 100 recipients"));
        }
        let composer =
            Composer::new(&campaign).map_err(|error| Problem::new(Code::Unprocessable, error.to_string()))?;
        let mut messages = Vec::new();
        for wanted in preview.recipients {
            messages.push(previewed(&composer, recipient(wanted)?));
        }
        Ok(Previewed { messages })
    }

    async fn put_audience_part(&self, audience: &str, number: u32, part: AudiencePart) -> Result<(), Problem> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if !(1..=AUDIENCE_MAX).contains(&audience.len()) || !audience.bytes().all(is_name) {
            return Err(unreadable("audience", "1 to 100 letters, digits, _ and -"));
        }
        if number > PART_MAX {
            return Err(unreadable("number", format!("{number} is not from 0 to {PART_MAX}")));
        }
        let recipients = part.recipients.into_iter().map(recipient).collect::<Result<Vec<_>, _>>()?;
        self.campaigns().put_part(audience, number, &recipients).await.map_err(problem)
    }

    async fn deploy_campaign(&self, deploy: DeployCampaign) -> Result<DeployedCampaign, Problem> {
        let DeployCampaign { campaign, audience, key, reached, by } = deploy;
        fitting("the key", key.as_deref().unwrap_or_default(), KEY_MAX)?;
        if key.as_deref() == Some("") {
            return Err(Problem::new(Code::Unprocessable, "the key is empty: leave it out, or say one"));
        }
        let campaign = parsed(&campaign)?;
        let campaigns = self.campaigns();
        let audience = campaigns.audience(&audience).await.map_err(problem)?;
        let scheduled_for = campaign.schedule.begins_at().map_err(|error| unreadable("schedule", error))?;
        let deployment = Deployment {
            campaign: campaign.id.as_str().into(),
            channel: campaign.channel,
            asset: campaign.asset(),
            document: campaign.to_document().into(),
            scheduled_for,
            key,
            reached: match reached {
                Reached::Refuse => onward_dispatcher::Reached::Refuse,
                Reached::LeaveOut => onward_dispatcher::Reached::LeaveOut,
                Reached::Again => onward_dispatcher::Reached::Again,
            },
            by: self.who(by.as_deref())?,
        };
        // Whoever has heard no answer asks again, whatever has changed since.
        if let Some(made) = campaigns.deployed(&deployment, &audience).await.map_err(problem)? {
            return Ok(deployed(&made));
        }
        let now = self.client.store().now().await.map_err(store)?;
        let looked = audience::look(&campaigns, &campaign, &audience, now).await.map_err(problem)?;
        let prerequisites = met(self.with_provider(&campaign, looked))?;
        let made = campaigns.deploy(&deployment, &audience, &Entropy::default()).await.map_err(problem)?;
        Ok(DeployedCampaign { prerequisites, ..deployed(&made) })
    }

    async fn campaign_runs(&self, listing: CampaignListing) -> Result<CampaignPage, Problem> {
        let limit = page_size(listing.limit, PAGE)?;
        let after = place(listing.after.as_deref(), Place::parse)?;
        let status = listing.status.and_then(|status| RunStatus::parse(status.as_str()));
        let rows = self.campaigns().runs(listing.campaign.as_deref(), status, after.as_ref(), limit).await;
        let rows = rows.map_err(problem)?;
        let next = rows.last().filter(|_| rows.len() == limit);
        let next = next.map(|last| Place { at: last.created_at, id: last.id.clone() }.to_string());
        Ok(CampaignPage { runs: rows.iter().map(told::summary).collect::<Vec<CampaignSummary>>(), next })
    }

    async fn campaign_run(&self, run: &str) -> Result<CampaignRun, Problem> {
        let campaigns = self.campaigns();
        let row = campaigns.find(run).await.map_err(problem)?;
        self.shown(&campaigns, row).await
    }

    async fn campaign_audit(&self, run: &str, listing: AuditListing) -> Result<AuditPage, Problem> {
        let limit = page_size(listing.limit, PAGE)?;
        let campaigns = self.campaigns();
        let row = campaigns.find(run).await.map_err(problem)?;
        let rows = campaigns.audit(&row.id, listing.after.unwrap_or(0), limit).await.map_err(problem)?;
        let next = rows.last().filter(|_| rows.len() == limit).and_then(|last| last.entry_id.0);
        let entry = |row: tables::AuditEntry| {
            let detail = row.detail.as_deref().map(json).transpose()?.unwrap_or_default();
            let (event, at) = (row.event.to_string(), row.created_at.to_string());
            Ok(AuditEntry { entry: row.entry_id.0.unwrap_or(0), event, at, detail })
        };
        Ok(AuditPage { entries: rows.into_iter().map(entry).collect::<Result<_, Problem>>()?, next })
    }

    async fn control_campaign(&self, run: &str, control: Control, by: By) -> Result<CampaignRun, Problem> {
        let (campaigns, by) = (self.campaigns(), self.who(by.by.as_deref())?);
        let run = campaigns.find(run).await.map_err(problem)?.id;
        let row = match control {
            Control::Active => campaigns.resume(&run, &by).await,
            Control::Paused => campaigns.pause(&run, &by).await,
            Control::Cancelled => campaigns.cancel(&run, &by).await,
        };
        self.shown(&campaigns, row.map_err(problem)?).await
    }

    async fn retry_campaign(&self, run: &str, by: By) -> Result<DeployedCampaign, Problem> {
        let (campaigns, by) = (self.campaigns(), self.who(by.by.as_deref())?);
        let run = campaigns.find(run).await.map_err(problem)?.id;
        Ok(deployed(&campaigns.retry(&run, &by, &Entropy::default()).await.map_err(problem)?))
    }

    async fn outbox(&self, listing: OutboxListing) -> Result<OutboxPage, Problem> {
        let limit = page_size(listing.limit, PAGE)?;
        let campaigns = self.campaigns();
        let run = campaigns.find(&listing.run).await.map_err(problem)?.id;
        let is_wanted = |row: &tables::OutboxItem| {
            listing.standing.is_none_or(|standing| told::standing(row) == standing)
                && listing.recipient.as_deref().is_none_or(|recipient| recipient == &*row.recipient_id)
        };
        let rows = campaigns.items(&run, is_wanted, listing.after.as_deref(), limit).await.map_err(problem)?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|last| last.id.to_string());
        Ok(OutboxPage { items: rows.iter().map(told::item).collect(), next })
    }

    async fn outbox_in_doubt(&self, listing: DoubtListing) -> Result<OutboxPage, Problem> {
        let limit = page_size(listing.limit, PAGE)?;
        let after = place(listing.after.as_deref(), Place::parse)?;
        let (rows, next) = self.campaigns().in_doubt(after.as_ref(), limit).await.map_err(problem)?;
        Ok(OutboxPage { items: rows.iter().map(told::item).collect(), next: next.map(|it| it.to_string()) })
    }

    async fn settle(&self, item: &str, settle: Settle) -> Result<OutboxItem, Problem> {
        let Settle { verdict, why, message_id, by } = settle;
        fitting("the message id", message_id.as_deref().unwrap_or_default(), ID_MAX)?;
        let verdict = founded(verdict, message_id, &why)?;
        let by = self.who(by.as_deref())?;
        let row = self.campaigns().settle(item, &verdict, &by, &why).await.map_err(problem)?;
        Ok(told::item(&row))
    }

    async fn settle_many(&self, settle: SettleMany) -> Result<Settlement, Problem> {
        let SettleMany { items, verdict, why, by } = settle;
        if !(1..=SETTLED_MAX).contains(&items.len()) {
            let words = format!("items: 1 to {SETTLED_MAX} of them, and not {}", items.len());
            return Err(Problem::new(Code::Unprocessable, words));
        }
        let verdict = founded(verdict, None, &why)?;
        let by = self.who(by.as_deref())?;
        let outcomes = self.campaigns().settle_all(&items, &verdict, &by, &why).await.map_err(problem)?;
        let mut settlement = Settlement { settled: Vec::new(), refused: Vec::new() };
        for (item, outcome) in outcomes {
            match outcome.map_err(problem) {
                Ok(row) => settlement.settled.push(told::item(&row)),
                Err(Problem { code, detail, .. }) => settlement.refused.push(Unsettled { item, code, detail }),
            }
        }
        Ok(settlement)
    }

    async fn jobs(&self, listing: JobListing) -> Result<JobPage, Problem> {
        let limit = page_size(listing.limit, PAGE)?;
        let after = place(listing.after.as_deref(), JobPlace::parse)?;
        let campaigns = self.campaigns();
        let run = match &listing.run {
            Some(run) => Some(campaigns.find(run).await.map_err(problem)?.id.to_string()),
            None => None,
        };
        let status = listing.status.and_then(|status| JobStatus::parse(status.as_str()));
        let rows = campaigns.jobs(&JobFilter { run, status }, after.as_ref(), limit).await.map_err(problem)?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|last| JobPlace::of(last).to_string());
        Ok(JobPage { jobs: rows.iter().map(told::job).collect(), next })
    }

    async fn redrive(&self, job: &str, by: By) -> Result<Job, Problem> {
        let by = self.who(by.by.as_deref())?;
        Ok(told::job(&self.campaigns().redrive(job, &by).await.map_err(problem)?))
    }

    async fn suppressions(&self, listing: SuppressionListing) -> Result<SuppressionPage, Problem> {
        let limit = page_size(listing.limit, PAGE)?;
        let rows = self.campaigns().suppressed(listing.channel.as_str(), listing.after.as_deref(), limit).await;
        let rows = rows.map_err(problem)?;
        let next = rows.last().filter(|_| rows.len() == limit).map(|last| last.address.to_string());
        Ok(SuppressionPage { suppressions: rows.iter().map(told::suppression).collect(), next })
    }

    async fn suppress(&self, suppress: Suppress) -> Result<Suppression, Problem> {
        let Suppress { channel, address, reason } = suppress;
        fitting("the address", &address, ADDRESS_MAX)?;
        fitting("the reason", &reason, WHY_MAX)?;
        let address = reached_at(channel, &address)?;
        let row = self.campaigns().suppress(channel.as_str(), &address, &reason).await.map_err(problem)?;
        Ok(told::suppression(&row))
    }

    async fn unsuppress(&self, channel: ChannelName, address: &str) -> Result<Unsuppressed, Problem> {
        let address = reached_at(channel, address)?;
        let was_listed = self.campaigns().allow(channel.as_str(), &address).await.map_err(problem)?;
        Ok(Unsuppressed { channel, address, was_listed })
    }
}
