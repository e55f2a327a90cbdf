//! Validation and normalization of addresses per channel. It rejects addresses that cannot be
//! delivered to, and characters that would change the meaning of a mail header; any other check is
//! left to the provider.

use onward_campaign_core::DeliveryChannel;
use thiserror::Error;

/// Maximum length of an email address in bytes.
const EMAIL_BYTES_MAX: usize = 254;
const LOCAL_BYTES_MAX: usize = 64;
const LABEL_BYTES_MAX: usize = 63;
/// Maximum length of a social account address in bytes.
const ACCOUNT_BYTES_MAX: usize = 255;

/// Reasons why an address is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum AddressError {
    /// The address is empty.
    #[error("the address is empty")]
    Empty,
    /// An email address exceeds the maximum length.
    #[error("the address is longer than {EMAIL_BYTES_MAX} bytes")]
    EmailTooLong,
    /// An email address contains whitespace, control characters or invisible characters.
    #[error("the address has spaces or control characters")]
    InvisibleCharacters,
    /// An email address has no `@`.
    #[error("the address has no @")]
    MissingAt,
    /// An email address has several `@`.
    #[error("the address has more than one @")]
    MultipleAts,
    /// The part before the `@` is empty or too long.
    #[error("the part before the @ must have between 1 and {LOCAL_BYTES_MAX} bytes")]
    LocalPartLength,
    /// The part before the `@` has characters that would make it two addresses or a display name.
    #[error("the address has characters that are not allowed before the @")]
    LocalPartCharacters,
    /// The part after the `@` is not a domain.
    #[error("the part after the @ is not a valid domain")]
    InvalidDomain,
    /// The part after the `@` is a single label other than `localhost`.
    #[error("the part after the @ is not a complete domain, such as example.com")]
    IncompleteDomain,
    /// A mailbox contains control characters.
    #[error("the mailbox has control characters")]
    MailboxControlCharacters,
    /// A mailbox ends with `>` and has no `<`.
    #[error("the mailbox has a `>` without a `<`")]
    UnopenedBracket,
    /// The display name of a mailbox has characters that are not allowed without quotes, or not at
    /// all.
    #[error("the display name has characters that must be in quotes, or are not allowed")]
    DisplayName,
    /// A phone number does not start with `+`.
    #[error("the number must start with + and the country code")]
    MissingCountryCode,
    /// A phone number contains something other than digits and separators.
    #[error("the number has characters other than digits")]
    PhoneCharacters,
    /// The country code of a phone number starts with 0.
    #[error("the country code starts with 0")]
    ZeroCountryCode,
    /// A phone number is too short or too long.
    #[error("the number must have between 7 and 15 digits")]
    PhoneLength,
    /// A social account address exceeds the maximum length.
    #[error("the address is longer than {ACCOUNT_BYTES_MAX} bytes")]
    AccountTooLong,
    /// A social account address contains control characters.
    #[error("the address has control characters")]
    AccountControlCharacters,
}

/// Returns the normalized form of an address, or the reason why the channel cannot use it.
pub fn parse_address(channel: DeliveryChannel, text: &str) -> Result<String, AddressError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(AddressError::Empty);
    }
    match channel {
        DeliveryChannel::Email => normalize_email(text),
        DeliveryChannel::Voice => normalize_phone(text),
        DeliveryChannel::Social => check_account(text).map(|()| text.to_owned()),
    }
}

/// Fails if the text is not exactly one mailbox: an email address, with or without a display name
/// before it.
pub fn check_mailbox(text: &str) -> Result<(), AddressError> {
    let text = text.trim();
    if text.chars().any(char::is_control) {
        return Err(AddressError::MailboxControlCharacters);
    }
    match text.strip_suffix('>').map(|it| it.rsplit_once('<')) {
        None => normalize_email(text).map(drop),
        Some(None) => Err(AddressError::UnopenedBracket),
        Some(Some((name, address))) => check_display_name(name.trim())
            .and_then(|()| normalize_email(address))
            .map(drop),
    }
}

/// Fails if the display name has characters that would make it a different address. In quotes, all
/// characters except `"` and `\` are allowed.
fn check_display_name(name: &str) -> Result<(), AddressError> {
    let quoted = name.strip_prefix('"').and_then(|it| it.strip_suffix('"'));
    let is_valid = match quoted {
        Some(inside) => !inside.contains(['"', '\\']),
        None => !name.contains(['<', '>', '(', ')', '[', ']', ',', ';', ':', '@', '\\', '"']),
    };
    if is_valid {
        Ok(())
    } else {
        Err(AddressError::DisplayName)
    }
}

