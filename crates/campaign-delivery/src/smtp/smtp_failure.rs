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
        let said = || {
            std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string)
        };
        match error.status() {
            Some(code) if error.is_transient() => Self::Temporary(code_number(code), said()),
            Some(code) => Self::Permanent(code_number(code), said()),
            None if error.is_client() => Self::Unsupported(said()),
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
    trouble: &SmtpFailure,
    veil: &SecretRedactor,
) -> SendOutcome {
    use SmtpFailure::{ConnectFailed, ConnectionLost, Permanent, Temporary, TimedOut, Unsupported};
    use SmtpPhase::{Connect, Content, Data, EndOfData, Mail, Recipient};
    let told = veil.redact_text(&describe_failure(phase, trouble));
    match (phase, trouble) {
        (EndOfData, ConnectionLost(_) | ConnectFailed(_) | TimedOut | Unsupported(_)) => {
            SendOutcome::Unknown(told)
        }
        (EndOfData, Temporary(..)) => SendOutcome::Deferred(told),
        // Code 421 is about the server, not about the message.
        (_, Temporary(421, _)) => SendOutcome::Throttled(told, None),
        (Connect | Mail, Temporary(..)) => SendOutcome::Throttled(told, None),
        // A server that rejects the client or its password has rejected no message.
        (Connect, Permanent(..) | Unsupported(_)) => SendOutcome::Throttled(told, None),
        (Recipient | Data | Content, Temporary(..)) => SendOutcome::Deferred(told),
        (_, ConnectionLost(_) | ConnectFailed(_) | TimedOut) => SendOutcome::Deferred(told),
        (_, Permanent(..) | Unsupported(_)) => SendOutcome::Refused(told),
    }
}

fn describe_failure(phase: SmtpPhase, trouble: &SmtpFailure) -> String {
    let when = match phase {
        SmtpPhase::Connect => "when it was greeted",
        SmtpPhase::Mail => "of the sender",
        SmtpPhase::Recipient => "of the recipient",
        SmtpPhase::Data => "before the message",
        SmtpPhase::Content => "during the message",
        SmtpPhase::EndOfData => "after the message",
    };
    match trouble {
        SmtpFailure::Temporary(code, said) | SmtpFailure::Permanent(code, said) => {
            format!("the server said {when}: {code} {said}")
        }
        SmtpFailure::ConnectionLost(why) => {
            format!("the connection was lost {}: {why}", describe_phase(phase))
        }
        SmtpFailure::ConnectFailed(why) => why.clone(),
        SmtpFailure::TimedOut => format!(
            "the server did not answer in time {}",
            describe_phase(phase)
        ),
        SmtpFailure::Unsupported(what) => what.clone(),
    }
}

fn describe_phase(phase: SmtpPhase) -> &'static str {
    match phase {
        SmtpPhase::Connect => "before anything was sent",
        SmtpPhase::Mail | SmtpPhase::Recipient | SmtpPhase::Data => "before the message was sent",
        SmtpPhase::Content => "before the message was sent whole",
        SmtpPhase::EndOfData => "after the message was sent",
    }
}

#[cfg(test)]
mod tests {
    use onward_campaign_core::SendOutcome;

    use super::{SecretRedactor, SmtpFailure, SmtpPhase, map_failure};

    fn kind(phase: SmtpPhase, trouble: &SmtpFailure) -> &'static str {
        match map_failure(phase, trouble, &SecretRedactor::default()) {
            SendOutcome::Accepted(_) => "accepted",
            SendOutcome::Refused(_) => "refused",
            SendOutcome::Deferred(_) => "later",
            SendOutcome::Throttled(..) => "busy",
            SendOutcome::Unknown(_) => "unknown",
            SendOutcome::InvalidMessage(_) => "unfit",
        }
    }

    #[test]
    fn every_end_of_a_conversation_has_its_answer() {
        use SmtpPhase::{Connect, Content, Data, EndOfData, Mail, Recipient};
        let troubles = [
            SmtpFailure::Temporary(421, "closing".to_owned()),
            SmtpFailure::Temporary(451, "try again".to_owned()),
            SmtpFailure::Permanent(550, "no".to_owned()),
            SmtpFailure::ConnectionLost("reset".to_owned()),
            SmtpFailure::TimedOut,
            SmtpFailure::ConnectFailed("could not connect".to_owned()),
            SmtpFailure::Unsupported("no STARTTLS".to_owned()),
        ];
        let table = [
            (
                Connect,
                ["busy", "busy", "busy", "later", "later", "later", "busy"],
            ),
            (
                Mail,
                [
                    "busy", "busy", "refused", "later", "later", "later", "refused",
                ],
            ),
            (
                Recipient,
                [
                    "busy", "later", "refused", "later", "later", "later", "refused",
                ],
            ),
            (
                Data,
                [
                    "busy", "later", "refused", "later", "later", "later", "refused",
                ],
            ),
            (
                Content,
                [
                    "busy", "later", "refused", "later", "later", "later", "refused",
                ],
            ),
            (
                EndOfData,
                [
                    "later", "later", "refused", "unknown", "unknown", "unknown", "unknown",
                ],
            ),
        ];
        for (phase, row) in table {
            let found: Vec<&str> = troubles
                .iter()
                .map(|trouble| kind(phase, trouble))
                .collect();
            assert_eq!(found, row, "{phase:?}");
        }
    }
}
