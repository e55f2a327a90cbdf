//! Reader for audiences in CSV and TSV: rows of values after a header line with the column names.

use std::io::{self, Read};

use csv::ByteRecord;
use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde_json::Map;
use thiserror::Error;

use super::recipient_row::{self, RecipientRowError};
use super::{AudienceFields, AudienceOpenError, AudienceRowError, InvalidRow, ROW_BYTES_MAX};

/// Reasons why the header of a table is invalid.
#[derive(Debug, Error)]
pub enum AudienceHeaderError {
    /// The file is empty.
    #[error("the file is empty: the first line must name the columns")]
    Empty,
    /// A column name is not UTF-8.
    #[error("the column names are not UTF-8: save the file as UTF-8")]
    NotUtf8,
    /// Two columns have the same name.
    #[error("duplicate column `{0}`")]
    DuplicateColumn(String),
    /// A required column is missing.
    #[error(
        "column `{name}` not found among {}{}",
        list_columns(columns),
        delimiter_hint(columns)
    )]
    MissingColumn {
        /// Name of the missing column.
        name: String,
        /// Names of all columns of the header.
        columns: Vec<String>,
    },
}

/// The recipients of a CSV or TSV file.
pub(super) struct DelimitedAudience<R> {
    reader: csv::Reader<BoundedRowReader<R>>,
    record: ByteRecord,
    columns: Vec<String>,
    id_column: usize,
    address_column: usize,
    channel: DeliveryChannel,
    has_ended: bool,
}

impl<R: Read> DelimitedAudience<R> {
    pub(super) fn open(
        reader: R,
        delimiter: u8,
        fields: &AudienceFields,
        channel: DeliveryChannel,
    ) -> Result<Self, AudienceOpenError> {
        let bounded = BoundedRowReader {
            inner: reader,
            bytes_left: ROW_BYTES_MAX,
            row_line: 1,
            quotes: QuoteTracker::new(delimiter),
        };
        // `flexible`, because this module rejects rows of a different length itself, as invalid
        // rows; the CSV reader would report them like any other error.
        let mut builder = csv::ReaderBuilder::new();
        let mut reader = builder
            .delimiter(delimiter)
            .flexible(true)
            .has_headers(false)
            .from_reader(bounded);
        let mut record = ByteRecord::new();
        if !reader
            .read_byte_record(&mut record)
            .map_err(|error| AudienceOpenError::ReadFailed(csv_to_io_error(error)))?
        {
            return Err(AudienceHeaderError::Empty.into());
        }
        let columns = parse_header(&record)?;
        let find = |name: &str| columns.iter().position(|column| column == name);
        let require = |name: &str| {
            find(name).ok_or_else(|| AudienceHeaderError::MissingColumn {
                name: name.to_owned(),
                columns: columns.clone(),
            })
        };
        let address = require(&fields.address)?;
        let id = match &fields.id {
            Some(name) => require(name)?,
            None => find("id").unwrap_or(address),
        };
        Ok(Self {
            reader,
            record,
            columns,
            id_column: id,
            address_column: address,
            channel,
            has_ended: false,
        })
    }

    /// The line at which the row starts that was read last.
    pub(super) fn line(&self) -> u64 {
        self.record.position().map_or(0, csv::Position::line)
    }

    pub(super) fn next_recipient(&mut self) -> Option<Result<AudienceRecipient, AudienceRowError>> {
        if self.has_ended {
            return None;
        }
        let row = self.reader.position().line();
        let bounded = self.reader.get_mut();
        (bounded.bytes_left, bounded.row_line) = (ROW_BYTES_MAX, row);
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {
                let row = self.parse_row();
                Some(row.map_err(AudienceRowError::InvalidRow))
            }
            Ok(false) => {
                self.has_ended = true;
                None
            }
            Err(error) => {
                self.has_ended = true;
                Some(Err(AudienceRowError::ReadFailed(csv_to_io_error(error))))
            }
        }
    }

    /// Parses the row that was read last.
    fn parse_row(&self) -> Result<AudienceRecipient, InvalidRow> {
        self.parse_recipient().map_err(|error| {
            recipient_row::invalid_row(
                self.line(),
                &error,
                &self.record.iter().collect::<Vec<_>>().join(&b' '),
            )
        })
    }

    fn parse_recipient(&self) -> Result<AudienceRecipient, RecipientRowError> {
        if self.record.len() != self.columns.len() {
            return Err(RecipientRowError::FieldCount {
                fields: self.record.len(),
                columns: self.columns.len(),
            });
        }
        let mut data = Map::new();
        for (column, (name, value)) in self.columns.iter().zip(&self.record).enumerate() {
            let value =
                std::str::from_utf8(value).map_err(|_| RecipientRowError::NotUtf8(name.clone()))?;
            // Spreadsheet programs leave unnamed columns at the end.
            if column != self.id_column && column != self.address_column && !name.is_empty() {
                data.insert(name.clone(), value.into());
            }
        }
        let field = |column: usize| std::str::from_utf8(&self.record[column]).unwrap_or_default();
        let id = (self.id_column != self.address_column).then(|| field(self.id_column));
        recipient_row::build_recipient(id, field(self.address_column), self.channel, data)
    }
}

