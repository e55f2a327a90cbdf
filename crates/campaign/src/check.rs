//! What has to be right before a campaign is deployed.

use onward_dispatch::Channel;
use onward_dispatcher::Recipient;
use onward_journal::Timestamp;
use serde::{Deserialize, Serialize};

use crate::address;
use crate::audience::{BadRow, Report};
use crate::campaign::{BadRows, Campaign, UNSUBSCRIBE};
use crate::compose::{Composer, Unfit};
use crate::repeats::{Repeated, Repeats};
use crate::sample::Sample;
use crate::zone;

/// The first recipients are all tried, and then one of so many.
const TRIED: u64 = 1_000;
/// Characters of a time zone that are shown.
const ZONE_CHARS_MAX: usize = 60;
const DAY_US: i64 = 24 * 3_600 * 1_000_000;

/// Something that has to be right.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prerequisite {
    /// What it is about, such as `template.compiles`.
    pub id: String,
    /// Whether it is right.
    pub pass: bool,
    /// What was found.
    pub message: String,
}

impl Prerequisite {
    /// One that was looked into.
    pub fn new(id: impl Into<String>, pass: bool, message: impl Into<String>) -> Self {
        Self { id: id.into(), pass, message: message.into() }
    }

    fn of(id: &str, found: Result<String, String>) -> Self {
        match found {
            Ok(message) => Self::new(id, true, message),
            Err(message) => Self::new(id, false, message),
        }
    }
}

/// What is known besides the campaign.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// What time it is.
    pub now: Timestamp,
    /// Some of those whom it is to reach.
    pub sample: &'a [Recipient],
    /// What reading the audience came to, if it was read.
    pub report: Option<&'a Report>,
}

/// What has to be right, and whether it is. Who knows providers adds what has to be right with them.
pub fn check(campaign: &Campaign, facts: &Facts<'_>) -> Vec<Prerequisite> {
    let mut checker = Checker::new(campaign, facts.now);
    for recipient in facts.sample {
        checker.add(recipient);
    }
    let mut list = checker.of_campaign();
    list.extend(facts.report.into_iter().flat_map(|report| of_audience(campaign, report)));
    list
}

/// Looks at a campaign while its audience goes by.
#[derive(Debug)]
pub struct Checker<'a> {
    campaign: &'a Campaign,
    now: Timestamp,
    composer: Result<Composer, Unfit>,
    report: Report,
    tried: u64,
    /// Who could not be sent anything: how many, and the first.
    unfit: u64,
    first_unfit: Option<String>,
    /// What the first of the others is sent.
    sample: Option<Sample>,
    /// How many say in which time zone they are; how many name one that there is not, and the first of those.
    zoned: u64,
    lost: u64,
    first_lost: Option<String>,
    repeats: Repeats,
}

impl<'a> Checker<'a> {
    /// Begins.
    pub fn new(campaign: &'a Campaign, now: Timestamp) -> Self {
        let (composer, report) = (Composer::new(campaign), Report::default());
        Self {
            campaign,
            now,
            composer,
            report,
            tried: 0,
            unfit: 0,
            first_unfit: None,
            sample: None,
            zoned: 0,
            lost: 0,
            first_lost: None,
            repeats: Repeats::default(),
        }
    }

    /// Here is somebody to reach.
    pub fn add(&mut self, recipient: &Recipient) {
        let place = self.report.good;
        self.report.count_good();
        self.repeats.add(recipient);
        self.look_at_zone(recipient);
        if (place < TRIED || place.is_multiple_of(TRIED))
            && let Ok(composer) = &self.composer
        {
            self.tried += 1;
            match composer.message(recipient) {
                Ok(message) => drop(self.sample.get_or_insert_with(|| Sample::new(recipient, message))),
                Err(unfit) => {
                    self.unfit += 1;
                    self.first_unfit.get_or_insert_with(|| format!("{unfit} (recipient `{}`)", recipient.id));
                }
            }
        }
    }

    fn look_at_zone(&mut self, recipient: &Recipient) {
        let zone = self.zone_field().and_then(|field| recipient.data.get(field)?.as_str());
        match zone.filter(|zone| !zone.is_empty()) {
            Some(zone) if zone::find(zone).is_some() => self.zoned += 1,
            Some(zone) => {
                self.lost += 1;
                self.first_lost.get_or_insert_with(|| zone.chars().take(ZONE_CHARS_MAX).collect());
            }
            None => {}
        }
    }

    /// Here is a row that cannot be used.
    pub fn add_bad(&mut self, row: BadRow) {
        self.report.count_bad(row);
    }

    /// What was found so far in the audience.
    pub fn report(&self) -> &Report {
        &self.report
    }

    /// What somebody would be sent, if it could be made for anybody so far.
    pub fn sample(&self) -> Option<&Sample> {
        self.sample.as_ref()
    }

    /// All have gone by: what has to be right, and what the audience came to.
    pub fn finish(mut self) -> (Vec<Prerequisite>, Report) {
        let found = self.repeats.found();
        self.report.repeated = Some(found);
        let mut list = self.of_campaign();
        list.extend(of_audience(self.campaign, &self.report));
        if found.of > 0 {
            let message = repeated(&self.campaign.fields().address, found, self.report.good);
            list.push(Prerequisite::new("audience.repeated", true, message));
        }
        (list, self.report)
    }

