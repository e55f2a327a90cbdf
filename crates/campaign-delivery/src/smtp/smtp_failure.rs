//! The outcome of a failed SMTP transaction by phase and failure, as one table.

use lettre::transport::smtp::Error;
use lettre::transport::smtp::response::Code;
use onward_campaign_core::SendOutcome;

use crate::secret::SecretRedactor;

/// The phase that a transaction had reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SmtpPhase {
    /// Connection, greeting, encryption and authentication: the server knows of no message yet.
    Connect,
    /// The `MAIL FROM` command with the sender.
    Mail,
    /// The `RCPT TO` command with the recipient.
    Recipient,
    /// The `DATA` command, which announces the message.
    Data,
    /// The message, without its end.
    Content,
    /// The end of the message has been written, or may have been.
    EndOfData,
}

/// The reason why a transaction failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SmtpFailure {
    /// The server replied with a code from 400 to 499.
    Temporary(u16, String),
    /// The server replied with a code from 500 to 599.
    Permanent(u16, String),
    /// The connection was lost, or the reply was invalid.
    ConnectionLost(String),
    /// The connection could not be established.
    ConnectFailed(String),
    /// The server did not reply before the deadline.
    TimedOut,
    /// The server does not support a required extension.
    Unsupported(String),
}

impl SmtpFailure {
    /// Returns whether the connection can be reused, because the server has replied. After a reply
    /// during or after the message it cannot: the server may have replied before it read the whole
    /// message, and may reply again.
    pub(crate) fn keeps_connection(&self, phase: SmtpPhase) -> bool {
        match self {
            _ if matches!(phase, SmtpPhase::Content | SmtpPhase::EndOfData) => false,
            Self::Temporary(421, _)
            | Self::ConnectionLost(_)
            | Self::ConnectFailed(_)
            | Self::TimedOut => false,
            Self::Temporary(..) | Self::Permanent(..) | Self::Unsupported(_) => true,
        }
    }
}

impl From<Error> for SmtpFailure {
    fn from(error: Error) -> Self {
        let reply = || {
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        };
        match error.status() {
            Some(code) if error.is_transient() => Self::Temporary(code_number(code), reply()),
            Some(code) => Self::Permanent(code_number(code), reply()),
            None if error.is_client() => Self::Unsupported(reply()),
            None => Self::ConnectionLost(error.to_string()),
        }
    }
}

fn code_number(code: Code) -> u16 {
    code.into()
}

/// Returns the outcome of an item whose transaction failed in this phase.
pub(crate) fn map_failure(
    phase: SmtpPhase,
    failure: &SmtpFailure,
    redactor: &SecretRedactor,
) -> SendOutcome {
    use SmtpFailure::{ConnectFailed, ConnectionLost, Permanent, Temporary, TimedOut, Unsupported};
    use SmtpPhase::{Connect, Content, Data, EndOfData, Mail, Recipient};
    let error = redactor.redact_text(&describe_failure(phase, failure));
    match (phase, failure) {
        (EndOfData, ConnectionLost(_) | ConnectFailed(_) | TimedOut | Unsupported(_)) => {
            SendOutcome::Unknown(error)
        }
        (EndOfData, Temporary(..)) => SendOutcome::Deferred(error),
        // Code 421 is about the server, not about the message.
        (_, Temporary(421, _)) => SendOutcome::Throttled(error, None),
        (Connect | Mail, Temporary(..)) => SendOutcome::Throttled(error, None),
        // A server that rejects the client or its password has rejected no message.
        (Connect, Permanent(..) | Unsupported(_)) => SendOutcome::Throttled(error, None),
        // The server knows of no message, so the call does not count as a send.
        (Connect, ConnectionLost(_) | ConnectFailed(_) | TimedOut) => {
            SendOutcome::Unreachable(error)
        }
        (Recipient | Data | Content, Temporary(..)) => SendOutcome::Deferred(error),
        (_, ConnectionLost(_) | ConnectFailed(_) | TimedOut) => SendOutcome::Deferred(error),
        (_, Permanent(..) | Unsupported(_)) => SendOutcome::Refused(error),
    }
}

fn describe_failure(phase: SmtpPhase, failure: &SmtpFailure) -> String {
    let position = match phase {
        SmtpPhase::Connect => "before any message was sent",
        SmtpPhase::Mail | SmtpPhase::Recipient | SmtpPhase::Data => "before the message was sent",
        SmtpPhase::Content => "before the message was sent completely",
        SmtpPhase::EndOfData => "after the message was sent",
    };
    match failure {
        SmtpFailure::Temporary(code, reply) | SmtpFailure::Permanent(code, reply) => {
            format!("the server replied {}: {code} {reply}", replied_to(phase))
        }
        SmtpFailure::ConnectionLost(cause) => {
            format!("the connection was lost {position}: {cause}")
        }
        SmtpFailure::TimedOut => {
            format!("the server did not reply before the timeout, {position}")
        }
        SmtpFailure::ConnectFailed(error) | SmtpFailure::Unsupported(error) => error.clone(),
    }
}

/// The command or the part of the protocol that the server replied to in a phase.
fn replied_to(phase: SmtpPhase) -> &'static str {
    match phase {
        SmtpPhase::Connect => "to the connection",
        SmtpPhase::Mail => "to the sender",
        SmtpPhase::Recipient => "to the recipient",
        SmtpPhase::Data => "to DATA",
        SmtpPhase::Content => "during the message",
        SmtpPhase::EndOfData => "to the message",
    }
}

#[cfg(test)]
mod tests {
    use onward_campaign_core::SendOutcome;

    use super::{SecretRedactor, SmtpFailure, SmtpPhase, map_failure};

    fn outcome_name(phase: SmtpPhase, failure: &SmtpFailure) -> &'static str {
        match map_failure(phase, failure, &SecretRedactor::default()) {
            SendOutcome::Accepted(_) => "accepted",
            SendOutcome::Refused(_) => "refused",
            SendOutcome::Deferred(_) => "deferred",
            SendOutcome::Throttled(..) => "throttled",
            SendOutcome::Unreachable(_) => "unreachable",
            SendOutcome::Unknown(_) => "unknown",
            SendOutcome::InvalidMessage(_) => "invalid",
        }
    }

    #[test]
    fn every_phase_and_failure_has_its_outcome() {
        use SmtpPhase::{Connect, Content, Data, EndOfData, Mail, Recipient};
        let failures = [
            SmtpFailure::Temporary(421, "closing".to_owned()),
            SmtpFailure::Temporary(451, "try again".to_owned()),
            SmtpFailure::Permanent(550, "no".to_owned()),
            SmtpFailure::ConnectionLost("reset".to_owned()),
            SmtpFailure::TimedOut,
            SmtpFailure::ConnectFailed("cannot connect".to_owned()),
            SmtpFailure::Unsupported("no STARTTLS".to_owned()),
        ];
        let after_sender = "throttled deferred refused deferred deferred deferred refused";
        let table = [
            (
                Connect,
                "throttled throttled throttled unreachable unreachable unreachable throttled",
            ),
            (
                Mail,
                "throttled throttled refused deferred deferred deferred refused",
            ),
            (Recipient, after_sender),
            (Data, after_sender),
            (Content, after_sender),
            (
                EndOfData,
                "deferred deferred refused unknown unknown unknown unknown",
            ),
        ];
        for (phase, row) in table {
            let found: Vec<&str> = failures
                .iter()
                .map(|failure| outcome_name(phase, failure))
                .collect();
            assert_eq!(found.join(" "), row, "{phase:?}");
        }
    }
}
