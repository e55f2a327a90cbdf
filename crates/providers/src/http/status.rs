//! What a status of HTTP means for an item.

use onward_dispatch::Answer;
use onward_journal::Text;
use serde::{Deserialize, Serialize};

use crate::http::spec::AnswersSpec;

/// Statuses of HTTP: one, such as `409`, or a range, such as `"500-599"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum StatusMatch {
    /// This one.
    One(u16),
    /// From the first to the last of these.
    Range(String),
}

impl StatusMatch {
    fn bounds(&self) -> Option<(u16, u16)> {
        let (first, last) = match self {
            Self::One(status) => (*status, *status),
            Self::Range(range) => {
                let (first, last) = range.split_once('-')?;
                (first.trim().parse().ok()?, last.trim().parse().ok()?)
            }
        };
        (100 <= first && first <= last && last <= 599).then_some((first, last))
    }

    fn has(&self, status: u16) -> bool {
        self.bounds().is_some_and(|(first, last)| (first..=last).contains(&status))
    }
}

/// Whether a status is among these.
pub(crate) fn has(matches: &[StatusMatch], status: u16) -> bool {
    matches.iter().any(|it| it.has(status))
}

/// What is wrong with these, if anything is.
pub(crate) fn check(matches: &[StatusMatch]) -> Result<(), String> {
    match matches.iter().find(|it| it.bounds().is_none()) {
        Some(wrong) => Err(format!("{wrong:?} is not a status: expected 409 or \"500-599\"")),
        None => Ok(()),
    }
}

/// What a status means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    Accepted,
    Busy,
    Later,
    Refused,
    Unknown,
}

impl AnswersSpec {
    /// What is wrong with it, if anything is.
    pub(crate) fn check(&self, takes_keys_once: bool) -> Result<(), String> {
        let Self { accepted, duplicate, busy, later, refused, unknown, .. } = self;
        [accepted, duplicate, busy, later, refused, unknown].into_iter().try_for_each(|it| check(it))?;
        if !duplicate.is_empty() && !takes_keys_once {
            return Err("answers.duplicate is of no use unless takes_keys_once is true".to_owned());
        }
        Ok(())
    }

    /// What a status means: what is said here, or else what HTTP says. Gateways answer 503 and 408 also when they have handed
    /// the request on and then lost sight of it; a 503 that says when to come back is the service's own.
    pub(crate) fn meaning(&self, status: u16, says_when: bool) -> Meaning {
        let said = [
            (&self.duplicate, Meaning::Accepted),
            (&self.accepted, Meaning::Accepted),
            (&self.busy, Meaning::Busy),
            (&self.later, Meaning::Later),
            (&self.refused, Meaning::Refused),
            (&self.unknown, Meaning::Unknown),
        ];
        if let Some((_, meaning)) = said.into_iter().find(|(matches, _)| has(matches, status)) {
            return meaning;
        }
        match status {
            200..=299 => Meaning::Accepted,
            // Who sends is not let in: that says nothing of whom it is for.
            401 | 403 | 407 => Meaning::Busy,
            425 | 429 => Meaning::Busy,
            503 if says_when => Meaning::Busy,
            408 => Meaning::Unknown,
            300..=499 => Meaning::Refused,
            _ => Meaning::Unknown,
        }
    }
}

impl Meaning {
    /// The answer that says so.
    pub(crate) fn answer(self, message_id: Option<Text>, told: Text, after_ms: Option<u64>) -> Answer {
        match self {
            Self::Accepted => Answer::Accepted(message_id),
            Self::Busy => Answer::Busy(told, after_ms),
            Self::Later => Answer::Later(told),
            Self::Refused => Answer::Refused(told),
            Self::Unknown => Answer::Unknown(told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Meaning, StatusMatch, check};
    use crate::http::spec::AnswersSpec;

    #[test]
    fn what_is_not_said_is_as_http_has_it() {
        let answers = AnswersSpec::default();
        for (statuses, meaning) in [
            (&[200, 201, 202, 204, 299][..], Meaning::Accepted),
            (&[401, 403, 407, 425, 429], Meaning::Busy),
            (&[301, 302, 307, 400, 404, 409, 410, 422, 499], Meaning::Refused),
            (&[100, 408, 500, 501, 502, 503, 504, 599], Meaning::Unknown),
        ] {
            statuses.iter().for_each(|status| assert_eq!(answers.meaning(*status, false), meaning, "{status}"));
        }
        assert_eq!(answers.meaning(503, true), Meaning::Busy);
        assert_eq!(answers.meaning(502, true), Meaning::Unknown);
    }

    #[test]
    fn what_is_said_goes_first() {
        let answers = r#"{"duplicate":[409],"later":[500,"502-504"],"busy":[404],"unknown":[200],"refused":[503]}"#;
        let answers: AnswersSpec = serde_json::from_str(answers).unwrap();
        assert_eq!(answers.check(true), Ok(()));
        for (status, meaning) in [
            (409, Meaning::Accepted),
            (500, Meaning::Later),
            (501, Meaning::Unknown),
            (503, Meaning::Later),
            (404, Meaning::Busy),
            (200, Meaning::Unknown),
            (201, Meaning::Accepted),
        ] {
            assert_eq!(answers.meaning(status, false), meaning, "{status}");
        }
        assert!(answers.check(false).unwrap_err().contains("takes_keys_once"));
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for text in ["[99]", "[600]", r#"["5xx"]"#, r#"["599-500"]"#, r#"["200-"]"#] {
            let matches: Vec<StatusMatch> = serde_json::from_str(text).unwrap();
            assert!(check(&matches).is_err(), "{text}");
        }
    }
}
