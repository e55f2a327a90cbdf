//! What an early end of a conversation means, as one table.

use lettre::transport::smtp::Error;
use lettre::transport::smtp::response::Code;
use onward_dispatch::Answer;

use crate::secret::Veil;

/// How far a conversation had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Connecting, the greeting, encryption, logging in: nothing was said of any message.
    Hello,
    /// Who sends.
    Mail,
    /// To whom.
    Recipient,
    /// That there is a message.
    Data,
    /// The message, without its end.
    Content,
    /// The end of the message has been written, or may have been.
    Dot,
}

/// Why a conversation ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// The server said no, with a code from 400 to 499.
    Temporary(u16, String),
    /// The server said no, with a code from 500 to 599.
    Permanent(u16, String),
    /// The connection was lost, or what came was not understood.
    Lost(String),
    /// There was no connection.
    Unreached(String),
    /// There was no answer in time.
    Late,
    /// The server does not offer what is needed.
    Lacking(String),
}

impl Trouble {
    /// Whether the server has answered, so that the connection is as good as before. Of what it says to a message, nobody can
    /// tell whether it said so before it had heard all of it, and says more.
    pub(crate) fn leaves_connection(&self, phase: Phase) -> bool {
        match self {
            _ if matches!(phase, Phase::Content | Phase::Dot) => false,
            Self::Temporary(421, _) | Self::Lost(_) | Self::Unreached(_) | Self::Late => false,
            Self::Temporary(..) | Self::Permanent(..) | Self::Lacking(_) => true,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        let said = || std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        match error.status() {
            Some(code) if error.is_transient() => Self::Temporary(number(code), said()),
            Some(code) => Self::Permanent(number(code), said()),
            None if error.is_client() => Self::Lacking(said()),
            None => Self::Lost(error.to_string()),
        }
    }
}

fn number(code: Code) -> u16 {
    code.into()
}

/// What is answered for an item whose conversation ended so.
pub(crate) fn answer(phase: Phase, trouble: &Trouble, veil: &Veil) -> Answer {
    use Phase::{Content, Data, Dot, Hello, Mail, Recipient};
    use Trouble::{Lacking, Late, Lost, Permanent, Temporary, Unreached};
    let told = veil.words(&told(phase, trouble));
    match (phase, trouble) {
        (Dot, Lost(_) | Unreached(_) | Late | Lacking(_)) => Answer::Unknown(told),
        (Dot, Temporary(..)) => Answer::Later(told),
        // The server talks of itself, not of the message.
        (_, Temporary(421, _)) => Answer::Busy(told, None),
        (Hello | Mail, Temporary(..)) => Answer::Busy(told, None),
        // Whoever refuses us, or our password, has refused no message.
        (Hello, Permanent(..) | Lacking(_)) => Answer::Busy(told, None),
        (Recipient | Data | Content, Temporary(..)) => Answer::Later(told),
        (_, Lost(_) | Unreached(_) | Late) => Answer::Later(told),
        (_, Permanent(..) | Lacking(_)) => Answer::Refused(told),
    }
}

fn told(phase: Phase, trouble: &Trouble) -> String {
    let when = match phase {
        Phase::Hello => "when it was greeted",
        Phase::Mail => "of the sender",
        Phase::Recipient => "of the recipient",
        Phase::Data => "before the message",
        Phase::Content => "during the message",
        Phase::Dot => "after the message",
    };
    match trouble {
        Trouble::Temporary(code, said) | Trouble::Permanent(code, said) => {
            format!("the server said {when}: {code} {said}")
        }
        Trouble::Lost(why) => format!("the connection was lost {}: {why}", during(phase)),
        Trouble::Unreached(why) => why.clone(),
        Trouble::Late => format!("the server did not answer in time {}", during(phase)),
        Trouble::Lacking(what) => what.clone(),
    }
}

fn during(phase: Phase) -> &'static str {
    match phase {
        Phase::Hello => "before anything was sent",
        Phase::Mail | Phase::Recipient | Phase::Data => "before the message was sent",
        Phase::Content => "before the message was sent whole",
        Phase::Dot => "after the message was sent",
    }
}

#[cfg(test)]
mod tests {
    use onward_dispatch::Answer;

    use super::{Phase, Trouble, Veil, answer};

    fn kind(phase: Phase, trouble: &Trouble) -> &'static str {
        match answer(phase, trouble, &Veil::default()) {
            Answer::Accepted(_) => "accepted",
            Answer::Refused(_) => "refused",
            Answer::Later(_) => "later",
            Answer::Busy(..) => "busy",
            Answer::Unknown(_) => "unknown",
            Answer::Unfit(_) => "unfit",
        }
    }

    #[test]
    fn every_end_of_a_conversation_has_its_answer() {
        use Phase::{Content, Data, Dot, Hello, Mail, Recipient};
        let troubles = [
            Trouble::Temporary(421, "closing".to_owned()),
            Trouble::Temporary(451, "try again".to_owned()),
            Trouble::Permanent(550, "no".to_owned()),
            Trouble::Lost("reset".to_owned()),
            Trouble::Late,
            Trouble::Unreached("could not connect".to_owned()),
            Trouble::Lacking("no STARTTLS".to_owned()),
        ];
        let table = [
            (Hello, ["busy", "busy", "busy", "later", "later", "later", "busy"]),
            (Mail, ["busy", "busy", "refused", "later", "later", "later", "refused"]),
            (Recipient, ["busy", "later", "refused", "later", "later", "later", "refused"]),
            (Data, ["busy", "later", "refused", "later", "later", "later", "refused"]),
            (Content, ["busy", "later", "refused", "later", "later", "later", "refused"]),
            (Dot, ["later", "later", "refused", "unknown", "unknown", "unknown", "unknown"]),
        ];
        for (phase, row) in table {
            let found: Vec<&str> = troubles.iter().map(|trouble| kind(phase, trouble)).collect();
            assert_eq!(found, row, "{phase:?}");
        }
    }
}
