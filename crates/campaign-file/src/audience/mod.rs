//! Those whom a campaign is to reach, read one by one: a file may be of any length, and memory is not.

mod bounded_lines;
mod delimited;
mod jsonl;
mod recipient_row;

use std::io::{self, Read};

use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::campaign::AudienceFormat;
use crate::duplicates::DuplicateCounts;
use delimited::DelimitedAudience;
use jsonl::JsonlAudience;

/// Bytes of one row, at most.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// Bad rows that a report shows, at most.
pub const BAD_ROW_SAMPLES_MAX: usize = 100;

/// Which fields say who it is, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudienceFields {
    /// Who; `id` if there is one, else the address.
    pub id: Option<String>,
    /// Where.
    pub address: String,
    /// What is between the values of a table; a comma or a tab unless told.
    pub delimiter: Option<u8>,
}

/// A row that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("line {line}: {reason}")]
pub struct BadRow {
    /// Where it begins, from 1.
    pub line: u64,
    /// Why not.
    pub reason: String,
    /// How it begins.
    pub sample: String,
}

/// Why there is no recipient.
#[derive(Debug, Error)]
pub enum AudienceRowError {
    /// This row cannot be used. The next may be.
    #[error(transparent)]
    BadRow(#[from] BadRow),
    /// Nothing more can be read, so nobody knows who else there is.
    #[error("the audience cannot be read on: {0}")]
    ReadFailed(io::Error),
}

/// Why an audience cannot be read at all.
#[derive(Debug, Error)]
pub enum AudienceOpenError {
    /// Its first line is not one of names, or not of those that are needed.
    #[error("the audience cannot be used: {0}")]
    InvalidHeader(String),
    /// It cannot be read.
    #[error("the audience cannot be read: {0}")]
    ReadFailed(io::Error),
}

/// Recipients one by one.
pub struct AudienceReader<R>(AudienceReaderKind<R>);

enum AudienceReaderKind<R> {
    Delimited(Box<DelimitedAudience<R>>),
    Jsonl(JsonlAudience<R>),
}

/// Reads an audience. It holds one row at a time.
pub fn read_audience<R: Read>(
    reader: R,
    format: AudienceFormat,
    fields: &AudienceFields,
    channel: DeliveryChannel,
) -> Result<AudienceReader<R>, AudienceOpenError> {
    let table = |reader, usual| {
        DelimitedAudience::open(reader, fields.delimiter.unwrap_or(usual), fields, channel)
    };
    let kind = match format {
        AudienceFormat::Csv => AudienceReaderKind::Delimited(Box::new(table(reader, b',')?)),
        AudienceFormat::Tsv => AudienceReaderKind::Delimited(Box::new(table(reader, b'\t')?)),
        AudienceFormat::Jsonl => {
            AudienceReaderKind::Jsonl(JsonlAudience::new(reader, fields.clone(), channel))
        }
    };
    Ok(AudienceReader(kind))
}

impl<R: Read> Iterator for AudienceReader<R> {
    type Item = Result<AudienceRecipient, AudienceRowError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            AudienceReaderKind::Delimited(table) => table.next_recipient(),
            AudienceReaderKind::Jsonl(objects) => objects.next_recipient(),
        }
    }
}

/// What reading an audience came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AudienceReport {
    /// Rows that can be used. Somebody who is named twice is counted twice.
    pub good: u64,
    /// Rows that cannot.
    pub bad: u64,
    /// The first of those.
    pub samples: Vec<BadRow>,
    /// Who is named more than once, if that was looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<DuplicateCounts>,
}

impl AudienceReport {
    /// Counts a row that can be used.
    pub fn count_good(&mut self) {
        self.good += 1;
    }

    /// Counts a row that cannot be used, and keeps it if it is one of the first.
    pub fn count_bad(&mut self, row: BadRow) {
        self.bad += 1;
        if self.samples.len() < BAD_ROW_SAMPLES_MAX {
            self.samples.push(row);
        }
    }
}
