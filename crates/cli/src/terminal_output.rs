//! Standard output and standard error of all commands. Names, payloads and errors come from others:
//! here, and only here, characters that a terminal would interpret are escaped before they are
//! printed. Colours of our own pass.

use std::io::{self, IsTerminal as _, Write};

use onward_base::is_unprintable;

/// The longest sequence of [`style_sequence`] in bytes.
const SEQUENCE_BYTES_MAX: usize = 8;

/// Parameters of the styles that this program prints: reset, bold, dimmed, italic, underlined, and
/// the colours.
const STYLE_PARAMETERS: [&str; 22] = [
    "0", "1", "2", "3", "4", "30", "31", "32", "33", "34", "35", "36", "37", "39", "90", "91",
    "92", "93", "94", "95", "96", "97",
];

/// How unprintable characters are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EscapeForm {
    /// As `\u{202e}`, in text for people.
    Text,
    /// As `\u202e`, in a JSON document, which keeps its meaning.
    Json,
    /// As they are: a program reads the JSON document, and expects it verbatim.
    Verbatim,
}

/// A writer that escapes each line before it reaches the terminal.
pub(crate) struct EscapedOutput<W: Write> {
    inner: W,
    form: EscapeForm,
    /// The line that has no line break yet.
    line: Vec<u8>,
}

/// Standard output for text. Without a terminal, it has no colours.
pub(crate) fn text_output() -> EscapedOutput<impl Write> {
    EscapedOutput::new(anstream::stdout(), EscapeForm::Text)
}

/// Standard output for JSON.
pub(crate) fn json_output() -> EscapedOutput<impl Write> {
    let form = if io::stdout().is_terminal() {
        EscapeForm::Json
    } else {
        EscapeForm::Verbatim
    };
    EscapedOutput::new(io::stdout(), form)
}

/// Standard output for JSON with `--json`, else for text.
pub(crate) fn output(is_json: bool) -> Box<dyn Write> {
    if is_json {
        Box::new(json_output())
    } else {
        Box::new(text_output())
    }
}

/// Standard error for one entry of the log per `write`: line breaks inside of it are escaped, so
/// that a logged text cannot imitate another entry.
pub(crate) struct LogOutput;

impl Write for LogOutput {
    fn write(&mut self, entry: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(entry);
        let (text, end) = text
            .strip_suffix('\n')
            .map_or((&*text, ""), |text| (text, "\n"));
        let escaped = escape_keeping_styles(text, EscapeForm::Text);
        io::stderr().write_all(format!("{escaped}{end}").as_bytes())?;
        Ok(entry.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

/// Escapes the lines of a message. Lines after the first are indented, so that a message cannot
/// imitate another one.
pub(crate) fn escape_message(message: &str) -> String {
    escape_lines(message, "\n  ")
}

/// Escapes the lines of a text and joins them with `separator`.
pub(crate) fn escape_lines(text: &str, separator: &str) -> String {
    let lines = text
        .split('\n')
        .map(|line| escape_keeping_styles(line, EscapeForm::Text));
    lines.collect::<Vec<_>>().join(separator)
}

/// Escapes untrusted text for one line: also line breaks, and all styles.
pub(crate) fn escape_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        push_escaped(&mut escaped, character, EscapeForm::Text);
    }
    escaped
}

fn push_escaped(escaped: &mut String, character: char, form: EscapeForm) {
    if !is_unprintable(character) {
        escaped.push(character);
    } else if form == EscapeForm::Json {
        escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
    } else {
        escaped.extend(character.escape_default());
    }
}

/// Escapes one line. In text, styles of our own are kept.
fn escape_keeping_styles(line: &str, form: EscapeForm) -> String {
    let mut escaped = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let style = match form {
            EscapeForm::Text => style_sequence(rest),
            EscapeForm::Json | EscapeForm::Verbatim => None,
        };
        let taken = style.map_or(character.len_utf8(), str::len);
        match style {
            Some(style) => escaped.push_str(style),
            None => push_escaped(&mut escaped, character, form),
        }
        rest = &rest[taken..];
    }
    escaped
}

/// The escape sequence of a style that this program prints, if the text begins with one.
fn style_sequence(text: &str) -> Option<&str> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters
        .bytes()
        .take(SEQUENCE_BYTES_MAX)
        .position(|byte| byte == b'm')?;
    STYLE_PARAMETERS
        .contains(&&parameters[..end])
        .then(|| &text[..end + 3])
}

impl<W: Write> EscapedOutput<W> {
    fn new(inner: W, form: EscapeForm) -> Self {
        let line = Vec::new();
        Self { inner, form, line }
    }

    /// Writes the collected line, escaped, and `end`.
    fn write_line(&mut self, end: &str) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&line);
        let escaped = escape_keeping_styles(&text, self.form);
        self.inner.write_all(format!("{escaped}{end}").as_bytes())
    }
}

impl<W: Write> Write for EscapedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.form == EscapeForm::Verbatim {
            return self.inner.write(bytes);
        }
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = lines.next() {
            self.line.extend_from_slice(part);
            if lines.peek().is_some() {
                self.write_line("\n")?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.write_line("")?;
        }
        self.inner.flush()
    }
}

impl<W: Write> Drop for EscapedOutput<W> {
    fn drop(&mut self) {
        // As with standard output itself, an error of the last, unfinished line is lost.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A log entry, text and JSON are written in this form.
    fn written(form: EscapeForm, parts: &[&str]) -> String {
        let mut bytes = Vec::new();
        let mut output = EscapedOutput::new(&mut bytes, form);
        for part in parts {
            output.write_all(part.as_bytes()).unwrap();
        }
        drop(output);
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(escape_text("a\u{1b}[2Jb\r\n"), "a\\u{1b}[2Jb\\r\\n");
        for mark in [
            '\u{61c}', '\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}', '\u{202a}', '\u{202e}',
            '\u{2066}', '\u{2069}', '\u{9b}', '\u{7f}',
        ] {
            assert_eq!(
                escape_text(&format!("a{mark}b")),
                format!("a\\u{{{:x}}}b", u32::from(mark))
            );
        }
        let plain = "Zoë, Łódź, שלום, 👩\u{200d}🚀";
        assert_eq!(escape_text(plain), plain);
    }

    #[test]
    fn output_keeps_line_breaks_and_own_styles_only() {
        let styled = "\u{1b}[1m\u{1b}[31mred\u{1b}[0m";
        let hostile = "\u{1b}[2Jx\u{1b}]0;title\u{7}\u{1b}[8m\u{202e}\r";
        let text = written(EscapeForm::Text, &[styled, "\n", hostile, "\nlast"]);
        let escaped = "\\u{1b}[2Jx\\u{1b}]0;title\\u{7}\\u{1b}[8m\\u{202e}\\r";
        assert_eq!(text, format!("{styled}\n{escaped}\nlast"));
        let json = written(EscapeForm::Json, &["{\"a\":\"\u{202e}\u{9b}\"}\n"]);
        assert_eq!(json, "{\"a\":\"\\u202e\\u009b\"}\n");
        let verbatim = written(EscapeForm::Verbatim, &[hostile]);
        assert_eq!(verbatim, hostile);
    }

    #[test]
    fn a_message_cannot_imitate_another() {
        assert_eq!(
            escape_message("failed: a\nerror: b\u{1b}[2K"),
            "failed: a\n  error: b\\u{1b}[2K"
        );
    }
}
