//! A campaign file and its audience, on this machine.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use onward_api::Json;
use onward_api::campaign::{Prerequisite, Recipient};
use onward_campaign::audience::{self, BadRow, Report, Rows, Trouble};
use onward_campaign::{BadRows, Campaign, Checker};
use onward_journal::Timestamp;
use onward_store::{Clock as _, SystemClock};
use sha2::{Digest as _, Sha256};

use crate::lines::BUFFER_BYTES;
use crate::paint;
use crate::progress::Progress;

/// A campaign, and where its audience is.
pub(crate) struct Campaigned {
    pub(crate) campaign: Campaign,
    audience: PathBuf,
}

/// What was found by looking at all of it.
pub(crate) struct Looked {
    pub(crate) prerequisites: Vec<Prerequisite>,
    pub(crate) report: Report,
    /// The same for the same campaign and the same people.
    pub(crate) digest: String,
}

impl Campaigned {
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let campaign = Campaign::load(path).with_context(|| format!("{} cannot be used", path.display()))?;
        let audience = campaign.audience_path(path);
        Ok(Self { campaign, audience })
    }

    pub(crate) fn document(&self) -> anyhow::Result<Json> {
        Json::parse(&self.campaign.to_document()).context("the campaign cannot be written as JSON")
    }

    /// Those whom it is to reach, from the first on.
    pub(crate) fn rows(&self) -> anyhow::Result<Rows<BufReader<File>>> {
        let file = File::open(&self.audience).with_context(|| format!("cannot open {}", self.audience.display()))?;
        let reader = BufReader::with_capacity(BUFFER_BYTES, file);
        let Campaign { audience: about, channel, .. } = &self.campaign;
        let rows = audience::read(reader, about.format()?, &self.campaign.fields(), *channel);
        rows.with_context(|| self.audience.display().to_string())
    }

    /// The next of them that can be used. Rows that cannot are left out, where the campaign says so.
    pub(crate) fn next(&self, rows: &mut Rows<BufReader<File>>) -> anyhow::Result<Option<Recipient>> {
        loop {
            match rows.next() {
                None => return Ok(None),
                Some(Ok(it)) => return Ok(Some(Recipient { id: it.id, to: it.address, data: it.data })),
                Some(Err(Trouble::Row(_))) if self.campaign.audience.bad_rows == BadRows::Skip => {}
                Some(Err(trouble)) => bail!("{}: {trouble}", self.audience.display()),
            }
        }
    }

    /// Looks at all of it: the audience is read to its end, in flat memory.
    pub(crate) fn look(&self) -> anyhow::Result<Looked> {
        self.look_and_tell(|_| Ok(()))
    }

    /// The same. Rows that cannot be used are told as they are found: a report has the first of them alone.
    pub(crate) fn look_and_tell(&self, mut tell: impl FnMut(&BadRow) -> anyhow::Result<()>) -> anyhow::Result<Looked> {
        let now: Timestamp = SystemClock.now();
        let mut checker = Checker::new(&self.campaign, now);
        let mut digest = Sha256::new();
        digest.update(self.campaign.to_document());
        let mut progress = Progress::new(true);
        for row in self.rows()? {
            match row {
                Ok(recipient) => {
                    checker.add(&recipient);
                    digest.update(serde_json::to_vec(&recipient)?);
                }
                Err(Trouble::Row(bad)) => {
                    tell(&bad)?;
                    checker.add_bad(bad);
                }
                Err(end @ Trouble::End(_)) => bail!("{}: {end}", self.audience.display()),
            }
            let Report { good, bad, .. } = checker.report();
            progress.at(good + bad, || {
                format!("{}, {}", paint::counted(*good, "recipient"), paint::counted(*bad, "bad row"))
            });
        }
        let of_provider = onward_outlets::check_definition(&self.campaign, checker.sample());
        let (prerequisites, report) = checker.finish();
        let prerequisites = prerequisites.into_iter().chain(of_provider);
        let prerequisites = prerequisites.map(|it| Prerequisite { id: it.id, pass: it.pass, message: it.message });
        let digest: String = digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Looked { prerequisites: prerequisites.collect(), report, digest })
    }
}
