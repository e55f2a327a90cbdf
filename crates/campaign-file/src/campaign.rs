//! A campaign: whom to reach, by which channel, with what, and when.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use onward_base::SharedText;
use onward_campaign_core::{DeliveryChannel, DispatchPolicy, ExponentialBackoff, hash_parts};
use serde::{Deserialize, Serialize};

use crate::audience::AudienceFields;
use crate::error::Error;
use crate::provider_ref::ProviderRef;
use crate::schedule::CampaignSchedule;

/// A campaign. `P` is what it has of each part of its template: the text, except while its file is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "campaign")]
pub struct Campaign<P = String> {
    /// What it is called.
    #[serde(rename = "campaign")]
    pub id: String,
    /// By which channel.
    #[serde(with = "channel")]
    pub channel: DeliveryChannel,
    /// Who sends.
    pub provider: ProviderRef,
    /// What is sent: templates by the name of the part.
    pub template: BTreeMap<String, P>,
    /// Where one says that one wants nothing more: a template too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsubscribe: Option<String>,
    /// Whom to reach.
    pub audience: AudienceSpec,
    /// When.
    #[serde(default, skip_serializing_if = "CampaignSchedule::is_empty")]
    pub schedule: CampaignSchedule,
    /// Recipients of a job.
    #[serde(default = "default_job_items")]
    pub job_items: u32,
    /// What is sent, for keys; a digest of it unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How often it is tried.
    #[serde(default)]
    pub retries: CampaignRetries,
}

const fn default_job_items() -> u32 {
    100
}

/// Whom to reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "audience")]
pub struct AudienceSpec {
    /// The file that has them.
    pub file: String,
    /// What kind of file; its name says so unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<AudienceFormat>,
    /// What is between the values of a table; a comma or a tab unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delimiter: Option<char>,
    /// The field that says who it is; `id` if there is one, else the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The field that says where; as the channel has it unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// What becomes of the campaign when there are rows that cannot be used.
    #[serde(default)]
    pub bad_rows: BadRowPolicy,
}

/// A kind of file that has an audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AudienceFormat {
    /// Values between commas, after a line of names.
    Csv,
    /// Values between tabs, after a line of names.
    Tsv,
    /// A JSON object on each line.
    #[serde(alias = "ndjson")]
    Jsonl,
}

/// What becomes of a campaign when its audience has rows that cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BadRowPolicy {
    /// It is not deployed.
    #[default]
    Refuse,
    /// It goes without them.
    Skip,
}

/// How often it is tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CampaignRetries {
    /// Calls of the provider for one item that it did not take, at most.
    pub calls: u32,
    /// Tries of a job that came to nothing, one after the other, at most.
    pub attempts: u32,
    /// The first wait after such a try, in milliseconds.
    pub first_ms: u64,
    /// No wait is longer.
    pub max_ms: u64,
}

impl Default for CampaignRetries {
    fn default() -> Self {
        Self {
            calls: 5,
            attempts: 10,
            first_ms: 1_000,
            max_ms: 600_000,
        }
    }
}

impl CampaignRetries {
    /// The same terms, with as many tries as this says.
    pub fn apply_to_policy(&self, terms: DispatchPolicy) -> DispatchPolicy {
        let backoff = ExponentialBackoff {
            initial_ms: self.first_ms,
            max_ms: self.max_ms,
        };
        DispatchPolicy {
            max_sends: self.calls,
            max_attempts: self.attempts,
            backoff,
            ..terms
        }
    }
}

impl AudienceSpec {
    /// What kind of file it is.
    pub fn resolve_format(&self) -> Result<AudienceFormat, Error> {
        let extension = Path::new(&self.file)
            .extension()
            .and_then(|it| it.to_str())
            .unwrap_or_default();
        let by_name = || match extension.to_ascii_lowercase().as_str() {
            "csv" => Some(AudienceFormat::Csv),
            "tsv" => Some(AudienceFormat::Tsv),
            "jsonl" | "ndjson" => Some(AudienceFormat::Jsonl),
            _ => None,
        };
        self.format.or_else(by_name).ok_or_else(|| {
            Error::invalid_field(
                "audience.format",
                format!("say csv, tsv or jsonl: `{}` does not tell", self.file),
            )
        })
    }
}

impl Campaign {
    /// Where the audience is, for a campaign file that is there.
    pub fn audience_path(&self, campaign_file: &Path) -> PathBuf {
        campaign_file
            .parent()
            .unwrap_or(Path::new(""))
            .join(&self.audience.file)
    }

    /// Which fields of the audience say who it is, and where.
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

    /// What is sent, for keys: the version, or a digest of the templates.
    pub fn asset_version(&self) -> SharedText {
        if let Some(version) = &self.version {
            return version.as_str().into();
        }
        let template = self
            .template
            .iter()
            .flat_map(|(name, text)| [name.as_str(), text.as_str()]);
        let parts: Vec<&str> = template.chain(self.unsubscribe.as_deref()).collect();
        let hex: String = hash_parts(&parts)[..16]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        hex.into()
    }

    /// All templates by the name of the part.
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

/// The part that says where one says that one wants nothing more.
pub(crate) const UNSUBSCRIBE_PART: &str = "unsubscribe";

const fn default_address_field(channel: DeliveryChannel) -> &'static str {
    match channel {
        DeliveryChannel::Email => "email",
        DeliveryChannel::Voice => "phone",
        DeliveryChannel::Social => "account",
    }
}

/// A channel as it is written.
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
        let refuse = || {
            D::Error::custom(format!(
                "there is no channel `{text}`: write email, voice or social"
            ))
        };
        DeliveryChannel::parse(&text).ok_or_else(refuse)
    }
}
