//! Lines of a file or of standard input, read in bounded memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context as _;

/// No line is longer: a file without line breaks must not fill the memory.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;

/// Bytes that are read at a time.
pub(crate) const BUFFER_BYTES: usize = 1 << 18;

/// Some editors put one at the beginning of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// The lines of an input, numbered from 1, blank ones left out.
pub(crate) struct LineReader {
    input: BufReader<Box<dyn Read + Send>>,
    name: String,
    buffer: Vec<u8>,
    number: u64,
}

/// Why the next line cannot be had.
pub(crate) enum LineReadError {
    /// The line is there, but it is not one.
    Line { number: u64, reason: String },
    /// The input failed.
    Input(anyhow::Error),
}

impl LineReader {
    /// The lines of a file; `-` is standard input.
    pub(crate) fn open_path(path: &Path) -> anyhow::Result<Self> {
        let input: Box<dyn Read + Send> = if path == Path::new("-") {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(path).with_context(|| format!("cannot open {}", path.display()))?)
        };
        let input = BufReader::with_capacity(BUFFER_BYTES, input);
        let name = if path == Path::new("-") {
            "standard input".to_owned()
        } else {
            path.display().to_string()
        };
        Ok(Self {
            input,
            name,
            buffer: Vec::new(),
            number: 0,
        })
    }

    /// Whether the next line, or a part of it, is here already: reading on does not wait for anybody.
    pub(crate) fn has_buffered_input(&self) -> bool {
        !self.input.buffer().is_empty()
    }

    /// The next line that is not blank, and its number.
    pub(crate) fn next_line(&mut self) -> Option<Result<(u64, &str), LineReadError>> {
        loop {
            self.buffer.clear();
            let limit = LINE_BYTES_MAX as u64 + 1;
            match self
                .input
                .by_ref()
                .take(limit)
                .read_until(b'\n', &mut self.buffer)
            {
                Ok(0) => return None,
                Ok(_) => self.number += 1,
                Err(error) => {
                    let context = format!("cannot read {}", self.name);
                    return Some(Err(LineReadError::Input(
                        anyhow::Error::new(error).context(context),
                    )));
                }
            }
            if self.buffer.len() > LINE_BYTES_MAX
                && let Err(error) = self.skip_rest_of_line()
            {
                return Some(Err(LineReadError::Input(error)));
            }
            if self.buffer.len() > LINE_BYTES_MAX || !self.buffer.trim_ascii().is_empty() {
                break;
            }
        }
        Some(self.current_line())
    }

    /// Passes over what is left of a line that is too long: it is no line of its own.
    fn skip_rest_of_line(&mut self) -> anyhow::Result<()> {
        if self.buffer.ends_with(b"\n") {
            return Ok(());
        }
        let skipped = self
            .input
            .skip_until(b'\n')
            .with_context(|| format!("cannot read {}", self.name));
        skipped.map(drop)
    }

    fn current_line(&self) -> Result<(u64, &str), LineReadError> {
        let number = self.number;
        let refuse = |reason: String| LineReadError::Line { number, reason };
        if self.buffer.len() > LINE_BYTES_MAX {
            return Err(refuse(format!("longer than {} MiB", LINE_BYTES_MAX >> 20)));
        }
        let text =
            str::from_utf8(&self.buffer).map_err(|error| refuse(format!("not UTF-8: {error}")))?;
        Ok((number, text.trim_start_matches(BYTE_ORDER_MARK).trim()))
    }
}
