//! An audience of rows and columns, after a line that names the columns.

use std::io::{self, Read};

use csv::ByteRecord;
use onward_dispatch::Channel;
use onward_dispatcher::Recipient;
use serde_json::Map;

use super::{BadRow, Fields, ROW_BYTES_MAX, Trouble, Unreadable, row};

/// The rows of a file.
pub(super) struct Table<R> {
    reader: csv::Reader<Bounded<R>>,
    record: ByteRecord,
    columns: Vec<String>,
    id: usize,
    address: usize,
    channel: Channel,
    has_ended: bool,
}

impl<R: Read> Table<R> {
    pub(super) fn open(reader: R, delimiter: u8, fields: &Fields, channel: Channel) -> Result<Self, Unreadable> {
        let bounded = Bounded { inner: reader, left: ROW_BYTES_MAX, row: 1, quotes: Quotes::new(delimiter) };
        // Rows of another length are for us to refuse: to the reader they would be errors like any other.
        let mut builder = csv::ReaderBuilder::new();
        let mut reader = builder.delimiter(delimiter).flexible(true).has_headers(false).from_reader(bounded);
        let mut record = ByteRecord::new();
        if !reader.read_byte_record(&mut record).map_err(|error| Unreadable::Read(cause(error)))? {
            return Err(Unreadable::Header("it is empty, and its first line has to name the columns".to_owned()));
        }
        let columns = columns(&record)?;
        let place = |name: &str| columns.iter().position(|column| column == name);
        let needed = |name: &str| {
            let lacking = || format!("there is no column `{name}` among {}{}", shown(&columns), hint(&columns));
            place(name).ok_or_else(|| Unreadable::Header(lacking()))
        };
        let address = needed(&fields.address)?;
        let id = match &fields.id {
            Some(name) => needed(name)?,
            None => place("id").unwrap_or(address),
        };
        Ok(Self { reader, record, columns, id, address, channel, has_ended: false })
    }

    pub(super) fn next(&mut self) -> Option<Result<Recipient, Trouble>> {
        if self.has_ended {
            return None;
        }
        let row = self.reader.position().line();
        let bounded = self.reader.get_mut();
        (bounded.left, bounded.row) = (ROW_BYTES_MAX, row);
        match self.reader.read_byte_record(&mut self.record) {
            Ok(true) => {
                let row = self.row();
                Some(row.map_err(Trouble::Row))
            }
            Ok(false) => {
                self.has_ended = true;
                None
            }
            Err(error) => {
                self.has_ended = true;
                Some(Err(Trouble::End(cause(error))))
            }
        }
    }

    /// What is in the row that was read.
    fn row(&self) -> Result<Recipient, BadRow> {
        self.recipient().map_err(|reason| {
            let line = self.record.position().map_or(0, csv::Position::line);
            row::bad(line, reason, &self.record.iter().collect::<Vec<_>>().join(&b' '))
        })
    }

    fn recipient(&self) -> Result<Recipient, String> {
        if self.record.len() != self.columns.len() {
            return Err(format!("it has {} fields, and there are {} columns", self.record.len(), self.columns.len()));
        }
        let mut data = Map::new();
        for (place, (name, value)) in self.columns.iter().zip(&self.record).enumerate() {
            let value = std::str::from_utf8(value).map_err(|_| format!("`{name}` is not UTF-8"))?;
            // Programs that write tables leave columns without a name at the end.
            if place != self.id && place != self.address && !name.is_empty() {
                data.insert(name.clone(), value.into());
            }
        }
        let field = |place: usize| std::str::from_utf8(&self.record[place]).unwrap_or_default();
        let id = (self.id != self.address).then(|| field(self.id));
        row::recipient(id, field(self.address), self.channel, data)
    }
}

fn columns(header: &ByteRecord) -> Result<Vec<String>, Unreadable> {
    let mut columns: Vec<String> = Vec::new();
    for name in header {
        let refuse = || Unreadable::Header("the names of its columns are not UTF-8: save it as that".to_owned());
        let name = std::str::from_utf8(name).map_err(|_| refuse())?.trim();
        if !name.is_empty() && columns.iter().any(|column| column == name) {
            return Err(Unreadable::Header(format!("there are two columns `{name}`")));
        }
        columns.push(name.to_owned());
    }
    Ok(columns)
}

/// The first of many names.
fn shown(columns: &[String]) -> String {
    let names: Vec<String> = columns.iter().take(20).map(|name| format!("`{}`", name.escape_debug())).collect();
    names.join(", ").chars().take(400).collect()
}

/// What is perhaps between the values, where all names are one.
fn hint(columns: &[String]) -> String {
    let [only] = columns else { return String::new() };
    let between = [';', '\t', '|', ','].into_iter().find(|c| only.contains(*c));
    between.map(|c| format!("; perhaps `delimiter: \"{}\"`", c.escape_default())).unwrap_or_default()
}

fn cause(error: csv::Error) -> io::Error {
    let text = error.to_string();
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        _ => io::Error::other(text),
    }
}

/// Reads so much for a row and no more, and nothing with quotes that do not fit: one that is never closed would make one row of
/// all the rest, and everybody in it would be lost.
struct Bounded<R> {
    inner: R,
    left: usize,
    /// The line where the row begins.
    row: u64,
    quotes: Quotes,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let (row, max) = (self.row, ROW_BYTES_MAX);
            let what = format!("line {row}: a row is longer than {max} bytes; perhaps a quote is not closed");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let read = self.inner.read(buffer)?;
        self.left = self.left.saturating_sub(read);
        let fits = if read == 0 && !buffer.is_empty() { self.quotes.end() } else { self.quotes.pass(&buffer[..read]) };
        fits.map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))?;
        Ok(read)
    }
}

/// Where in a table the bytes are that were read last, as far as quotes go.
struct Quotes {
    delimiter: u8,
    place: Place,
    line: u64,
    /// The line of the last quote that opened a field.
    opened: u64,
    /// Bytes of a byte order mark that may still come.
    mark: &'static [u8],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first byte of a field.
    Before,
    Plain,
    Quoted,
    /// After a quote in a field that began with one: it ends the field, or stands for itself if another follows.
    AfterQuote,
}

impl Quotes {
    fn new(delimiter: u8) -> Self {
        Self { delimiter, place: Place::Before, line: 1, opened: 0, mark: b"\xef\xbb\xbf" }
    }

    fn pass(&mut self, bytes: &[u8]) -> Result<(), String> {
        for &byte in bytes {
            if let Some((first, rest)) = self.mark.split_first() {
                self.mark = if byte == *first { rest } else { b"" };
                if byte == *first {
                    continue;
                }
            }
            let is_end = byte == self.delimiter || byte == b'\r' || byte == b'\n';
            self.place = match (self.place, byte) {
                (Place::Quoted, b'"') => Place::AfterQuote,
                (Place::Quoted, _) | (Place::AfterQuote, b'"') => Place::Quoted,
                (Place::Before, b'"') => {
                    self.opened = self.line;
                    Place::Quoted
                }
                _ if is_end => Place::Before,
                (Place::AfterQuote, _) => {
                    return Err(format!("line {}: something follows a closing quote in its field", self.line));
                }
                (Place::Before | Place::Plain, _) => Place::Plain,
            };
            self.line += u64::from(byte == b'\n');
        }
        Ok(())
    }

    fn end(&self) -> Result<(), String> {
        match self.place {
            Place::Quoted => Err(format!("line {}: a quote is not closed", self.opened)),
            _ => Ok(()),
        }
    }
}
