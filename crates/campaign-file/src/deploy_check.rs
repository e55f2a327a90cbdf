//! The prerequisites of a deployment: checks of a campaign and its audience before any message is
//! sent.

use onward_base::Timestamp;
use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde::{Deserialize, Serialize};

use crate::address;
use crate::audience::{AudienceReport, BadRow};
use crate::campaign::{BadRowPolicy, Campaign, UNSUBSCRIBE_PART};
use crate::duplicates::{DuplicateCounts, DuplicateDetector};
use crate::sample_message::SampleMessage;
use crate::template_composer::{MessageRenderError, TemplateComposer};
use crate::time_zone;

/// The first 1000 recipients are all rendered; after that, one of every 1000.
const RENDER_SAMPLE_ROWS: u64 = 1_000;
/// Maximum number of characters of an unknown time zone in a message.
const ZONE_CHARS_MAX: usize = 60;
const DAY_US: i64 = 24 * 3_600 * 1_000_000;

/// One prerequisite of a deployment and the result of its check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployPrerequisite {
    /// Id of the prerequisite, such as `template.compiles`.
    pub id: String,
    /// Whether the prerequisite is met. A campaign is deployable if all are.
    pub pass: bool,
    /// What the check found, for the user; set whether or not the check passed.
    pub message: String,
}

impl DeployPrerequisite {
    /// Creates the result of one check.
    pub fn new(id: impl Into<String>, pass: bool, message: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            pass,
            message: message.into(),
        }
    }

    fn from_result(id: &str, found: Result<String, String>) -> Self {
        match found {
            Ok(message) => Self::new(id, true, message),
            Err(message) => Self::new(id, false, message),
        }
    }
}

/// Input of [`check_campaign`] besides the campaign itself.
#[derive(Debug, Clone, Copy)]
pub struct DeployCheckInput<'a> {
    /// The current time, against which the start time and the quiet hours are checked.
    pub now: Timestamp,
    /// Some recipients of the audience, for which the templates are rendered.
    pub sample: &'a [AudienceRecipient],
    /// The report of the audience; `None` if the audience was not read.
    pub report: Option<&'a AudienceReport>,
}

/// Returns all prerequisites of the campaign with their results. The caller adds the prerequisites
/// of the provider.
pub fn check_campaign(
    campaign: &Campaign,
    facts: &DeployCheckInput<'_>,
) -> Vec<DeployPrerequisite> {
    let mut checker = CampaignChecker::new(campaign, facts.now);
    for recipient in facts.sample {
        checker.add_recipient(recipient);
    }
    let mut list = checker.campaign_prerequisites();
    list.extend(
        facts
            .report
            .into_iter()
            .flat_map(|report| audience_prerequisites(campaign, report)),
    );
    list
}

/// Checks a campaign while the caller streams its audience.
#[derive(Debug)]
pub struct CampaignChecker<'a> {
    campaign: &'a Campaign,
    now: Timestamp,
    composer: Result<TemplateComposer, MessageRenderError>,
    report: AudienceReport,
    rendered: u64,
    /// Number of recipients whose message cannot be rendered, and the error of the first.
    unrenderable: u64,
    first_unrenderable: Option<String>,
    /// The first message that was rendered without an error.
    sample: Option<SampleMessage>,
    /// Number of recipients with a known time zone and with an unknown one, and the first unknown
    /// name.
    known_zones: u64,
    unknown_zones: u64,
    first_unknown_zone: Option<String>,
    duplicates: DuplicateDetector,
}

impl<'a> CampaignChecker<'a> {
    /// Creates a checker that has read no recipient yet, and compiles the templates of the
    /// campaign.
    pub fn new(campaign: &'a Campaign, now: Timestamp) -> Self {
        let (composer, report) = (TemplateComposer::new(campaign), AudienceReport::default());
        Self {
            campaign,
            now,
            composer,
            report,
            rendered: 0,
            unrenderable: 0,
            first_unrenderable: None,
            sample: None,
            known_zones: 0,
            unknown_zones: 0,
            first_unknown_zone: None,
            duplicates: DuplicateDetector::default(),
        }
    }

    /// Checks the recipient of one usable row.
    pub fn add_recipient(&mut self, recipient: &AudienceRecipient) {
        let place = self.report.good;
        self.report.count_good();
        self.duplicates.add_recipient(recipient);
        self.count_time_zone(recipient);
        if (place < RENDER_SAMPLE_ROWS || place.is_multiple_of(RENDER_SAMPLE_ROWS))
            && let Ok(composer) = &self.composer
        {
            self.rendered += 1;
            match composer.render_message(recipient) {
                Ok(message) => drop(
                    self.sample
                        .get_or_insert_with(|| SampleMessage::new(recipient, message)),
                ),
                Err(unfit) => {
                    self.unrenderable += 1;
                    self.first_unrenderable
                        .get_or_insert_with(|| format!("{unfit} (recipient `{}`)", recipient.id));
                }
            }
        }
    }

