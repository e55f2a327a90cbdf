//! What a service said, and what it means for each item.

use std::time::Duration;

use onward_dispatch::{Answer, Found};
use onward_journal::Text;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::http::call::Reply;
use crate::http::spec::{AnswersSpec, BatchSpec, LookSpec};
use crate::http::status::{Meaning, has};
use crate::parcel::Parcel;
use crate::secret::Veil;

/// A service is left alone for so long at most: a day.
const RETRY_AFTER_MS_MAX: u64 = 24 * 3_600_000;

/// What became of the one item of a request.
pub(crate) fn answer(answers: &AnswersSpec, reply: &Reply, veil: &Veil) -> Answer {
    let message_id = at(reply.body.as_ref(), answers.message_id.as_deref()).map(|id| veil.words(&id));
    meaning(answers, reply).answer(message_id, told(answers, reply, veil), reply.retry_after_ms)
}

fn meaning(answers: &AnswersSpec, reply: &Reply) -> Meaning {
    answers.meaning(reply.status, reply.retry_after_ms.is_some())
}

fn told(answers: &AnswersSpec, reply: &Reply, veil: &Veil) -> Text {
    match at(reply.body.as_ref(), answers.error.as_deref()) {
        Some(error) => veil.words(&format!("the service answered {}: {error}", reply.status)),
        None => veil.words(&format!("the service answered {}", reply.status)),
    }
}

/// What became of each item of a batch, in their order. What it does not speak of, or cannot be understood, it may have taken.
pub(crate) fn answers(
    answers: &AnswersSpec,
    batch: &BatchSpec,
    reply: &Reply,
    parcels: &[Parcel<'_>],
    veil: &Veil,
) -> Vec<Answer> {
    if meaning(answers, reply) != Meaning::Accepted {
        return vec![answer(answers, reply, veil); parcels.len()];
    }
    let list = reply.body.as_ref().and_then(|body| body.pointer(&batch.items)).and_then(Value::as_array);
    let Some(list) = list else {
        let told = "the service took the batch, and its answer could not be understood";
        return vec![Answer::Unknown(told.into()); parcels.len()];
    };
    let about = |parcel: &Parcel<'_>| {
        let is_about =
            |entry: &&Value| at(Some(entry), Some(&batch.id)).is_some_and(|id| id == parcel.item || id == parcel.key);
        let mut entries = list.iter().filter(is_about);
        match (entries.next(), entries.next()) {
            (Some(entry), None) => of_entry(answers, batch, entry, veil),
            (Some(_), Some(_)) => Answer::Unknown("the service spoke of it twice".into()),
            (None, _) => Answer::Unknown("the service did not speak of it".into()),
        }
    };
    parcels.iter().map(about).collect()
}

fn of_entry(answers: &AnswersSpec, batch: &BatchSpec, entry: &Value, veil: &Veil) -> Answer {
    let Some(status) = at(Some(entry), Some(&batch.status)) else {
        return Answer::Unknown("the service did not say what became of it".into());
    };
    let said =
        [(&batch.accepted, Meaning::Accepted), (&batch.refused, Meaning::Refused), (&batch.later, Meaning::Later)];
    let meaning = said.into_iter().find(|(values, _)| values.contains(&status));
    let meaning = match meaning {
        Some((_, meaning)) => meaning,
        None => status.parse().map_or(Meaning::Unknown, |status| answers.meaning(status, false)),
    };
    let error = at(Some(entry), batch.error.as_deref()).map(|error| format!(": {error}")).unwrap_or_default();
    let told = veil.words(&format!("the service said of it: {status}{error}"));
    let message_id = at(Some(entry), batch.message_id.as_deref()).map(|id| veil.words(&id));
    meaning.answer(message_id, told, None)
}

/// What a service knows of a key.
pub(crate) fn found(look: &LookSpec, reply: &Reply, veil: &Veil) -> Found {
    if has(&look.nothing, reply.status) {
        return Found::Nothing;
    }
    let is_accepted = match look.accepted.as_slice() {
        [] => (200..300).contains(&reply.status),
        accepted => has(accepted, reply.status),
    };
    if !is_accepted {
        return Found::Unsure;
    }
    if let Some(pointer) = &look.found {
        let Some(body) = &reply.body else { return Found::Unsure };
        match body.pointer(pointer) {
            // What has no such place may be about something else.
            None => return Found::Unsure,
            Some(Value::Null) => return Found::Nothing,
            Some(Value::Array(list)) if list.is_empty() => return Found::Nothing,
            Some(_) => {}
        }
    }
    if let Some(pointer) = &look.status {
        match at(reply.body.as_ref(), Some(pointer)) {
            None => return Found::Unsure,
            Some(status) if look.refused.contains(&status) => {
                return Found::Refused(veil.words(&format!("the service said of it: {status}")));
            }
            Some(_) => {}
        }
    }
    Found::Accepted(at(reply.body.as_ref(), look.message_id.as_deref()).map(|id| veil.words(&id)))
}

/// A text, a number or a truth at a place.
fn at(value: Option<&Value>, pointer: Option<&str>) -> Option<String> {
    match value?.pointer(pointer?)? {
        Value::String(text) => Some(text.trim().to_owned()),
        other @ (Value::Number(_) | Value::Bool(_)) => Some(other.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// For how long a service wants to be left alone: a number of seconds, or a date, which is compared with the service's own.
pub(crate) fn retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER)?;
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let wait = match after.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => date(after)?.duration_since(date(text(DATE)?)?).unwrap_or_default(),
    };
    Some(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).min(RETRY_AFTER_MS_MAX))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};

    use super::retry_after_ms;

    fn after(after: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(after).unwrap());
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_str(date).unwrap());
        }
        retry_after_ms(&headers)
    }

    #[test]
    fn how_long_to_wait_is_a_number_of_seconds_or_a_date() {
        let now = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(after("7", None), Some(7_000));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:07 GMT", now), Some(30_000));
        assert_eq!(after("Sun, 06 Nov 1994 08:49:07 GMT", now), Some(0));
        assert_eq!(after("Sun, 06 Nov 1994 08:50:07 GMT", None), None);
        assert_eq!(after("soon", now), None);
        assert_eq!(after("-1", now), None);
        assert_eq!(after("99999999999999999999", now), None);
        assert_eq!(after("999999999", now), Some(86_400_000));
    }
}
