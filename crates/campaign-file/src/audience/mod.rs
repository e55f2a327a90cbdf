//! Streaming readers for audiences: a file may have any length, and only one row is in memory at a
//! time.

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
pub use delimited::AudienceHeaderError;
use delimited::DelimitedAudience;
use jsonl::JsonlAudience;

/// Maximum length of one row in bytes.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// Maximum number of invalid rows that a report contains.
pub const INVALID_ROW_SAMPLES_MAX: usize = 100;

/// The fields that have the id and the address of a recipient.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AudienceFields {
    /// The field with the id. `None`: the field `id` if there is one, else the address.
    pub id: Option<String>,
    /// The field with the address, required in every row.
    pub address: String,
    /// Delimiter between the values of a table. default: a comma for CSV, a tab for TSV.
    pub delimiter: Option<u8>,
}

/// An invalid row of an audience.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("line {line}: {reason}")]
pub struct InvalidRow {
    /// Line of the file at which the row starts, counted from 1.
    pub line: u64,
    /// The reason why the row is invalid.
    pub reason: String,
    /// The start of the row, with control characters replaced by spaces.
    pub sample: String,
}

/// The reason why the reader returns no recipient for a row.
#[derive(Debug, Error)]
pub enum AudienceRowError {
    /// This row is invalid. Later rows may be valid.
    #[error(transparent)]
    InvalidRow(#[from] InvalidRow),
    /// The file cannot be read any further, so the rest of the audience is unknown.
    #[error("reading the audience failed: {0}")]
    ReadFailed(io::Error),
}

/// The reason why an audience cannot be opened.
#[derive(Debug, Error)]
pub enum AudienceOpenError {
    /// The header line is invalid, or lacks a required column.
    #[error("invalid audience header: {0}")]
    InvalidHeader(#[from] AudienceHeaderError),
    /// The file cannot be read.
    #[error("reading the audience failed: {0}")]
    ReadFailed(io::Error),
}

/// Iterator over the recipients of an audience. It ends after [`AudienceRowError::ReadFailed`].
pub struct AudienceReader<R>(AudienceReaderKind<R>);

enum AudienceReaderKind<R> {
    Delimited(Box<DelimitedAudience<R>>),
    Jsonl(JsonlAudience<R>),
}

/// Opens an audience and reads its header, if its format has one. The reader holds one row at a
/// time.
pub fn read_audience<R: Read>(
    reader: R,
    format: AudienceFormat,
    fields: &AudienceFields,
    channel: DeliveryChannel,
) -> Result<AudienceReader<R>, AudienceOpenError> {
    let table = |reader, default| {
        DelimitedAudience::open(reader, fields.delimiter.unwrap_or(default), fields, channel)
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

impl<R: Read> AudienceReader<R> {
    /// Line of the file, counted from 1, at which the row starts that was returned last.
    pub fn line(&self) -> u64 {
        match &self.0 {
            AudienceReaderKind::Delimited(table) => table.line(),
            AudienceReaderKind::Jsonl(objects) => objects.line(),
        }
    }
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

/// The result of reading an audience: counts, invalid rows and duplicates.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AudienceReport {
    /// Number of valid rows. Duplicate recipients count once per row.
    pub valid: u64,
    /// Number of invalid rows.
    pub invalid: u64,
    /// The first invalid rows, at most [`INVALID_ROW_SAMPLES_MAX`].
    pub samples: Vec<InvalidRow>,
    /// Number of duplicate recipients; `None` if duplicates were not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<DuplicateCounts>,
}

impl AudienceReport {
    /// Counts one valid row.
    pub fn count_valid(&mut self) {
        self.valid += 1;
    }

    /// Counts one invalid row, and keeps it if it is one of the first [`INVALID_ROW_SAMPLES_MAX`].
    pub fn count_invalid(&mut self, row: InvalidRow) {
        self.invalid += 1;
        if self.samples.len() < INVALID_ROW_SAMPLES_MAX {
            self.samples.push(row);
        }
    }
}
