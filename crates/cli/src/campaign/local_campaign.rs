//! A campaign file and its audience on the local disk.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use onward_api::RawJson;
use onward_api::campaign::{PrerequisiteCheck, RecipientInput};
use onward_base::Timestamp;
use onward_base::hex::encode_hex;
use onward_campaign_core::AudienceRecipient;
use onward_campaign_file::audience::{
    self, AudienceReader, AudienceReport, AudienceRowError, InvalidRow,
};
use onward_campaign_file::{
    Campaign, CampaignChecker, ConflictingRows, DeployPrerequisite, InvalidRowPolicy,
    MessageRenderError, TemplateComposer,
};
use onward_store::{StoreClock as _, SystemClock};
use sha2::{Digest as _, Sha256};

use crate::console;
use crate::line_reader::BUFFER_BYTES;
use crate::progress::ProgressLine;

/// A parsed campaign file and the path of its audience file.
pub(crate) struct LocalCampaign {
    pub(crate) campaign: Campaign,
    audience_path: PathBuf,
    /// Renders each row if invalid rows are skipped: a row that cannot be rendered is one of them.
    /// `None` if invalid rows are rejected, or if the templates do not compile.
    row_composer: Option<TemplateComposer>,
}

/// Result of checking the campaign and its whole audience.
pub(crate) struct LocalCheckResult {
    pub(crate) prerequisites: Vec<PrerequisiteCheck>,
    pub(crate) report: AudienceReport,
    /// SHA-256 of the campaign and its valid recipients, in hexadecimal: the default idempotency
    /// key of a deployment.
    pub(crate) digest: String,
}

