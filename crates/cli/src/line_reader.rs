//! Reads lines of a file or of standard input in bounded memory.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use anyhow::Context as _;

/// Maximum length of a line in bytes: a file without line breaks must not fill the memory.
pub(crate) const LINE_BYTES_MAX: usize = 16 << 20;

/// Size of the read buffer in bytes.
pub(crate) const BUFFER_BYTES: usize = 1 << 18;

/// Byte order mark that some editors write at the start of a file.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Reads the lines of an input, numbered from 1, and skips blank ones.
pub(crate) struct LineReader {
    input: BufReader<Box<dyn Read + Send>>,
    name: String,
    buffer: Vec<u8>,
    number: u64,
}

/// Why the next line could not be read.
pub(crate) enum LineReadError {
    /// The line is too long or not UTF-8; later lines can still be read.
    Line { number: u64, reason: String },
    /// Reading the input failed.
    Input(anyhow::Error),
}

impl LineReader {
    /// Opens a file; `-` is standard input.
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

    /// Whether at least a part of the next line is buffered, so that there is input to read without
    /// waiting.
    pub(crate) fn has_buffered_input(&self) -> bool {
        !self.input.buffer().is_empty()
    }

    /// Returns the next line that is not blank, and its number. `None` at the end of the input.
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

    /// Skips the rest of a line that is too long, so that it does not count as another line.
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
