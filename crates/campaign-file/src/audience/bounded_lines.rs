//! Line reader with a maximum line length, so that one long line cannot exhaust the memory.

use std::io::{self, BufRead, BufReader, Read};

/// The lines of a file. It holds at most `bytes_max` bytes of one line.
pub(super) struct BoundedLines<R> {
    reader: BufReader<R>,
    bytes_max: usize,
    line: Vec<u8>,
}

/// Whether a line was read completely.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LineStatus {
    /// The whole line is available.
    Complete,
    /// The line exceeds the maximum length. Its start is available; the reader skipped the rest.
    TooLong,
}

impl<R: Read> BoundedLines<R> {
    pub(super) fn new(reader: R, bytes_max: usize) -> Self {
        Self {
            reader: BufReader::new(reader),
            bytes_max,
            line: Vec::new(),
        }
    }

    /// The line that was read last, without its line terminator.
    pub(super) fn line_bytes(&self) -> &[u8] {
        self.line.strip_suffix(b"\r").unwrap_or(&self.line)
    }

    /// Reads the next line. Returns `None` at the end of the file.
    pub(super) fn read_line(&mut self) -> io::Result<Option<LineStatus>> {
        self.line.clear();
        let mut has_bytes = false;
        let mut is_too_long = false;
        loop {
            let chunk = match self.reader.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                break;
            }
            has_bytes = true;
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let piece = &chunk[..end.unwrap_or(chunk.len())];
            let remaining = self.bytes_max - self.line.len();
            is_too_long |= piece.len() > remaining;
            self.line
                .extend_from_slice(&piece[..piece.len().min(remaining)]);
            let consumed = end.map_or(chunk.len(), |end| end + 1);
            self.reader.consume(consumed);
            if end.is_some() {
                break;
            }
        }
        Ok(has_bytes.then_some(if is_too_long {
            LineStatus::TooLong
        } else {
            LineStatus::Complete
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read_all(bytes: &[u8], bytes_max: usize) -> Vec<(bool, Vec<u8>)> {
        let mut lines = BoundedLines::new(bytes, bytes_max);
        let mut found = Vec::new();
        while let Some(line) = lines.read_line().unwrap() {
            found.push((line == LineStatus::Complete, lines.line_bytes().to_vec()));
        }
        found
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_up_to_the_next_line() {
        let found = read_all(b"ab\nabcdef\r\n\ncd", 3);
        assert_eq!(
            found,
            [
                (true, b"ab".to_vec()),
                (false, b"abc".to_vec()),
                (true, vec![]),
                (true, b"cd".to_vec())
            ]
        );
    }

    proptest! {
        #[test]
        fn lines_equal_those_of_the_standard_library(text in "[ab\n]{0,40}") {
            let found: Vec<Vec<u8>> = read_all(text.as_bytes(), 100).into_iter().map(|(_, line)| line).collect();
            let expected: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
