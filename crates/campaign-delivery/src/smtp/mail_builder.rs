//! Builds a mail from the parts of a message. No part of a message can add a line to the headers.

use lettre::Address;
use lettre::Message as Mail;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder, MultiPart, SinglePart};
use url::Url;

use crate::outgoing_item::{OutgoingItem, has_control_chars};
use crate::smtp::smtp_error::{MailBuildError, SmtpConfigError};

/// Maximum length of the value of a header in bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 900;

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
    pub(crate) fn new(from: Option<&str>, domain: Option<&str>) -> Result<Self, SmtpConfigError> {
        if let Some(domain) = domain
            && Address::new("key", domain).is_err()
        {
            return Err(SmtpConfigError::InvalidDomain);
        }
        let from = from
            .map(|from| parse_mailbox("smtp.from", from))
            .transpose()
            .map_err(SmtpConfigError::InvalidSender)?;
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
    pub(crate) fn build_mail(
        &self,
        item: &OutgoingItem<'_>,
    ) -> Result<OutgoingMail, MailBuildError> {
        let part = |name: &str| item.message.find_part(name).filter(|text| !text.is_empty());
        let from = match (part("from"), &self.from) {
            (Some(from), _) => parse_mailbox("from", from)?,
            (None, Some(from)) => from.clone(),
            (None, None) => return Err(MailBuildError::MissingSender),
        };
        let to = parse_address("to", item.to)?;
        let subject = require_single_line(
            "subject",
            part("subject").ok_or(MailBuildError::MissingPart("subject"))?,
        )?;
        let domain = self.domain.as_deref().unwrap_or(from.email.domain());
        let id = format!("{}@{domain}", check_message_id_key(item.key)?);
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
            (None, None) => return Err(MailBuildError::MissingBody),
        };
        Ok(OutgoingMail {
            from: from.email,
            to,
            message_id: id,
            content: mail?.formatted(),
        })
    }
}

