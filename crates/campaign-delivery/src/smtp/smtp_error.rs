//! Errors of the SMTP provider: a configuration that cannot be used, and a mail that cannot be
//! built. They never repeat a URL: it may contain a password.

use std::path::PathBuf;

use lettre::address::AddressError;
use thiserror::Error;

use crate::secret::SecretError;
use crate::smtp::CONNECTIONS_MAX;
use crate::smtp::mail_builder::HEADER_BYTES_MAX;

/// The reason why the configuration of an SMTP provider cannot be used.
#[derive(Debug, Error)]
pub enum SmtpConfigError {
    /// The maximum number of connections is out of range.
    #[error("`smtp.max_connections` is {0}: it must be between 1 and {CONNECTIONS_MAX}")]
    MaxConnectionsOutOfRange(usize),
    /// The URL cannot be parsed.
    #[error("`smtp.url` is not a URL: use smtps://HOST or smtp://HOST, with or without a port")]
    InvalidUrl,
    /// The URL has another scheme, or more than a host and a port.
    #[error(
        "`smtp.url` is not the URL of an SMTP server: \
         use smtps://HOST or smtp://HOST, with or without a port"
    )]
    NotServerUrl,
    /// The URL has no host.
    #[error("`smtp.url` has no host")]
    MissingHost,
    /// The URL contains a user name or a password.
    #[error(
        "`smtp.url` must not contain a user name or password: \
         use `smtp.user` and `smtp.password`"
    )]
    CredentialsInUrl,
    /// `tls` is set for implicit TLS.
    #[error(
        "`smtp.tls` is not allowed with smtps://, which is encrypted from the first byte: \
         remove `smtp.tls`, or use smtp://"
    )]
    TlsModeWithSmtps,
    /// The connection would be unencrypted to a host that is not loopback.
    #[error(
        "`smtp.tls: none` would send mail unencrypted to a host that is not loopback: \
         use starttls or smtps://, or set `smtp.allow_plaintext`"
    )]
    Plaintext,
    /// `user` is set without `password`.
    #[error("`smtp.user` requires `smtp.password`, which is missing")]
    MissingPassword,
    /// `password` is set without `user`.
    #[error("`smtp.password` requires `smtp.user`, which is missing")]
    MissingUser,
    /// The password cannot be resolved.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// The sender address is invalid.
    #[error(transparent)]
    InvalidSender(MailBuildError),
    /// The domain is invalid.
    #[error("`smtp.domain` is not a domain name")]
    InvalidDomain,
    /// The additional certificates cannot be read or used.
    #[error("`smtp.ca_file`: cannot use the certificates in {}: {cause}", path.display())]
    Certificates {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system or of the TLS library.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The host of the URL cannot be verified by a certificate.
    #[error("`smtp.url`: {0} is not a valid server name for TLS")]
    InvalidServerName(String),
    /// The TLS library rejected its configuration.
    #[error("cannot set up TLS: {0}")]
    TlsSetup(Box<dyn std::error::Error + Send + Sync>),
}

/// The reason why the mail of an item cannot be built.
#[derive(Debug, Error)]
pub enum MailBuildError {
    /// A required part is missing.
    #[error("the message has no part `{0}`")]
    MissingPart(&'static str),
    /// The message has no sender, and the configuration has none either.
    #[error("the message has no part `from`: add it to the message, or set `smtp.from`")]
    MissingSender,
    /// The message has no content.
    #[error("the message has neither a part `text` nor a part `html`")]
    MissingBody,
    /// A text for a header has more than one line.
    #[error("`{0}` contains a line break or another control character")]
    ControlCharacter(&'static str),
    /// A part or a setting is not an email address.
    #[error("`{field}` is not an email address{example}: {cause}")]
    InvalidAddress {
        /// Name of the part or path of the setting.
        field: &'static str,
        /// The expected form, if it is more than an address.
        example: &'static str,
        /// The error of the parser.
        cause: AddressError,
    },
    /// The unsubscribe link has another scheme, or is not a URL.
    #[error("`unsubscribe` must be a URL that starts with https:// or mailto:")]
    InvalidUnsubscribeLink,
    /// The unsubscribe link cannot be one line of a header.
    #[error(
        "`unsubscribe` is longer than {HEADER_BYTES_MAX} bytes, \
         or contains characters that must be percent-encoded"
    )]
    UnprintableUnsubscribeLink,
    /// The idempotency key cannot be part of a message id.
    #[error("the idempotency key contains characters that are not allowed in a message id")]
    InvalidKey,
    /// The mail library rejected the message.
    #[error("cannot build the mail: {0}")]
    Build(#[from] lettre::error::Error),
}