/// Normalizes an email address: its domain becomes lowercase ASCII.
fn normalize_email(text: &str) -> Result<String, AddressError> {
    if text.len() > EMAIL_BYTES_MAX {
        return Err(AddressError::EmailTooLong);
    }
    if text.chars().any(is_invisible) {
        return Err(AddressError::InvisibleCharacters);
    }
    let (local, domain) = text.split_once('@').ok_or(AddressError::MissingAt)?;
    if domain.contains('@') {
        return Err(AddressError::MultipleAts);
    }
    if local.is_empty() || local.len() > LOCAL_BYTES_MAX {
        return Err(AddressError::LocalPartLength);
    }
    // Any of these would turn it into two addresses, or into a display name.
    if local.contains(['<', '>', '(', ')', '[', ']', ',', ';', ':', '\\', '"']) {
        return Err(AddressError::LocalPartCharacters);
    }
    let address = format!("{local}@{}", normalize_domain(domain)?);
    if address.len() > EMAIL_BYTES_MAX {
        Err(AddressError::EmailTooLong)
    } else {
        Ok(address)
    }
}

/// Normalizes a domain to its ASCII form (IDNA): `bücher.example` becomes `xn--bcher-kva.example`.
fn normalize_domain(domain: &str) -> Result<String, AddressError> {
    let ascii = idna::domain_to_ascii(domain).map_err(|_| AddressError::InvalidDomain)?;
    check_domain(&ascii).map(|()| ascii)
}

fn check_domain(domain: &str) -> Result<(), AddressError> {
    let is_label = |label: &str| {
        let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '-';
        !label.is_empty()
            && label.len() <= LABEL_BYTES_MAX
            && label.chars().all(is_allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if !domain.split('.').all(is_label) {
        return Err(AddressError::InvalidDomain);
    }
    if !domain.contains('.') && domain != "localhost" {
        return Err(AddressError::IncompleteDomain);
    }
    Ok(())
}

/// Returns whether the character is whitespace, a control character, or an invisible character, as
/// in an address copied from a web page.
fn is_invisible(c: char) -> bool {
    c.is_whitespace()
        || c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}' | '\u{feff}')
}

fn normalize_phone(text: &str) -> Result<String, AddressError> {
    let number: String = text.chars().filter(|c| !is_phone_separator(*c)).collect();
    let digits = number
        .strip_prefix('+')
        .ok_or(AddressError::MissingCountryCode)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(AddressError::PhoneCharacters);
    }
    if digits.starts_with('0') {
        return Err(AddressError::ZeroCountryCode);
    }
    if !(7..=15).contains(&digits.len()) {
        return Err(AddressError::PhoneLength);
    }
    Ok(number)
}

/// Returns whether the character is a common separator between the digits of a phone number.
fn is_phone_separator(c: char) -> bool {
    matches!(
        c,
        ' ' | '\u{a0}' | '-' | '\u{2010}'..='\u{2013}' | '(' | ')' | '.' | '/'
    )
}

