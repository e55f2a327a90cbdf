//! The prerequisites of a deployment: checks of a campaign and its audience before any message is
//! sent.

use std::collections::BTreeSet;
use std::sync::Arc;

use onward_base::Timestamp;
use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde::{Deserialize, Serialize};

use crate::address;
use crate::audience::{AudienceReport, InvalidRow};
use crate::campaign::{Campaign, InvalidRowPolicy, UNSUBSCRIBE_PART};
use crate::duplicates::{DuplicateCounts, DuplicateDetector};
use crate::sample_message::SampleMessage;
use crate::template_composer::{MessageRenderError, TemplateComposer};
use crate::time_zone;
use crate::unmet_prerequisite::{RenderFailures, UnknownTimeZones, UnmetPrerequisite};

/// The first 1000 recipients are all rendered; after that, one of every 1000.
const RENDER_SAMPLE_ROWS: u64 = 1_000;
/// Maximum number of repeated ids that are compared by their addresses.
const REPEATED_IDS_MAX: usize = 10_000;
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
    /// Creates the result of a check that passed.
    pub fn met(id: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            pass: true,
            message: message.into(),
        }
    }

    /// Creates the result of a check that failed. The message is the error with what to do.
    pub fn unmet(id: impl Into<String>, error: &impl ToString) -> Self {
        Self {
            id: id.into(),
            pass: false,
            message: error.to_string(),
        }
    }

    fn from_result(id: &str, result: Result<String, UnmetPrerequisite>) -> Self {
        match result {
            Ok(message) => Self::met(id, message),
            Err(error) => Self::unmet(id, &error),
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
    /// The report of the audience. `None`: the audience was not read.
    pub report: Option<&'a AudienceReport>,
}

/// Returns all prerequisites of the campaign with their results. The caller adds the prerequisites
/// of the provider.
pub fn check_campaign(
    campaign: &Campaign,
    input: &DeployCheckInput<'_>,
) -> Vec<DeployPrerequisite> {
    let mut checker = CampaignChecker::new(campaign.clone(), input.now);
    for recipient in input.sample {
        checker.add_recipient(recipient);
    }
    let mut list = checker.campaign_prerequisites();
    list.extend(
        input
            .report
            .into_iter()
            .flat_map(|report| audience_prerequisites(campaign, report)),
    );
    list
}

/// Checks a campaign while the caller streams its audience.
#[derive(Debug)]
pub struct CampaignChecker {
    campaign: Arc<Campaign>,
    now: Timestamp,
    composer: Result<TemplateComposer, MessageRenderError>,
    report: AudienceReport,
    /// Number of recipients for whom the templates were rendered.
    rendered: u64,
    render_failures: Option<RenderFailures>,
    /// The first message that was rendered without an error.
    sample: Option<SampleMessage>,
    /// Number of recipients with a known time zone of their own.
    known_time_zones: u64,
    unknown_time_zones: Option<UnknownTimeZones>,
    duplicates: DuplicateDetector,
    /// Ids that occur more than once, at most [`REPEATED_IDS_MAX`].
    repeated_ids: BTreeSet<String>,
}

impl CampaignChecker {
    /// Creates a checker that has read no recipient yet, and compiles the templates of the
    /// campaign.
    pub fn new(campaign: impl Into<Arc<Campaign>>, now: Timestamp) -> Self {
        let campaign = campaign.into();
        let (composer, report) = (TemplateComposer::new(&campaign), AudienceReport::default());
        Self {
            campaign,
            now,
            composer,
            report,
            rendered: 0,
            render_failures: None,
            sample: None,
            known_time_zones: 0,
            unknown_time_zones: None,
            duplicates: DuplicateDetector::default(),
            repeated_ids: BTreeSet::new(),
        }
    }

    /// Checks the recipient of one valid row.
    pub fn add_recipient(&mut self, recipient: &AudienceRecipient) {
        let index = self.report.valid;
        self.report.count_valid();
        if self.duplicates.add_recipient(recipient) && self.repeated_ids.len() < REPEATED_IDS_MAX {
            self.repeated_ids.insert(recipient.id.clone());
        }
        self.count_time_zone(recipient);
        if index < RENDER_SAMPLE_ROWS || index.is_multiple_of(RENDER_SAMPLE_ROWS) {
            self.render_sample(recipient);
        }
    }

    fn render_sample(&mut self, recipient: &AudienceRecipient) {
        let Ok(composer) = &self.composer else {
            return;
        };
        self.rendered += 1;
        match composer.render_message(recipient) {
            Ok(message) => {
                self.sample
                    .get_or_insert_with(|| SampleMessage::new(recipient, message));
            }
            Err(error) => {
                self.render_failures
                    .get_or_insert_with(|| RenderFailures::starting_with(&recipient.id, error))
                    .count += 1;
            }
        }
    }

    fn count_time_zone(&mut self, recipient: &AudienceRecipient) {
        let zone_field = self.time_zone_field().map(str::to_owned);
        let name = zone_field.and_then(|field| recipient.data.get(&field)?.as_str());
        match name.filter(|name| !name.is_empty()) {
            Some(name) if time_zone::find_time_zone(name).is_some() => self.known_time_zones += 1,
            Some(name) => {
                self.unknown_time_zones
                    .get_or_insert_with(|| UnknownTimeZones::starting_with(name))
                    .count += 1;
            }
            None => {}
        }
    }

    /// Counts one invalid row.
    pub fn add_invalid_row(&mut self, row: InvalidRow) {
        self.report.count_invalid(row);
    }

    /// Ids that occur more than once, for [`ConflictingRows`](crate::ConflictingRows).
    pub const fn repeated_ids(&self) -> &BTreeSet<String> {
        &self.repeated_ids
    }

    /// The report of the audience read so far, without the duplicates.
    pub fn audience_report(&self) -> &AudienceReport {
        &self.report
    }

    /// The first message rendered without an error, or `None` if there is none.
    pub fn sample_message(&self) -> Option<&SampleMessage> {
        self.sample.as_ref()
    }

    /// Ends the audience: returns all prerequisites and the report of the audience with its
    /// duplicates.
    pub fn finish(mut self) -> (Vec<DeployPrerequisite>, AudienceReport) {
        let duplicates = self.duplicates.duplicate_counts();
        self.report.duplicates = Some(duplicates);
        let mut list = self.campaign_prerequisites();
        list.extend(audience_prerequisites(&self.campaign, &self.report));
        if duplicates.checked > 0 {
            let message = describe_duplicates(
                &self.campaign.audience_fields().address,
                duplicates,
                self.report.valid,
            );
            list.push(DeployPrerequisite::met("audience.duplicates", message));
        }
        (list, self.report)
    }

    fn campaign_prerequisites(&self) -> Vec<DeployPrerequisite> {
        let mut list = vec![DeployPrerequisite::from_result(
            "template.compiles",
            self.check_compilation(),
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
                check_email_parts(&self.campaign),
            ));
            list.extend(check_from_address(&self.campaign));
            list.push(DeployPrerequisite::met(
                "email.unsubscribe",
                describe_unsubscribe(&self.campaign),
            ));
        }
        list.push(DeployPrerequisite::from_result(
            "schedule",
            check_schedule(&self.campaign, self.now),
        ));
        if let Some(field) = self.time_zone_field().filter(|_| self.report.valid > 0) {
            list.push(DeployPrerequisite::from_result(
                "schedule.time_zones",
                self.check_time_zones(field),
            ));
        }
        list
    }

    fn check_compilation(&self) -> Result<String, UnmetPrerequisite> {
        match &self.composer {
            Ok(_) => Ok("all template parts compile".to_owned()),
            Err(error) => Err(error.clone().into()),
        }
    }

    fn check_rendering(&self) -> Result<String, UnmetPrerequisite> {
        match &self.render_failures {
            None => Ok(format!("rendered for {} recipients", self.rendered)),
            Some(failures) => Err(UnmetPrerequisite::RenderingFailed {
                failures: failures.clone(),
                rendered: self.rendered,
            }),
        }
    }

    /// The field that has a recipient's own time zone, if the quiet hours use one.
    fn time_zone_field(&self) -> Option<&str> {
        self.campaign
            .schedule
            .quiet_hours
            .as_ref()?
            .time_zone_field()
    }

    /// Fails if no recipient has a known time zone in the field: the field name is probably
    /// misspelled, and all recipients would get the time zone of the campaign.
    fn check_time_zones(&self, field: &str) -> Result<String, UnmetPrerequisite> {
        if self.known_time_zones == 0 {
            return Err(UnmetPrerequisite::NoTimeZone {
                field: field.to_owned(),
                unknown: self.unknown_time_zones.clone(),
            });
        }
        let unknown = self
            .unknown_time_zones
            .as_ref()
            .map(|unknown| format!("; {unknown}"))
            .unwrap_or_default();
        Ok(format!(
            "{} of {} recipients have a time zone of their own{unknown}",
            self.known_time_zones, self.report.valid
        ))
    }
}

