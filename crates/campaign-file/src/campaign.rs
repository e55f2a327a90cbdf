//! The campaign: its audience, channel, provider, message templates, schedule and retry policy.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use onward_base::SharedText;
use onward_base::hex::encode_hex;
use onward_campaign_core::{DeliveryChannel, hash_parts};
use serde::{Deserialize, Serialize};

use crate::audience::AudienceFields;
use crate::error::Error;
use crate::provider_ref::ProviderRef;
use crate::schedule::CampaignSchedule;

/// A campaign as its file describes it. `P` is the type of a template part: `String`, except while
/// the campaign file is being parsed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "campaign")]
pub struct Campaign<P = String> {
    /// Id of the campaign, required: letters, digits, `.`, `_` and `-`, at most 128 bytes.
    #[serde(rename = "campaign")]
    pub id: String,
    /// The channel of all messages, required: `email`, `voice` or `social`.
    #[serde(with = "channel")]
    pub channel: DeliveryChannel,
    /// The provider that delivers the messages, required.
    pub provider: ProviderRef,
    /// Templates of the message by the name of the part, required: between 1 and 32 parts.
    pub template: BTreeMap<String, P>,
    /// Template of the unsubscribe link. `None` if the message has none, or has it as a template
    /// part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<String>,
    /// The recipients, required.
    pub audience: AudienceSpec,
    /// When messages are sent. default: at once, without quiet hours.
    #[serde(default, skip_serializing_if = "CampaignSchedule::is_empty")]
    pub schedule: CampaignSchedule,
    /// Recipients per job, between 1 and 1000. default: 100.
    #[serde(default = "default_job_size")]
    pub job_size: u32,
    /// Version of the message, a part of the idempotency key of each item. default: a digest of the
    /// templates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Retry policy of items and jobs.
    #[serde(default)]
    pub retries: CampaignRetries,
}

const fn default_job_size() -> u32 {
    100
}

/// The audience file and how to read it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "audience")]
pub struct AudienceSpec {
    /// Path of the audience file, relative to the folder of the campaign file.
    pub file: String,
    /// Format of the file. default: derived from the extension of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<AudienceFormat>,
    /// Delimiter between the values of a table. default: a comma for CSV, a tab for TSV.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<char>,
    /// The field that has the id of a recipient. default: `id` if there is such a field, else the
    /// address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The field that has the address of a recipient. default: `email`, `phone` or `account`,
    /// depending on the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether invalid rows prevent the deployment of the campaign. default: `reject`.
    #[serde(default)]
    pub invalid_rows: InvalidRowPolicy,
}

/// File format of an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AudienceFormat {
    /// Comma-separated values, after a header line with the column names.
    Csv,
    /// Tab-separated values, after a header line with the column names.
    Tsv,
    /// JSON Lines: one JSON object per line.
    #[serde(alias = "ndjson")]
    Jsonl,
}

/// How a campaign treats invalid rows of its audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InvalidRowPolicy {
    /// One invalid row prevents the deployment of the campaign.
    #[default]
    Reject,
    /// Invalid rows are skipped, and the campaign is deployed without them.
    Skip,
}

/// Retry policy of a campaign: limits for items and jobs, and the exponential backoff of jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CampaignRetries {
    /// Maximum number of sends for one item that the provider does not accept. default: 5.
    pub max_sends: u32,
    /// Maximum number of consecutive attempts of a job that make no progress. default: 10.
    pub max_attempts: u32,
    /// Initial backoff after such an attempt, in milliseconds. default: 1000.
    pub initial_backoff_ms: u64,
    /// Maximum backoff, in milliseconds, at most one week. default: 600000.
    pub max_backoff_ms: u64,
}

impl Default for CampaignRetries {
    fn default() -> Self {
        Self {
            max_sends: 5,
            max_attempts: 10,
            initial_backoff_ms: 1_000,
            max_backoff_ms: 600_000,
        }
    }
}

impl AudienceSpec {
    /// Returns the format of the file: the given one, else the one that the extension of its name
    /// implies. Fails if neither determines it.
    pub fn resolve_format(&self) -> Result<AudienceFormat, Error> {
        let extension = Path::new(&self.file)
            .extension()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        let by_extension = || match extension.to_ascii_lowercase().as_str() {
            "csv" => Some(AudienceFormat::Csv),
            "tsv" => Some(AudienceFormat::Tsv),
            "jsonl" | "ndjson" => Some(AudienceFormat::Jsonl),
            _ => None,
        };
        self.format.or_else(by_extension).ok_or_else(|| {
            Error::invalid_field(
                "audience.format",
                format!(
                    "specify csv, tsv or jsonl: the extension of `{}` is unknown",
                    self.file
                ),
            )
        })
    }
}

impl Campaign {
    /// Returns the path of the audience file, which is relative to the folder of `campaign_file`.
    pub fn audience_path(&self, campaign_file: &Path) -> PathBuf {
        campaign_file
            .parent()
            .unwrap_or(Path::new(""))
            .join(&self.audience.file)
    }

    /// Returns the fields of the audience that have the id and the address of a recipient, with the
    /// defaults of the channel filled in.
    pub fn audience_fields(&self) -> AudienceFields {
        let AudienceSpec {
            id,
            address,
            delimiter,
            ..
        } = &self.audience;
        let address = address
            .as_deref()
            .unwrap_or(default_address_field(self.channel))
            .to_owned();
        AudienceFields {
            id: id.clone(),
            address,
            delimiter: delimiter.and_then(|c| u8::try_from(c).ok()),
        }
    }

    /// Returns the version of the message for idempotency keys: the given version, else a digest of
    /// the templates.
    pub fn asset_version(&self) -> SharedText {
        if let Some(version) = &self.version {
            return version.as_str().into();
        }
        let template = self
            .template
            .iter()
            .flat_map(|(name, text)| [name.as_str(), text.as_str()]);
        let parts: Vec<&str> = template.chain(self.unsubscribe.as_deref()).collect();
        encode_hex(&hash_parts(&parts)[..16]).into()
    }

    /// Iterates over all templates, including the unsubscribe link, as pairs of part name and
    /// template text.
    pub(crate) fn template_parts(&self) -> impl Iterator<Item = (&str, &str)> {
        let template = self
            .template
            .iter()
            .map(|(name, text)| (name.as_str(), text.as_str()));
        template.chain(
            self.unsubscribe
                .as_deref()
                .map(|text| (UNSUBSCRIBE_PART, text)),
        )
    }
}

/// Name of the part that has the unsubscribe link.
pub(crate) const UNSUBSCRIBE_PART: &str = "unsubscribe";

const fn default_address_field(channel: DeliveryChannel) -> &'static str {
    match channel {
        DeliveryChannel::Email => "email",
        DeliveryChannel::Voice => "phone",
        DeliveryChannel::Social => "account",
    }
}

/// Serializes a channel as its name.
mod channel {
    use onward_campaign_core::DeliveryChannel;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(
        channel: &DeliveryChannel,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(channel.as_str())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<DeliveryChannel, D::Error> {
        let text = String::deserialize(deserializer)?;
        let unknown = || {
            D::Error::custom(format!(
                "unknown channel `{text}`: use email, voice or social"
            ))
        };
        DeliveryChannel::parse(&text).ok_or_else(unknown)
    }
}
