//! Builds a mail from the parts of a message. No part of a message can add a line to the headers.

use lettre::Address;
use lettre::Message as Mail;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder, MultiPart, SinglePart};
use url::Url;

use crate::outgoing_item::{OutgoingItem, has_control_chars};

/// Maximum length of a header line in bytes.
const HEADER_BYTES_MAX: usize = 900;

/// A formatted mail with its envelope addresses.
#[derive(Debug)]
pub(crate) struct OutgoingMail {
    pub(crate) from: Address,
    pub(crate) to: Address,
    /// The message id, without angle brackets.
    pub(crate) message_id: String,
    pub(crate) content: Vec<u8>,
}

/// Settings that all mails of a provider share.
#[derive(Debug)]
pub(crate) struct MailBuilder {
    from: Option<Mailbox>,
    domain: Option<String>,
}

impl MailBuilder {
    pub(crate) fn new(from: Option<&str>, domain: Option<&str>) -> Result<Self, String> {
        if let Some(domain) = domain
            && Address::new("key", domain).is_err()
        {
            return Err(format!("`{domain}` is not a domain"));
        }
        let from = from.map(|from| parse_mailbox("from", from)).transpose()?;
        Ok(Self {
            from,
            domain: domain.map(str::to_owned),
        })
    }

    /// The sender domain, if it does not depend on the message.
    pub(crate) fn sender_domain(&self) -> Option<&str> {
        self.domain
            .as_deref()
            .or_else(|| self.from.as_ref().map(|from| from.email.domain()))
    }

    /// Builds the mail of an item. Fails if a required part is missing or a part is invalid.
    pub(crate) fn build_mail(&self, parcel: &OutgoingItem<'_>) -> Result<OutgoingMail, String> {
        let part = |name: &str| {
            parcel
                .message
                .find_part(name)
                .filter(|text| !text.is_empty())
        };
        let from = match (part("from"), &self.from) {
            (Some(from), _) => parse_mailbox("from", from)?,
            (None, Some(from)) => from.clone(),
            (None, None) => {
                return Err("it is not said who sends: there is no part `from`".to_owned());
            }
        };
        let to = parse_address("to", parcel.to)?;
        let subject = require_single_line(
            "subject",
            part("subject").ok_or("there is no part `subject`")?,
        )?;
        let domain = self.domain.as_deref().unwrap_or(from.email.domain());
        let id = format!("{}@{domain}", check_message_id_key(parcel.key)?);
        let mut builder = Mail::builder()
            .date_now()
            .from(from.clone())
            .to(Mailbox::new(None, to.clone()));
        builder = builder.subject(subject).message_id(Some(format!("<{id}>")));
        if let Some(reply_to) = part("reply_to") {
            builder = builder.reply_to(parse_mailbox("reply_to", reply_to)?);
        }
        if let Some(unsubscribe) = part("unsubscribe") {
            builder = add_list_unsubscribe(builder, unsubscribe)?;
        }
        let mail = match (
            part("text").map(normalize_line_endings),
            part("html").map(normalize_line_endings),
        ) {
            (Some(text), Some(html)) => {
                builder.multipart(MultiPart::alternative_plain_html(text, html))
            }
            (Some(text), None) => builder.singlepart(SinglePart::plain(text)),
            (None, Some(html)) => builder.singlepart(SinglePart::html(html)),
            (None, None) => {
                return Err("there is neither a part `text` nor a part `html`".to_owned());
            }
        };
        let mail = mail.map_err(|cause| format!("the mail cannot be made: {cause}"))?;
        Ok(OutgoingMail {
            from: from.email,
            to,
            message_id: id,
            content: mail.formatted(),
        })
    }
}

/// Fails if the text has a line break or another control character.
fn require_single_line<'a>(name: &str, text: &'a str) -> Result<&'a str, String> {
    match has_control_chars(text) {
        true => Err(format!(
            "there is a line break or another control character in `{name}`"
        )),
        false => Ok(text),
    }
}

/// Converts all line endings to CRLF, as SMTP requires.
fn normalize_line_endings(text: &str) -> String {
    text.replace("\r\n", "\n")
        .replace('\r', "\n")
        .replace('\n', "\r\n")
}