    fn count_time_zone(&mut self, recipient: &AudienceRecipient) {
        let zone = self
            .zone_field()
            .and_then(|field| recipient.data.get(field)?.as_str());
        match zone.filter(|zone| !zone.is_empty()) {
            Some(zone) if time_zone::find_time_zone(zone).is_some() => self.known_zones += 1,
            Some(zone) => {
                self.unknown_zones += 1;
                self.first_unknown_zone
                    .get_or_insert_with(|| zone.chars().take(ZONE_CHARS_MAX).collect());
            }
            None => {}
        }
    }

    /// Counts one row that cannot be used.
    pub fn add_bad_row(&mut self, row: BadRow) {
        self.report.count_bad(row);
    }

    /// The report of the audience read so far, without the duplicates.
    pub fn audience_report(&self) -> &AudienceReport {
        &self.report
    }

    /// The first message rendered so far, or `None` if no recipient's message could be rendered.
    pub fn sample_message(&self) -> Option<&SampleMessage> {
        self.sample.as_ref()
    }

    /// Ends the audience: returns all prerequisites and the report of the audience with its
    /// duplicates.
    pub fn finish(mut self) -> (Vec<DeployPrerequisite>, AudienceReport) {
        let found = self.duplicates.duplicate_counts();
        self.report.repeated = Some(found);
        let mut list = self.campaign_prerequisites();
        list.extend(audience_prerequisites(self.campaign, &self.report));
        if found.of > 0 {
            let message = describe_duplicates(
                &self.campaign.audience_fields().address,
                found,
                self.report.good,
            );
            list.push(DeployPrerequisite::new("audience.repeated", true, message));
        }
        (list, self.report)
    }

    fn campaign_prerequisites(&self) -> Vec<DeployPrerequisite> {
        let compiles = self
            .composer
            .as_ref()
            .map(|_| "all parts can be read".to_owned());
        let mut list = vec![DeployPrerequisite::from_result(
            "template.compiles",
            compiles.map_err(MessageRenderError::to_string),
        )];
        if self.rendered > 0 {
            list.push(DeployPrerequisite::from_result(
                "template.renders",
                self.check_rendering(),
            ));
        }
        if self.campaign.channel == DeliveryChannel::Email {
            list.push(DeployPrerequisite::from_result(
                "email.parts",
                check_email_parts(self.campaign),
            ));
            list.extend(check_from_address(self.campaign));
            list.push(DeployPrerequisite::new(
                "email.unsubscribe",
                true,
                describe_unsubscribe(self.campaign),
            ));
        }
        list.push(DeployPrerequisite::from_result(
            "schedule",
            check_schedule(self.campaign, self.now),
        ));
        if let Some(field) = self.zone_field().filter(|_| self.report.good > 0) {
            list.push(DeployPrerequisite::from_result(
                "schedule.zones",
                self.check_time_zones(field),
            ));
        }
        list
    }

    /// The field that has a recipient's own time zone, if the quiet hours use one.
    fn zone_field(&self) -> Option<&'a str> {
        self.campaign.schedule.quiet.as_ref()?.zone_field()
    }

    /// Fails if no recipient has a known time zone in the field: the field name is probably
    /// misspelled, and all recipients would get the time zone of the campaign.
    fn check_time_zones(&self, field: &str) -> Result<String, String> {
        let (zoned, all) = (self.known_zones, self.report.good);
        let lost = self.first_unknown_zone.as_ref().map(|first| {
            format!("{} name one that there is not, and go by the clock of the campaign, such as `{first}`", self.unknown_zones)
        });
        match (zoned, lost) {
            (0, None) => Err(format!("quiet hours go by `{field}`, and nobody has that")),
            (0, Some(lost)) => Err(format!(
                "nobody has a time zone in `{field}` that there is; {lost}"
            )),
            (_, lost) => {
                let lost = lost.map(|lost| format!("; {lost}")).unwrap_or_default();
                Ok(format!(
                    "{zoned} of {all} say in which time zone they are{lost}"
                ))
            }
        }
    }

    fn check_rendering(&self) -> Result<String, String> {
        match &self.first_unrenderable {
            None => Ok(format!("filled in for {} recipients", self.rendered)),
            Some(first) => Err(format!(
                "cannot be filled in for {} of {} recipients; {first}",
                self.unrenderable, self.rendered
            )),
        }
    }
}

