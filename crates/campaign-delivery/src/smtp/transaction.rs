//! One SMTP transaction for one message: sender, recipient, message, end of message.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt, Rset};
use lettre::transport::smtp::extension::{Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use tokio::time::{Instant, timeout_at};

use crate::smtp::mail_builder::OutgoingMail;
use crate::smtp::smtp_failure::{SmtpFailure, SmtpPhase};

/// Size of the chunks in which a message is written.
const CHUNK_BYTES: usize = 16 * 1_024;

/// A transaction on a connection, with a deadline.
pub(crate) struct SmtpTransaction {
    connection: AsyncSmtpConnection,
    deadline: Instant,
}

impl SmtpTransaction {
    pub(crate) fn new(connection: AsyncSmtpConnection, deadline: Instant) -> Self {
        Self {
            connection,
            deadline,
        }
    }

    pub(crate) fn into_connection(self) -> AsyncSmtpConnection {
        self.connection
    }

    /// Starts the transaction with the sender. Fails if the server lacks an extension that the
    /// message requires.
    pub(crate) async fn send_mail_from(
        &mut self,
        mail: &OutgoingMail,
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        let mut parameters = Vec::new();
        if ![&mail.from, &mail.to]
            .iter()
            .all(|it| it.to_string().is_ascii())
        {
            self.require_extension(
                Extension::SmtpUtfEight,
                "the server accepts only ASCII addresses: it does not support SMTPUTF8",
            )?;
            parameters.push(MailParameter::SmtpUtfEight);
        }
        if !mail.content.is_ascii() {
            self.require_extension(
                Extension::EightBitMime,
                "the server accepts only ASCII messages: it does not support 8BITMIME",
            )?;
            parameters.push(MailParameter::Body(MailBodyParameter::EightBitMime));
        }
        self.send_command(
            SmtpPhase::Mail,
            Mail::new(Some(mail.from.clone()), parameters),
        )
        .await?;
        Ok(())
    }

    fn require_extension(
        &self,
        extension: Extension,
        error: &str,
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        match self.connection.server_info().supports_feature(extension) {
            true => Ok(()),
            false => Err((SmtpPhase::Mail, SmtpFailure::Unsupported(error.to_owned()))),
        }
    }

    /// Completes the transaction: recipient, message and end of message.
    pub(crate) async fn send_message(
        &mut self,
        mail: &OutgoingMail,
    ) -> Result<(), (SmtpPhase, SmtpFailure)> {
        self.send_command(SmtpPhase::Recipient, Rcpt::new(mail.to.clone(), Vec::new()))
            .await?;
        let response = self.send_command(SmtpPhase::Data, Data).await?;
        if !response.has_code(354) {
            let error = format!("unexpected reply to DATA: {}", response.code());
            return Err((SmtpPhase::Data, SmtpFailure::ConnectionLost(error)));
        }
        // The SMTP library writes the end of the message as soon as the iterator returns no further
        // chunk.
        let is_complete = AtomicBool::new(false);
        let mut remaining = mail.content.chunks(CHUNK_BYTES);
        let chunks = std::iter::from_fn(|| {
            let chunk = remaining.next();
            is_complete.store(chunk.is_none(), Ordering::Relaxed);
            chunk
        });
        let written = timeout_at(self.deadline, self.connection.message_iter(chunks)).await;
        let phase = if is_complete.load(Ordering::Relaxed) {
            SmtpPhase::EndOfData
        } else {
            SmtpPhase::Content
        };
        match written {
            Err(_) => Err((phase, SmtpFailure::TimedOut)),
            Ok(Err(error)) => Err((phase, error.into())),
            Ok(Ok(response)) if u16::from(response.code()) / 100 == 2 => Ok(()),
            Ok(Ok(response)) => Err((
                phase,
                SmtpFailure::ConnectionLost(format!(
                    "unexpected reply to the message: {}",
                    response.code()
                )),
            )),
        }
    }

    /// Resets the transaction on the server (`RSET`). Returns whether the server confirmed it.
    pub(crate) async fn reset(&mut self) -> bool {
        self.send_command(SmtpPhase::Connect, Rset).await.is_ok()
    }

    async fn send_command(
        &mut self,
        phase: SmtpPhase,
        command: impl Display,
    ) -> Result<Response, (SmtpPhase, SmtpFailure)> {
        match timeout_at(self.deadline, self.connection.command(command)).await {
            Err(_) => Err((phase, SmtpFailure::TimedOut)),
            Ok(reply) => reply.map_err(|error| (phase, error.into())),
        }
    }
}