/// Fails if the key cannot be the first part of a message id.
fn check_message_id_key(key: &str) -> Result<&str, String> {
    let is_word = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_word {
        Ok(key)
    } else {
        Err("the key has characters in it that an id of a message cannot have".to_owned())
    }
}

fn parse_address(name: &str, text: &str) -> Result<Address, String> {
    let refuse = |cause| format!("`{name}` is not an address of mail: {cause}");
    require_single_line(name, text)?
        .trim()
        .parse()
        .map_err(refuse)
}

fn parse_mailbox(name: &str, text: &str) -> Result<Mailbox, String> {
    let refuse = |cause| {
        format!("`{name}` is not an address of mail, such as Shop <shop@example.org>: {cause}")
    };
    require_single_line(name, text)?
        .trim()
        .parse()
        .map_err(refuse)
}

/// Adds the unsubscribe headers for mail clients (RFC 2369, RFC 8058).
fn add_list_unsubscribe(builder: MessageBuilder, text: &str) -> Result<MessageBuilder, String> {
    let expected = "`unsubscribe` is to be an address that begins with https:// or mailto:";
    let url: Url = require_single_line("unsubscribe", text)?
        .parse()
        .map_err(|_| expected.to_owned())?;
    let has_click = match url.scheme() {
        "https" => true,
        "mailto" => false,
        _ => return Err(expected.to_owned()),
    };
    let url = url.as_str();
    if url.len() > HEADER_BYTES_MAX
        || !url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"<>,".contains(&byte))
    {
        return Err(
            "`unsubscribe` is too long, or has characters in it that have to be encoded".to_owned(),
        );
    }
    let builder = builder.raw_header(unencoded_header("List-Unsubscribe", format!("<{url}>")));
    match has_click {
        true => Ok(builder.raw_header(unencoded_header(
            "List-Unsubscribe-Post",
            "List-Unsubscribe=One-Click".to_owned(),
        ))),
        false => Ok(builder),
    }
}

/// Builds a header whose value is printable and short: it needs no encoding, and must not be
/// folded.
fn unencoded_header(name: &'static str, value: String) -> HeaderValue {
    HeaderValue::dangerous_new_pre_encoded(
        HeaderName::new_from_ascii_str(name),
        value.clone(),
        value,
    )
}

#[cfg(test)]
mod tests {
    use onward_campaign_core::RenderedMessage;

    use super::{MailBuilder, OutgoingMail};
    use crate::outgoing_item::OutgoingItem;

    fn message(parts: &[(&str, &str)]) -> RenderedMessage {
        RenderedMessage {
            parts: parts
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
        }
    }

    fn write_to(to: &str, parts: &[(&str, &str)]) -> Result<OutgoingMail, String> {
        let message = message(parts);
        let parcel = OutgoingItem {
            item: "j.0",
            key: "ab12",
            to,
            recipient: "ada",
            message: &message,
        };
        MailBuilder::new(None, None).unwrap().build_mail(&parcel)
    }

    fn with(part: (&str, &str)) -> Result<String, String> {
        let plain = [
            ("from", "Shop <shop@example.com>"),
            ("subject", "Hello"),
            ("text", "Hi"),
        ];
        let parts: Vec<_> = plain
            .into_iter()
            .filter(|(name, _)| *name != part.0)
            .chain([part])
            .collect();
        write_to("ada@example.org", &parts).map(|it| String::from_utf8(it.content).unwrap())
    }

    #[test]
    fn the_id_of_a_message_follows_from_its_key() {
        let mail = with(("text", "Hi")).unwrap();
        assert!(
            mail.contains("Message-ID: <ab12@example.com>\r\n"),
            "{mail}"
        );
        assert!(mail.contains("To: ada@example.org\r\n"));
        assert!(mail.contains("\r\nDate: ") || mail.starts_with("Date: "));
        let head = MailBuilder::new(Some("shop@example.com"), Some("mail.example.net")).unwrap();
        let message = message(&[("subject", "Hello"), ("html", "<p>Hi</p>")]);
        let parcel = OutgoingItem {
            item: "j.0",
            key: "ab12",
            to: "ada@example.org",
            recipient: "ada",
            message: &message,
        };
        assert_eq!(
            head.build_mail(&parcel).unwrap().message_id,
            "ab12@mail.example.net"
        );
    }

