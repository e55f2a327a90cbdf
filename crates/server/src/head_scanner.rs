//! Finds request heads that state the length of their body twice.
//!
//! A proxy and this server could disagree about where such a request ends, and take a part of its
//! body for the next request. The HTTP library removes `Content-Length` from a request that also
//! has `Transfer-Encoding`, so the conflict is only visible in the bytes of the connection.

/// Number of bytes of a header line that are kept: enough for the names and values looked for.
const LINE_BYTES_KEPT: usize = 64;

/// Scans the bytes of a connection up to the first request with `Transfer-Encoding`, whose
/// connection is closed after the response.
#[derive(Default)]
pub(crate) struct HeadScanner {
    position: ScanPosition,
    /// The beginning of the current line.
    line: Vec<u8>,
    content_length: Option<u64>,
    has_transfer_encoding: bool,
    has_conflict: bool,
}

#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum ScanPosition {
    /// Before or in a head.
    #[default]
    Head,
    /// In a body, with this number of bytes to come.
    Body(u64),
    /// The end of the body is unknown, or a conflict was found.
    Stopped,
}

impl HeadScanner {
    /// Whether a head with both headers was found.
    pub(crate) const fn has_conflict(&self) -> bool {
        self.has_conflict
    }

    /// Scans bytes that were received.
    pub(crate) fn scan_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.position {
                ScanPosition::Stopped => return,
                ScanPosition::Body(rest) => {
                    let skipped = usize::try_from(rest).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[skipped..];
                    self.position = match rest - skipped as u64 {
                        0 => ScanPosition::Head,
                        rest => ScanPosition::Body(rest),
                    };
                }
                ScanPosition::Head => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let part = &bytes[..end.unwrap_or(bytes.len())];
                    let kept = LINE_BYTES_KEPT.saturating_sub(self.line.len());
                    self.line.extend_from_slice(&part[..part.len().min(kept)]);
                    let Some(end) = end else { return };
                    bytes = &bytes[end + 1..];
                    self.end_line();
                }
            }
        }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let line = line.trim_ascii();
        if line.is_empty() {
            self.end_head();
        } else if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            let (name, value) = (line[..colon].trim_ascii(), line[colon + 1..].trim_ascii());
            if name.eq_ignore_ascii_case(b"transfer-encoding") {
                self.has_transfer_encoding = true;
            } else if name.eq_ignore_ascii_case(b"content-length") {
                // The HTTP library refuses a length that is not a number.
                let length = str::from_utf8(value).ok().and_then(|it| it.parse().ok());
                self.content_length = Some(length.unwrap_or(0));
            }
        }
    }

    fn end_head(&mut self) {
        let length = self.content_length.take();
        self.has_conflict |= self.has_transfer_encoding && length.is_some();
        self.position = if std::mem::take(&mut self.has_transfer_encoding) {
            ScanPosition::Stopped
        } else {
            match length.unwrap_or(0) {
                0 => ScanPosition::Head,
                length => ScanPosition::Body(length),
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::HeadScanner;

    /// Scans the bytes in pieces of each size.
    fn has_conflict(received: &str) -> bool {
        let found: Vec<bool> = (1..=received.len())
            .map(|size| {
                let mut scanner = HeadScanner::default();
                for piece in received.as_bytes().chunks(size) {
                    scanner.scan_bytes(piece);
                }
                scanner.has_conflict()
            })
            .collect();
        assert!(
            found.iter().all(|it| *it == found[0]),
            "depends on the pieces: {received:?}"
        );
        found[0]
    }

    #[test]
    fn a_head_with_both_lengths_is_found_wherever_it_stands() {
        let both =
            "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\nTransfer-Encoding: chunked\r\n\r\n";
        let reversed = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n";
        let one = "POST / HTTP/1.1\r\ncontent-length: 12\r\n\r\n";
        assert!(has_conflict(both));
        assert!(has_conflict(reversed));
        assert!(has_conflict(&format!("{one}twelve bytes{both}")));
        assert!(has_conflict(&format!(
            "GET / HTTP/1.1\r\nhost: x\r\n\r\n{reversed}"
        )));
    }

    #[test]
    fn a_body_is_not_mistaken_for_a_head() {
        let body = "\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
        let length = body.len();
        for received in [
            format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}"),
            format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{body}"),
            format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "a".repeat(500)),
        ] {
            assert!(!has_conflict(&received), "{received:?}");
        }
    }
}
