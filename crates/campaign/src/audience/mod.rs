//! Those whom a campaign is to reach, read one by one: a file may be of any length, and memory is not.

mod json;
mod lines;
mod row;
mod table;

use std::io::{self, Read};

use onward_dispatch::Channel;
use onward_dispatcher::Recipient;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::campaign::Format;
use crate::repeats::Repeated;
use json::Objects;
use table::Table;

/// Bytes of one row, at most.
pub const ROW_BYTES_MAX: usize = 1 << 20;

/// Bad rows that a report shows, at most.
pub const SAMPLES_MAX: usize = 100;

/// Which fields say who it is, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
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
pub enum Trouble {
    /// This row cannot be used. The next may be.
    #[error(transparent)]
    Row(#[from] BadRow),
    /// Nothing more can be read, so nobody knows who else there is.
    #[error("the audience cannot be read on: {0}")]
    End(io::Error),
}

/// Why an audience cannot be read at all.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// Its first line is not one of names, or not of those that are needed.
    #[error("the audience cannot be used: {0}")]
    Header(String),
    /// It cannot be read.
    #[error("the audience cannot be read: {0}")]
    Read(io::Error),
}

/// Recipients one by one.
pub struct Rows<R>(Kind<R>);

enum Kind<R> {
    Table(Box<Table<R>>),
    Objects(Objects<R>),
}

/// Reads an audience. It holds one row at a time.
pub fn read<R: Read>(reader: R, format: Format, fields: &Fields, channel: Channel) -> Result<Rows<R>, Unreadable> {
    let table = |reader, usual| Table::open(reader, fields.delimiter.unwrap_or(usual), fields, channel);
    let kind = match format {
        Format::Csv => Kind::Table(Box::new(table(reader, b',')?)),
        Format::Tsv => Kind::Table(Box::new(table(reader, b'\t')?)),
        Format::Jsonl => Kind::Objects(Objects::new(reader, fields.clone(), channel)),
    };
    Ok(Rows(kind))
}

impl<R: Read> Iterator for Rows<R> {
    type Item = Result<Recipient, Trouble>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.0 {
            Kind::Table(table) => table.next(),
            Kind::Objects(objects) => objects.next(),
        }
    }
}

/// What reading an audience came to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Report {
    /// Rows that can be used. Somebody who is named twice is counted twice.
    pub good: u64,
    /// Rows that cannot.
    pub bad: u64,
    /// The first of those.
    pub samples: Vec<BadRow>,
    /// Who is named more than once, if that was looked into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repeated: Option<Repeated>,
}

impl Report {
    /// Counts a row that can be used.
    pub fn count_good(&mut self) {
        self.good += 1;
    }

    /// Counts a row that cannot be used, and keeps it if it is one of the first.
    pub fn count_bad(&mut self, row: BadRow) {
        self.bad += 1;
        if self.samples.len() < SAMPLES_MAX {
            self.samples.push(row);
        }
    }
}