impl LocalCampaign {
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let campaign = Campaign::load(path)
            .with_context(|| format!("cannot load campaign file {}", path.display()))?;
        let audience = campaign.audience_path(path);
        let row_composer = match campaign.audience.invalid_rows {
            InvalidRowPolicy::Skip => TemplateComposer::new(&campaign).ok(),
            InvalidRowPolicy::Reject => None,
        };
        Ok(Self {
            campaign,
            audience_path: audience,
            row_composer,
        })
    }

    pub(crate) fn to_json_document(&self) -> anyhow::Result<RawJson> {
        RawJson::parse(&self.campaign.to_document())
            .context("cannot serialize the campaign as JSON")
    }

    /// Opens the audience file at its first recipient.
    pub(crate) fn open_audience(&self) -> anyhow::Result<AudienceReader<BufReader<File>>> {
        let file = File::open(&self.audience_path)
            .with_context(|| format!("cannot open {}", self.audience_path.display()))?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let Campaign {
            audience: source,
            channel,
            ..
        } = &self.campaign;
        let rows = audience::read_audience(
            reader,
            source.resolve_format()?,
            &self.campaign.audience_fields(),
            *channel,
        );
        rows.with_context(|| self.audience_path.display().to_string())
    }

    /// Returns the next valid recipient. Invalid rows are skipped if the campaign allows it, and an
    /// error otherwise.
    pub(crate) fn next_recipient(
        &self,
        rows: &mut AudienceReader<BufReader<File>>,
    ) -> anyhow::Result<Option<RecipientInput>> {
        loop {
            match rows.next() {
                None => return Ok(None),
                Some(Ok(it)) => {
                    return Ok(Some(RecipientInput {
                        id: it.id,
                        to: it.address,
                        data: it.data,
                    }));
                }
                Some(Err(AudienceRowError::InvalidRow(_)))
                    if self.campaign.audience.invalid_rows == InvalidRowPolicy::Skip => {}
                Some(Err(error)) => bail!("{}: {error}", self.audience_path.display()),
            }
        }
    }

    /// Like [`next_recipient`](Self::next_recipient), and also skips rows whose message cannot be
    /// rendered, if the campaign skips invalid rows.
    pub(crate) fn next_deployed_recipient(
        &self,
        rows: &mut AudienceReader<BufReader<File>>,
    ) -> anyhow::Result<Option<RecipientInput>> {
        loop {
            let Some(RecipientInput { id, to, data }) = self.next_recipient(rows)? else {
                return Ok(None);
            };
            let recipient = AudienceRecipient {
                id,
                address: to,
                data,
            };
            if self.render_error(&recipient).is_none() {
                let AudienceRecipient { id, address, data } = recipient;
                return Ok(Some(RecipientInput {
                    id,
                    to: address,
                    data,
                }));
            }
        }
    }

    /// The reason why the row of a recipient is skipped although it is valid by itself.
    fn render_error(&self, recipient: &AudienceRecipient) -> Option<MessageRenderError> {
        self.row_composer.as_ref()?.render_message(recipient).err()
    }

    /// Checks the campaign and reads the whole audience in constant memory.
    pub(crate) fn run_checks(&self) -> anyhow::Result<LocalCheckResult> {
        self.run_checks_reporting(|_| Ok(()))
    }

    /// Like [`run_checks`](Self::run_checks), and calls `on_invalid` for every invalid row as it is
    /// found; the report lists only the first ones.
    pub(crate) fn run_checks_reporting(
        &self,
        mut on_invalid: impl FnMut(&InvalidRow) -> anyhow::Result<()>,
    ) -> anyhow::Result<LocalCheckResult> {
        let now: Timestamp = SystemClock.now();
        let mut checker = CampaignChecker::new(self.campaign.clone(), now);
        let mut digest = Sha256::new();
        digest.update(self.campaign.to_document());
        let mut progress = ProgressLine::on_terminal();
        let mut rows = self.open_audience()?;
        while let Some(row) = rows.next() {
            match row {
                Ok(recipient) => match self.render_error(&recipient) {
                    None => {
                        checker.add_recipient(&recipient);
                        digest.update(serde_json::to_vec(&recipient)?);
                    }
                    Some(error) => {
                        let row = InvalidRow {
                            line: rows.line(),
                            reason: error.to_string(),
                            sample: format!("{} {}", recipient.id, recipient.address),
                        };
                        on_invalid(&row)?;
                        checker.add_invalid_row(row);
                    }
                },
                Err(AudienceRowError::InvalidRow(row)) => {
                    on_invalid(&row)?;
                    checker.add_invalid_row(row);
                }
                Err(error @ AudienceRowError::ReadFailed(_)) => {
                    bail!("{}: {error}", self.audience_path.display())
                }
            }
            let AudienceReport { valid, invalid, .. } = checker.audience_report();
            progress.update_count(valid + invalid, || {
                format!(
                    "{}, {}",
                    console::format_count(*valid, "recipient"),
                    console::format_count(*invalid, "invalid row")
                )
            });
        }
        let provider_checks = onward_campaign_delivery::check_inline_provider(
            &self.campaign,
            checker.sample_message(),
        );
        let conflicts = self.find_conflicts(checker.repeated_ids())?;
        let (prerequisites, report) = checker.finish();
        let prerequisites = prerequisites
            .into_iter()
            .chain(conflicts)
            .chain(provider_checks);
        let prerequisites = prerequisites.map(|it| PrerequisiteCheck {
            id: it.id,
            pass: it.pass,
            message: it.message,
        });
        let digest = encode_hex(&digest.finalize());
        Ok(LocalCheckResult {
            prerequisites: prerequisites.collect(),
            report,
            digest,
        })
    }

    /// Reads the audience again if ids are repeated, and compares the addresses of their rows.
    fn find_conflicts(&self, ids: &BTreeSet<String>) -> anyhow::Result<Option<DeployPrerequisite>> {
        let mut conflicts = ConflictingRows::among(ids.iter().cloned());
        if conflicts.is_empty() {
            return Ok(None);
        }
        let mut rows = self.open_audience()?;
        while let Some(row) = rows.next() {
            if let Ok(recipient) = row
                && self.render_error(&recipient).is_none()
            {
                conflicts.add_row(rows.line(), &recipient);
            }
        }
        Ok(conflicts.finding())
    }
}