fn check_account(text: &str) -> Result<(), AddressError> {
    if text.len() > ACCOUNT_BYTES_MAX {
        return Err(AddressError::AccountTooLong);
    }
    if text.chars().any(char::is_control) {
        return Err(AddressError::AccountControlCharacters);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_stored_form(channel: DeliveryChannel, address: &str) -> bool {
        parse_address(channel, address).is_ok_and(|stored| stored == address)
    }

    #[test]
    fn valid_email_addresses_are_accepted() {
        for address in [
            "ada@example.com",
            "a@b.co",
            "Ada.Lovelace+news@mail.example.co.uk",
            "o'hara@example.com",
            "a..b@docomo.example",
            "x_y-z!#$%&*/=?^`{|}~@example.com",
            "root@localhost",
            "1@2.example",
        ] {
            assert_eq!(
                parse_address(DeliveryChannel::Email, address),
                Ok(address.to_owned())
            );
            assert_eq!(check_mailbox(address), Ok(()));
        }
        assert_eq!(
            parse_address(DeliveryChannel::Email, " ada@example.com\t"),
            Ok("ada@example.com".to_owned())
        );
    }

    #[test]
    fn invalid_email_addresses_are_rejected() {
        for address in [
            "",
            "   ",
            "ada",
            "@example.com",
            "ada@",
            "ada@example",
            "ada@@example.com",
            "ada@b@example.com",
            "ada lovelace@example.com",
            "ada@exa mple.com",
            "ada@example.com\r\nBcc: eve@example.com",
            "ada@example.com\nx",
            "ada\0@example.com",
            "ada\u{200b}@example.com",
            "ada,eve@example.com",
            "<ada@example.com>",
            "ada@example..com",
            "ada@.example.com",
            "ada@example.com.",
            "ada@-example.com",
            "ada@example_com.example",
            "ada@[127.0.0.1]",
            "Joe <ada@example.com>",
            "ada @example.com",
            "ada@ example.com",
            "ada@example.com .",
            "ada@exämple.com.",
            "ada@exämple。com。",
            "ada@xn--a.example",
        ] {
            assert!(
                parse_address(DeliveryChannel::Email, address).is_err(),
                "{address:?}"
            );
        }
        assert!(
            parse_address(
                DeliveryChannel::Email,
                &format!("{}@example.com", "a".repeat(65))
            )
            .is_err()
        );
        assert!(
            parse_address(
                DeliveryChannel::Email,
                &format!("a@{}example.com", "abc.".repeat(70))
            )
            .is_err()
        );
    }

    #[test]
    fn spellings_of_a_domain_have_one_normalized_form() {
        for (input, stored) in [
            ("bob@bücher.example", "bob@xn--bcher-kva.example"),
            ("bob@BÜCHER.Example", "bob@xn--bcher-kva.example"),
            ("bob@XN--BCHER-KVA.example", "bob@xn--bcher-kva.example"),
            ("bob@bu\u{308}cher。example", "bob@xn--bcher-kva.example"),
            ("Bob@EXAMPLE.com", "Bob@example.com"),
            ("jürgen@exämple.de", "jürgen@xn--exmple-cua.de"),
        ] {
            assert_eq!(
                parse_address(DeliveryChannel::Email, input),
                Ok(stored.to_owned())
            );
            assert!(
                is_stored_form(DeliveryChannel::Email, stored)
                    && !is_stored_form(DeliveryChannel::Email, input),
                "{input}"
            );
        }
        assert!(
            parse_address(
                DeliveryChannel::Email,
                &format!("a@{}.example", "ü".repeat(60))
            )
            .is_err()
        );
        assert!(
            is_stored_form(DeliveryChannel::Voice, "+49301234567")
                && !is_stored_form(DeliveryChannel::Voice, "+49 30 1234567")
        );
        assert!(
            !is_stored_form(DeliveryChannel::Email, " ada@example.com")
                && !is_stored_form(DeliveryChannel::Social, "")
        );
    }

    #[test]
    fn a_mailbox_may_have_a_display_name() {
        for text in [
            "News <news@example.com>",
            "<news@example.com>",
            "\"A, B\" <ab@example.com>",
            "news@example.com",
        ] {
            assert_eq!(check_mailbox(text), Ok(()), "{text}");
        }
        for text in [
            "News",
            "News <news>",
            "a@b.example, c@d.example",
            "<a@b.example> <c@d.example>",
            "eve@d.example, A <a@b.example>",
            "A, B <a@b.example>",
            "\"A\" , \"B\" <a@b.example>",
            "\" <a@b.example>",
            "a@b.example>",
            "A\n <a@b.example>",
        ] {
            assert!(check_mailbox(text).is_err(), "{text}");
        }
    }

    #[test]
    fn phone_numbers_are_normalized() {
        for number in [
            "+49 30 1234567",
            "+49-30-1234567",
            "+49 (30) 123.45.67",
            "+49/30/1234567",
            "+49301234567",
        ] {
            assert_eq!(
                parse_address(DeliveryChannel::Voice, number),
                Ok("+49301234567".to_owned())
            );
        }
        for number in [
            "030 1234567",
            "0049301234567",
            "+0301234567",
            "+49",
            "+4930123456789012",
            "+49 30 CALL",
            "+49+30123456",
            "+",
        ] {
            assert!(
                parse_address(DeliveryChannel::Voice, number).is_err(),
                "{number}"
            );
        }
    }

    #[test]
    fn a_social_account_is_any_text_without_control_characters() {
        assert_eq!(
            parse_address(DeliveryChannel::Social, "@onward@social.example"),
            Ok("@onward@social.example".to_owned())
        );
        assert!(parse_address(DeliveryChannel::Social, "a\u{7}b").is_err());
        assert!(parse_address(DeliveryChannel::Social, &"a".repeat(256)).is_err());
    }

    proptest! {
        #[test]
        fn no_address_contains_a_line_break(text in "\\PC*[\r\n]\\PC*@[a-z]{1,5}\\.[a-z]{2}") {
            for channel in [DeliveryChannel::Email, DeliveryChannel::Voice, DeliveryChannel::Social] {
                if let Ok(address) = parse_address(channel, &text) {
                    prop_assert!(!address.contains(['\r', '\n']));
                }
            }
        }

        #[test]
        fn normalization_is_idempotent(text in "\\PC{0,40}") {
            for channel in DeliveryChannel::ALL {
                if let Ok(address) = parse_address(channel, &text) {
                    prop_assert_eq!(parse_address(channel, &address), Ok(address.clone()));
                }
            }
        }
    }
}