fn check_email_parts(campaign: &Campaign) -> Result<String, UnmetPrerequisite> {
    let has = |part: &str| {
        campaign
            .template
            .get(part)
            .is_some_and(|text| !text.trim().is_empty())
    };
    let has_body = has("text") || has("html");
    let parts = [
        (has("from"), "`from`"),
        (has("subject"), "`subject`"),
        (has_body, "`text` or `html`"),
    ];
    let missing: Vec<&str> = parts
        .into_iter()
        .filter_map(|(is_set, part)| (!is_set).then_some(part))
        .collect();
    if missing.is_empty() {
        Ok("`from`, `subject` and a body are set".to_owned())
    } else {
        Err(UnmetPrerequisite::MissingEmailParts(missing))
    }
}

/// Checks the `from` address if it is the same for all recipients. An address with variables is
/// checked when it is rendered.
fn check_from_address(campaign: &Campaign) -> Option<DeployPrerequisite> {
    let from = campaign
        .template
        .get("from")
        .filter(|text| !text.contains('{'))?;
    let checked = address::check_mailbox(from)
        .map(|()| format!("valid address: {}", from.trim()))
        .map_err(UnmetPrerequisite::InvalidFromAddress);
    Some(DeployPrerequisite::from_result("email.from", checked))
}