    #[test]
    fn text_and_html_are_alternatives() {
        let mail = with(("html", "<p>Grüße</p>")).unwrap();
        assert!(mail.contains("multipart/alternative"));
        assert!(mail.contains("text/plain") && mail.contains("text/html"));
        assert!(mail.is_ascii());
    }

    #[test]
    fn a_line_break_in_a_header_is_refused() {
        for name in ["from", "reply_to", "subject", "unsubscribe"] {
            for text in [
                "x@example.org\r\nBcc: eve@example.org",
                "x@example.org\nx: y",
                "x\u{0}@example.org",
            ] {
                let refused = with((name, text)).unwrap_err();
                assert!(
                    refused.contains("control character"),
                    "{name} {text:?}: {refused}"
                );
            }
        }
        let parts = [
            ("from", "shop@example.com"),
            ("subject", "Hello"),
            ("text", "Hi"),
        ];
        assert!(
            write_to("ada@example.org\r\nBcc: eve@example.org", &parts)
                .unwrap_err()
                .contains("control character")
        );
    }

    #[test]
    fn an_address_that_is_none_is_refused() {
        let parts = [
            ("from", "shop@example.com"),
            ("subject", "Hello"),
            ("text", "Hi"),
        ];
        for to in [
            "",
            "ada",
            "ada@",
            "@example.org",
            "a b@example.org",
            "ada@example.org, eve@example.org",
            "<a@b>",
        ] {
            assert!(
                write_to(to, &parts)
                    .unwrap_err()
                    .contains("is not an address"),
                "{to}"
            );
        }
        for name in ["from", "reply_to"] {
            assert!(
                with((name, "nobody"))
                    .unwrap_err()
                    .contains("is not an address")
            );
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = |parts: &[(&str, &str)]| write_to("ada@example.org", parts).unwrap_err();
        assert!(missing(&[("subject", "Hello"), ("text", "Hi")]).contains("`from`"));
        assert!(missing(&[("from", "shop@example.com"), ("text", "Hi")]).contains("`subject`"));
        assert!(missing(&[("from", "shop@example.com"), ("subject", "Hello")]).contains("`html`"));
    }

    #[test]
    fn lines_of_a_text_end_as_lines_of_mail_do() {
        // A server that accepts a lone CR or LF as a line ending could be made to see the end of
        // the message there (SMTP smuggling).
        for name in ["text", "html"] {
            for text in [
                "a\n.\nb",
                "a\r.\rb",
                "a\r\n.\r\nb",
                "a\n.\r\nb",
                "é\n.\nb",
                "a\r\n.\nb\n\r",
            ] {
                let mail = with((name, text)).unwrap().replace("\r\n", "");
                assert!(!mail.contains(['\r', '\n']), "{name} {text:?}: {mail:?}");
            }
        }
    }

    #[test]
    fn a_link_unsubscribes_with_one_click_and_an_address_without() {
        let mail = with(("unsubscribe", "https://example.com/u?t=1&who=ada")).unwrap();
        assert!(
            mail.contains("List-Unsubscribe: <https://example.com/u?t=1&who=ada>\r\n"),
            "{mail}"
        );
        assert!(mail.contains("List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"));
        let mail = with(("unsubscribe", "mailto:leave@example.com?subject=ada")).unwrap();
        assert!(mail.contains("List-Unsubscribe: <mailto:leave@example.com?subject=ada>\r\n"));
        assert!(!mail.contains("List-Unsubscribe-Post"));
        for text in [
            "http://example.com/u",
            "leave",
            "javascript:x",
            "https://example.com/a,b",
        ] {
            assert!(with(("unsubscribe", text)).is_err(), "{text}");
        }
        assert!(
            with((
                "unsubscribe",
                &format!("https://example.com/{}", "u".repeat(1_000))
            ))
            .is_err()
        );
    }
}