fn parse_header(header: &ByteRecord) -> Result<Vec<String>, AudienceHeaderError> {
    let mut columns: Vec<String> = Vec::new();
    for name in header {
        let name = std::str::from_utf8(name)
            .map_err(|_| AudienceHeaderError::NotUtf8)?
            .trim();
        if !name.is_empty() && columns.iter().any(|column| column == name) {
            return Err(AudienceHeaderError::DuplicateColumn(name.to_owned()));
        }
        columns.push(name.to_owned());
    }
    Ok(columns)
}

/// Lists the first 20 column names, for an error message.
fn list_columns(columns: &[String]) -> String {
    let names: Vec<String> = columns
        .iter()
        .take(20)
        .map(|name| format!("`{}`", name.escape_debug()))
        .collect();
    names.join(", ").chars().take(400).collect()
}

/// Suggests a delimiter if the header was parsed as a single column.
fn delimiter_hint(columns: &[String]) -> String {
    let [only] = columns else {
        return String::new();
    };
    let delimiter = [';', '\t', '|', ',']
        .into_iter()
        .find(|c| only.contains(*c));
    delimiter
        .map(|c| format!("; set `delimiter: \"{}\"`?", c.escape_default()))
        .unwrap_or_default()
}

fn csv_to_io_error(error: csv::Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other(text),
    }
}

/// Limits the bytes read per row and rejects unbalanced quotes: a quote that is never closed would
/// merge all later rows into one, and their recipients would be lost.
struct BoundedRowReader<R> {
    inner: R,
    bytes_left: usize,
    /// The line at which the current row begins, for errors.
    row_line: u64,
    quotes: QuoteTracker,
}

impl<R: Read> Read for BoundedRowReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.bytes_left == 0 {
            let error = TableSyntaxError::RowTooLong {
                line: self.row_line,
            };
            return Err(io::Error::new(io::ErrorKind::InvalidData, error));
        }
        let read = self.inner.read(buffer)?;
        self.bytes_left = self.bytes_left.saturating_sub(read);
        let checked = if read == 0 && !buffer.is_empty() {
            self.quotes.check_quotes_closed()
        } else {
            self.quotes.scan_bytes(&buffer[..read])
        };
        checked.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        Ok(read)
    }
}

/// Errors after which the end of a row, and so the rest of the table, is unknown.
#[derive(Debug, Error)]
enum TableSyntaxError {
    #[error("line {line}: the row is longer than {ROW_BYTES_MAX} bytes; is a quote not closed?")]
    RowTooLong { line: u64 },
    #[error("line {line}: text follows the closing quote of a field")]
    TextAfterQuote { line: u64 },
    #[error("line {line}: a quote is not closed")]
    UnclosedQuote { line: u64 },
}

/// Tracks the quoting state of the table up to the last byte read.
struct QuoteTracker {
    delimiter: u8,
    state: QuoteState,
    line: u64,
    /// The line of the last quote that opened a field.
    opened_line: u64,
    /// Remaining bytes of a byte order mark at the start of the file, which is skipped.
    remaining_bom: &'static [u8],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    /// Before the first byte of a field.
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quote inside a quoted field: it closes the field, or it is an escaped quote if
    /// another quote follows.
    AfterQuote,
}

impl QuoteTracker {
    fn new(delimiter: u8) -> Self {
        Self {
            delimiter,
            state: QuoteState::FieldStart,
            line: 1,
            opened_line: 0,
            remaining_bom: b"\xef\xbb\xbf",
        }
    }

    fn scan_bytes(&mut self, bytes: &[u8]) -> Result<(), TableSyntaxError> {
        for &byte in bytes {
            if let Some((first, rest)) = self.remaining_bom.split_first() {
                self.remaining_bom = if byte == *first { rest } else { b"" };
                if byte == *first {
                    continue;
                }
            }
            let is_end = byte == self.delimiter || byte == b'\r' || byte == b'\n';
            self.state = match (self.state, byte) {
                (QuoteState::Quoted, b'"') => QuoteState::AfterQuote,
                (QuoteState::Quoted, _) | (QuoteState::AfterQuote, b'"') => QuoteState::Quoted,
                (QuoteState::FieldStart, b'"') => {
                    self.opened_line = self.line;
                    QuoteState::Quoted
                }
                _ if is_end => QuoteState::FieldStart,
                (QuoteState::AfterQuote, _) => {
                    return Err(TableSyntaxError::TextAfterQuote { line: self.line });
                }
                (QuoteState::FieldStart | QuoteState::Unquoted, _) => QuoteState::Unquoted,
            };
            self.line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    fn check_quotes_closed(&self) -> Result<(), TableSyntaxError> {
        match self.state {
            QuoteState::Quoted => Err(TableSyntaxError::UnclosedQuote {
                line: self.opened_line,
            }),
            _ => Ok(()),
        }
    }
}