fn check_email_parts(campaign: &Campaign) -> Result<String, String> {
    let has = |part: &str| {
        campaign
            .template
            .get(part)
            .is_some_and(|text| !text.trim().is_empty())
    };
    let mut lacking: Vec<&str> = ["from", "subject"]
        .into_iter()
        .filter(|part| !has(part))
        .collect();
    if !has("text") && !has("html") {
        lacking.push("text or html");
    }
    if lacking.is_empty() {
        return Ok("from, subject and a body are there".to_owned());
    }
    Err(format!("a mail needs {}", lacking.join(" and ")))
}

/// Checks the `from` address if it is the same for all recipients. An address with variables is
/// checked when it is rendered.
fn check_from_address(campaign: &Campaign) -> Option<DeployPrerequisite> {
    let from = campaign
        .template
        .get("from")
        .filter(|text| !text.contains('{'))?;
    let found = address::check_mailbox(from).map(|()| format!("from {}", from.trim()));
    Some(DeployPrerequisite::from_result(
        "email.from",
        found.map_err(|reason| format!("`from` is no address: {reason}")),
    ))
}

fn describe_unsubscribe(campaign: &Campaign) -> &'static str {
    if campaign
        .template_parts()
        .any(|(part, _)| part == UNSUBSCRIBE_PART)
    {
        "recipients can unsubscribe"
    } else {
        "no way to unsubscribe is given: large mail services want one, and many laws do"
    }
}

fn check_schedule(campaign: &Campaign, now: Timestamp) -> Result<String, String> {
    let quiet = campaign
        .schedule
        .quiet
        .as_ref()
        .and_then(|quiet| quiet.wait_in_zone(now, None));
    match (campaign.schedule.start_time()?, quiet) {
        (None, None) => Ok("begins at once".to_owned()),
        (None, Some(wait)) => {
            let until = now
                .as_micros()
                .saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX));
            let until = Timestamp::from_micros(until).unwrap_or(Timestamp::MAX);
            Ok(format!(
                "begins when the quiet hours end, at {until} by the clock of the campaign"
            ))
        }
        (Some(at), _) => check_start_time(at, now),
    }
}

fn check_start_time(at: Timestamp, now: Timestamp) -> Result<String, String> {
    match at {
        at if at.as_micros() < now.as_micros().saturating_sub(DAY_US) => {
            Err(format!("was to begin at {at}, more than a day ago"))
        }
        at if at <= now => Ok(format!("begins at once: {at} has gone by")),
        at => Ok(format!("begins at {at}")),
    }
}

/// Describes the duplicates. This check never fails: one person may have two ids with one address,
/// but no two people have one id. The user is informed of both counts.
fn describe_duplicates(address: &str, found: DuplicateCounts, all: u64) -> String {
    let DuplicateCounts { ids, addresses, of } = found;
    let ids = match ids {
        0 => "nobody is named twice".to_owned(),
        _ => format!("rows that name somebody again, by the same id, who is reached once: {ids}"),
    };
    let addresses = match addresses {
        0 => String::new(),
        _ => format!(
            "; rows with an address that somebody else has, who is reached there too: {addresses} (`id: {address}` reaches each address once)"
        ),
    };
    let looked_at = if of < all {
        format!("; of the first {of} rows")
    } else {
        String::new()
    };
    format!("{ids}{addresses}{looked_at}")
}

fn audience_prerequisites(campaign: &Campaign, report: &AudienceReport) -> [DeployPrerequisite; 2] {
    let AudienceReport {
        good, bad, samples, ..
    } = report;
    let somebody = DeployPrerequisite::new(
        "audience.somebody",
        *good > 0,
        format!("{good} rows can be used"),
    );
    let first = samples
        .first()
        .map(|row| format!("; the first is {row}"))
        .unwrap_or_default();
    let rows = match (bad, campaign.audience.bad_rows) {
        (0, _) => Ok("all rows can be used".to_owned()),
        (bad, BadRowPolicy::Skip) => {
            Ok(format!("{bad} rows cannot be used and are skipped{first}"))
        }
        (bad, BadRowPolicy::Refuse) => Err(format!(
            "{bad} rows cannot be used{first}. Mend them, or say `bad_rows: skip`"
        )),
    };
    [
        somebody,
        DeployPrerequisite::from_result("audience.rows", rows),
    ]
}
