//! Reader for audiences in CSV and TSV: rows of values after a header line with the column names.

use std::io::{self, Read};

use csv::ByteRecord;
use onward_campaign_core::{AudienceRecipient, DeliveryChannel};
use serde_json::Map;

use super::{
    AudienceFields, AudienceOpenError, AudienceRowError, BadRow, ROW_BYTES_MAX, recipient_row,
};

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
        // `flexible`, because this module rejects rows of a different length itself, as bad rows;
        // the CSV reader would report them like any other error.
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
            return Err(AudienceOpenError::InvalidHeader(
                "it is empty, and its first line has to name the columns".to_owned(),
            ));
        }
        let columns = parse_header(&record)?;
        let place = |name: &str| columns.iter().position(|column| column == name);
        let needed = |name: &str| {
            let lacking = || {
                format!(
                    "there is no column `{name}` among {}{}",
                    list_columns(&columns),
                    delimiter_hint(&columns)
                )
            };
            place(name).ok_or_else(|| AudienceOpenError::InvalidHeader(lacking()))
        };
        let address = needed(&fields.address)?;
        let id = match &fields.id {
            Some(name) => needed(name)?,
            None => place("id").unwrap_or(address),
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
                Some(row.map_err(AudienceRowError::BadRow))
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
    fn parse_row(&self) -> Result<AudienceRecipient, BadRow> {
        self.parse_recipient().map_err(|reason| {
            let line = self.record.position().map_or(0, csv::Position::line);
            recipient_row::bad_row(
                line,
                reason,
                &self.record.iter().collect::<Vec<_>>().join(&b' '),
            )
        })
    }

    fn parse_recipient(&self) -> Result<AudienceRecipient, String> {
        if self.record.len() != self.columns.len() {
            return Err(format!(
                "it has {} fields, and there are {} columns",
                self.record.len(),
                self.columns.len()
            ));
        }
        let mut data = Map::new();
        for (place, (name, value)) in self.columns.iter().zip(&self.record).enumerate() {
            let value = std::str::from_utf8(value).map_err(|_| format!("`{name}` is not UTF-8"))?;
            // Spreadsheet programs leave unnamed columns at the end.
            if place != self.id_column && place != self.address_column && !name.is_empty() {
                data.insert(name.clone(), value.into());
            }
        }
        let field = |place: usize| std::str::from_utf8(&self.record[place]).unwrap_or_default();
        let id = (self.id_column != self.address_column).then(|| field(self.id_column));
        recipient_row::build_recipient(id, field(self.address_column), self.channel, data)
    }
}

fn parse_header(header: &ByteRecord) -> Result<Vec<String>, AudienceOpenError> {
    let mut columns: Vec<String> = Vec::new();
    for name in header {
        let refuse = || {
            AudienceOpenError::InvalidHeader(
                "the names of its columns are not UTF-8: save it as that".to_owned(),
            )
        };
        let name = std::str::from_utf8(name).map_err(|_| refuse())?.trim();
        if !name.is_empty() && columns.iter().any(|column| column == name) {
            return Err(AudienceOpenError::InvalidHeader(format!(
                "there are two columns `{name}`"
            )));
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
    let between = [';', '\t', '|', ',']
        .into_iter()
        .find(|c| only.contains(*c));
    between
        .map(|c| format!("; perhaps `delimiter: \"{}\"`", c.escape_default()))
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
            let (row, max) = (self.row_line, ROW_BYTES_MAX);
            let what = format!(
                "line {row}: a row is longer than {max} bytes; perhaps a quote is not closed"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let read = self.inner.read(buffer)?;
        self.bytes_left = self.bytes_left.saturating_sub(read);
        let fits = if read == 0 && !buffer.is_empty() {
            self.quotes.check_quotes_closed()
        } else {
            self.quotes.scan_bytes(&buffer[..read])
        };
        fits.map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        Ok(read)
    }
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

    fn scan_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
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
                    return Err(format!(
                        "line {}: something follows a closing quote in its field",
                        self.line
                    ));
                }
                (QuoteState::FieldStart | QuoteState::Unquoted, _) => QuoteState::Unquoted,
            };
            self.line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    fn check_quotes_closed(&self) -> Result<(), String> {
        match self.state {
            QuoteState::Quoted => Err(format!("line {}: a quote is not closed", self.opened_line)),
            _ => Ok(()),
        }
    }
}