/// Describes the unsubscribe link. A missing link does not fail the check: the user is warned.
fn describe_unsubscribe(campaign: &Campaign) -> &'static str {
    if campaign
        .template_parts()
        .any(|(part, _)| part == UNSUBSCRIBE_PART)
    {
        "an unsubscribe link is set"
    } else {
        "no unsubscribe link: set `unsubscribe`, which large mail providers and many laws require"
    }
}

fn check_schedule(campaign: &Campaign, now: Timestamp) -> Result<String, UnmetPrerequisite> {
    let schedule = &campaign.schedule;
    if let Some(start) = schedule.start_time()? {
        return check_start_time(start, now);
    }
    let quiet_wait = schedule
        .quiet_hours
        .as_ref()
        .and_then(|quiet_hours| quiet_hours.wait_in_zone(now, None));
    let Some(wait) = quiet_wait else {
        return Ok("starts at once".to_owned());
    };
    let end = now
        .as_micros()
        .saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX));
    let end = Timestamp::from_micros(end).unwrap_or(Timestamp::MAX);
    Ok(format!(
        "starts when the quiet hours in the time zone of the campaign end, at {end}"
    ))
}

fn check_start_time(start: Timestamp, now: Timestamp) -> Result<String, UnmetPrerequisite> {
    if start.as_micros() < now.as_micros().saturating_sub(DAY_US) {
        Err(UnmetPrerequisite::StartTimePassed(start))
    } else if start <= now {
        Ok(format!("starts at once: the start time {start} has passed"))
    } else {
        Ok(format!("starts at {start}"))
    }
}

/// Describes the duplicates. They do not fail the check: two recipients may share one address, but
/// not one id. The user is informed of both counts.
fn describe_duplicates(address_field: &str, duplicates: DuplicateCounts, valid: u64) -> String {
    let DuplicateCounts {
        ids,
        addresses,
        checked,
    } = duplicates;
    let ids = match ids {
        0 => "no duplicate ids".to_owned(),
        _ => format!("rows with a duplicate id, whose recipient gets one message: {ids}"),
    };
    let addresses = match addresses {
        0 => String::new(),
        _ => format!(
            "; rows with another id and a duplicate address, which gets a message for each id: \
             {addresses} (`id: {address_field}` sends one message to each address)"
        ),
    };
    let limit = if checked < valid {
        format!("; only the first {checked} rows were checked")
    } else {
        String::new()
    };
    format!("{ids}{addresses}{limit}")
}

fn audience_prerequisites(campaign: &Campaign, report: &AudienceReport) -> [DeployPrerequisite; 2] {
    let AudienceReport {
        valid,
        invalid,
        samples,
        ..
    } = report;
    let recipients = match valid {
        0 => Err(UnmetPrerequisite::NoRecipients),
        _ => Ok(format!("valid rows: {valid}")),
    };
    let rows = match (invalid, campaign.audience.invalid_rows) {
        (0, _) => Ok("all rows are valid".to_owned()),
        (_, InvalidRowPolicy::Skip) => {
            let first = samples
                .first()
                .map(|row| format!("; the first is {row}"))
                .unwrap_or_default();
            Ok(format!("invalid rows, which are skipped: {invalid}{first}"))
        }
        (_, InvalidRowPolicy::Reject) => Err(UnmetPrerequisite::InvalidRows {
            count: *invalid,
            first: samples.first().cloned(),
        }),
    };
    [
        DeployPrerequisite::from_result("audience.recipients", recipients),
        DeployPrerequisite::from_result("audience.rows", rows),
    ]
}