    fn of_campaign(&self) -> Vec<Prerequisite> {
        let compiles = self.composer.as_ref().map(|_| "all parts can be read".to_owned());
        let mut list = vec![Prerequisite::of("template.compiles", compiles.map_err(Unfit::to_string))];
        if self.tried > 0 {
            list.push(Prerequisite::of("template.renders", self.renders()));
        }
        if self.campaign.channel == Channel::Email {
            list.push(Prerequisite::of("email.parts", parts(self.campaign)));
            list.extend(from(self.campaign));
            list.push(Prerequisite::new("email.unsubscribe", true, unsubscribe(self.campaign)));
        }
        list.push(Prerequisite::of("schedule", schedule(self.campaign, self.now)));
        if let Some(field) = self.zone_field().filter(|_| self.report.good > 0) {
            list.push(Prerequisite::of("schedule.zones", self.zones(field)));
        }
        list
    }

    /// The field that says in which time zone a recipient is.
    fn zone_field(&self) -> Option<&'a str> {
        self.campaign.schedule.quiet.as_ref()?.zone_field()
    }

    /// A field that nobody has is misspelt, and everybody would be reached by the clock of the campaign.
    fn zones(&self, field: &str) -> Result<String, String> {
        let (zoned, all) = (self.zoned, self.report.good);
        let lost = self.first_lost.as_ref().map(|first| {
            format!("{} name one that there is not, and go by the clock of the campaign, such as `{first}`", self.lost)
        });
        match (zoned, lost) {
            (0, None) => Err(format!("quiet hours go by `{field}`, and nobody has that")),
            (0, Some(lost)) => Err(format!("nobody has a time zone in `{field}` that there is; {lost}")),
            (_, lost) => {
                let lost = lost.map(|lost| format!("; {lost}")).unwrap_or_default();
                Ok(format!("{zoned} of {all} say in which time zone they are{lost}"))
            }
        }
    }

    fn renders(&self) -> Result<String, String> {
        match &self.first_unfit {
            None => Ok(format!("filled in for {} recipients", self.tried)),
            Some(first) => Err(format!("cannot be filled in for {} of {} recipients; {first}", self.unfit, self.tried)),
        }
    }
}

fn parts(campaign: &Campaign) -> Result<String, String> {
    let has = |part: &str| campaign.template.get(part).is_some_and(|text| !text.trim().is_empty());
    let mut lacking: Vec<&str> = ["from", "subject"].into_iter().filter(|part| !has(part)).collect();
    if !has("text") && !has("html") {
        lacking.push("text or html");
    }
    if lacking.is_empty() {
        return Ok("from, subject and a body are there".to_owned());
    }
    Err(format!("a mail needs {}", lacking.join(" and ")))
}

/// Who it is from, where that is the same for all; where it is not, it is looked at when it is filled in.
fn from(campaign: &Campaign) -> Option<Prerequisite> {
    let from = campaign.template.get("from").filter(|text| !text.contains('{'))?;
    let found = address::mailbox(from).map(|()| format!("from {}", from.trim()));
    Some(Prerequisite::of("email.from", found.map_err(|reason| format!("`from` is no address: {reason}"))))
}

fn unsubscribe(campaign: &Campaign) -> &'static str {
    if campaign.parts().any(|(part, _)| part == UNSUBSCRIBE) {
        "recipients can unsubscribe"
    } else {
        "no way to unsubscribe is given: large mail services want one, and many laws do"
    }
}

fn schedule(campaign: &Campaign, now: Timestamp) -> Result<String, String> {
    let quiet = campaign.schedule.quiet.as_ref().and_then(|quiet| quiet.wait(now, None));
    match (campaign.schedule.begins_at()?, quiet) {
        (None, None) => Ok("begins at once".to_owned()),
        (None, Some(wait)) => {
            let until = now.as_micros().saturating_add(i64::try_from(wait.as_micros()).unwrap_or(i64::MAX));
            let until = Timestamp::from_micros(until).unwrap_or(Timestamp::MAX);
            Ok(format!("begins when the quiet hours end, at {until} by the clock of the campaign"))
        }
        (Some(at), _) => begins(at, now),
    }
}

fn begins(at: Timestamp, now: Timestamp) -> Result<String, String> {
    match at {
        at if at.as_micros() < now.as_micros().saturating_sub(DAY_US) => {
            Err(format!("was to begin at {at}, more than a day ago"))
        }
        at if at <= now => Ok(format!("begins at once: {at} has gone by")),
        at => Ok(format!("begins at {at}")),
    }
}

/// Whoever has one address may have two ids, and no two people one id: nothing is wrong, and people are to know.
fn repeated(address: &str, found: Repeated, all: u64) -> String {
    let Repeated { ids, addresses, of } = found;
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
    let looked_at = if of < all { format!("; of the first {of} rows") } else { String::new() };
    format!("{ids}{addresses}{looked_at}")
}

fn of_audience(campaign: &Campaign, report: &Report) -> [Prerequisite; 2] {
    let Report { good, bad, samples, .. } = report;
    let somebody = Prerequisite::new("audience.somebody", *good > 0, format!("{good} rows can be used"));
    let first = samples.first().map(|row| format!("; the first is {row}")).unwrap_or_default();
    let rows = match (bad, campaign.audience.bad_rows) {
        (0, _) => Ok("all rows can be used".to_owned()),
        (bad, BadRows::Skip) => Ok(format!("{bad} rows cannot be used and are skipped{first}")),
        (bad, BadRows::Refuse) => Err(format!("{bad} rows cannot be used{first}. Mend them, or say `bad_rows: skip`")),
    };
    [somebody, Prerequisite::of("audience.rows", rows)]
}