/// Fails if the text has a line break or another control character. `field` is the name of the part
/// or the path of the setting.
fn require_single_line<'a>(field: &'static str, text: &'a str) -> Result<&'a str, MailBuildError> {
    match has_control_chars(text) {
        true => Err(MailBuildError::ControlCharacter(field)),
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
fn check_message_id_key(key: &str) -> Result<&str, MailBuildError> {
    let is_valid = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
    if is_valid {
        Ok(key)
    } else {
        Err(MailBuildError::InvalidKey)
    }
}

fn parse_address(field: &'static str, text: &str) -> Result<Address, MailBuildError> {
    let invalid = |cause| MailBuildError::InvalidAddress {
        field,
        example: "",
        cause,
    };
    require_single_line(field, text)?
        .trim()
        .parse()
        .map_err(invalid)
}

fn parse_mailbox(field: &'static str, text: &str) -> Result<Mailbox, MailBuildError> {
    let invalid = |cause| MailBuildError::InvalidAddress {
        field,
        example: ", such as Shop <shop@example.org>",
        cause,
    };
    require_single_line(field, text)?
        .trim()
        .parse()
        .map_err(invalid)
}

/// Adds the unsubscribe headers for mail clients (RFC 2369, RFC 8058).
fn add_list_unsubscribe(
    builder: MessageBuilder,
    text: &str,
) -> Result<MessageBuilder, MailBuildError> {
    let url: Url = require_single_line("unsubscribe", text)?
        .parse()
        .map_err(|_| MailBuildError::InvalidUnsubscribeLink)?;
    let is_one_click = match url.scheme() {
        "https" => true,
        "mailto" => false,
        _ => return Err(MailBuildError::InvalidUnsubscribeLink),
    };
    let url = url.as_str();
    if url.len() > HEADER_BYTES_MAX
        || !url
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"<>,".contains(&byte))
    {
        return Err(MailBuildError::UnprintableUnsubscribeLink);
    }
    let builder = builder.raw_header(unencoded_header("List-Unsubscribe", format!("<{url}>")));
    match is_one_click {
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
    use crate::smtp::smtp_error::MailBuildError;

    fn message(parts: &[(&str, &str)]) -> RenderedMessage {
        RenderedMessage {
            parts: parts
                .iter()
                .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()))
                .collect(),
        }
    }

    fn build_mail_to(to: &str, parts: &[(&str, &str)]) -> Result<OutgoingMail, MailBuildError> {
        let message = message(parts);
        let item = OutgoingItem {
            item_id: "j.0",
            key: "ab12",
            to,
            recipient: "ada",
            message: &message,
        };
        MailBuilder::new(None, None).unwrap().build_mail(&item)
    }

    fn mail_with(part: (&str, &str)) -> Result<String, MailBuildError> {
        let default_parts = [
            ("from", "Shop <shop@example.com>"),
            ("subject", "Hello"),
            ("text", "Hi"),
        ];
        let parts: Vec<_> = default_parts
            .into_iter()
            .filter(|(name, _)| *name != part.0)
            .chain([part])
            .collect();
        build_mail_to("ada@example.org", &parts).map(|it| String::from_utf8(it.content).unwrap())
    }

    #[test]
    fn the_message_id_contains_the_idempotency_key() {
        let mail = mail_with(("text", "Hi")).unwrap();
        assert!(
            mail.contains("Message-ID: <ab12@example.com>\r\n"),
            "{mail}"
        );
        assert!(mail.contains("To: ada@example.org\r\n"));
        assert!(mail.contains("\r\nDate: ") || mail.starts_with("Date: "));
        let builder = MailBuilder::new(Some("shop@example.com"), Some("mail.example.net")).unwrap();
        let message = message(&[("subject", "Hello"), ("html", "<p>Hi</p>")]);
        let item = OutgoingItem {
            item_id: "j.0",
            key: "ab12",
            to: "ada@example.org",
            recipient: "ada",
            message: &message,
        };
        assert_eq!(
            builder.build_mail(&item).unwrap().message_id,
            "ab12@mail.example.net"
        );
    }

    #[test]
    fn text_and_html_are_alternatives() {
        let mail = mail_with(("html", "<p>Grüße</p>")).unwrap();
        assert!(mail.contains("multipart/alternative"));
        assert!(mail.contains("text/plain") && mail.contains("text/html"));
        assert!(mail.is_ascii());
    }

    #[test]
    fn a_line_break_in_a_header_is_rejected() {
        for name in ["from", "reply_to", "subject", "unsubscribe"] {
            for text in [
                "x@example.org\r\nBcc: eve@example.org",
                "x@example.org\nx: y",
                "x\u{0}@example.org",
            ] {
                let error = mail_with((name, text)).unwrap_err().to_string();
                assert!(
                    error.contains("control character"),
                    "{name} {text:?}: {error}"
                );
            }
        }
        let parts = [
            ("from", "shop@example.com"),
            ("subject", "Hello"),
            ("text", "Hi"),
        ];
        assert!(
            build_mail_to("ada@example.org\r\nBcc: eve@example.org", &parts)
                .unwrap_err()
                .to_string()
                .contains("control character")
        );
    }

    #[test]
    fn an_invalid_address_is_rejected() {
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
                build_mail_to(to, &parts)
                    .unwrap_err()
                    .to_string()
                    .contains("is not an email address"),
                "{to}"
            );
        }
        for name in ["from", "reply_to"] {
            assert!(
                mail_with((name, "no-address"))
                    .unwrap_err()
                    .to_string()
                    .contains("is not an email address")
            );
        }
    }

    #[test]
    fn the_error_names_a_missing_part() {
        let missing = |parts: &[(&str, &str)]| {
            build_mail_to("ada@example.org", parts)
                .unwrap_err()
                .to_string()
        };
        assert!(missing(&[("subject", "Hello"), ("text", "Hi")]).contains("`from`"));
        assert!(missing(&[("from", "shop@example.com"), ("text", "Hi")]).contains("`subject`"));
        assert!(missing(&[("from", "shop@example.com"), ("subject", "Hello")]).contains("`html`"));
    }

    #[test]
    fn line_endings_of_a_text_are_converted_to_crlf() {
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
                let mail = mail_with((name, text)).unwrap().replace("\r\n", "");
                assert!(!mail.contains(['\r', '\n']), "{name} {text:?}: {mail:?}");
            }
        }
    }

    #[test]
    fn an_https_link_enables_one_click_unsubscribe_and_a_mailto_link_does_not() {
        let mail = mail_with(("unsubscribe", "https://example.com/u?t=1&id=ada")).unwrap();
        assert!(
            mail.contains("List-Unsubscribe: <https://example.com/u?t=1&id=ada>\r\n"),
            "{mail}"
        );
        assert!(mail.contains("List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"));
        let mail = mail_with(("unsubscribe", "mailto:leave@example.com?subject=ada")).unwrap();
        assert!(mail.contains("List-Unsubscribe: <mailto:leave@example.com?subject=ada>\r\n"));
        assert!(!mail.contains("List-Unsubscribe-Post"));
        for text in [
            "http://example.com/u",
            "leave",
            "javascript:x",
            "https://example.com/a,b",
        ] {
            assert!(mail_with(("unsubscribe", text)).is_err(), "{text}");
        }
        assert!(
            mail_with((
                "unsubscribe",
                &format!("https://example.com/{}", "u".repeat(1_000))
            ))
            .is_err()
        );
    }
}
