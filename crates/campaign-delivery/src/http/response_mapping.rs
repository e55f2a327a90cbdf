//! Mapping of HTTP responses to the outcome of each item.

use std::time::Duration;

use onward_base::SharedText;
use onward_campaign_core::{LookupOutcome, SendOutcome};
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use serde_json::Value;

use crate::http::client::HttpReply;
use crate::http::http_spec::{HttpBatchSpec, HttpResponseSpec, StatusLookupSpec};
use crate::http::status::{HttpStatusOutcome, contains_status};
use crate::outgoing_item::OutgoingItem;
use crate::secret::SecretRedactor;

/// Maximum `Retry-After` that is honored: a day.
const RETRY_AFTER_MS_MAX: u64 = 24 * 3_600_000;

/// Returns the outcome of a request with one item.
pub(crate) fn map_reply(
    answers: &HttpResponseSpec,
    reply: &HttpReply,
    veil: &SecretRedactor,
) -> SendOutcome {
    let message_id = scalar_at_pointer(reply.body.as_ref(), answers.message_id.as_deref())
        .map(|id| veil.redact_text(&id));
    reply_outcome(answers, reply).into_send_outcome(
        message_id,
        describe_reply(answers, reply, veil),
        reply.retry_after_ms,
    )
}

fn reply_outcome(answers: &HttpResponseSpec, reply: &HttpReply) -> HttpStatusOutcome {
    answers.status_outcome(reply.status, reply.retry_after_ms.is_some())
}

fn describe_reply(
    answers: &HttpResponseSpec,
    reply: &HttpReply,
    veil: &SecretRedactor,
) -> SharedText {
    match scalar_at_pointer(reply.body.as_ref(), answers.error.as_deref()) {
        Some(error) => veil.redact_text(&format!("the service answered {}: {error}", reply.status)),
        None => veil.redact_text(&format!("the service answered {}", reply.status)),
    }
}

/// Returns the outcomes of a batch in the order of its items. If the response does not mention an
/// item, or is invalid, the service may have accepted the item, so its outcome is unknown.
pub(crate) fn map_batch_reply(
    answers: &HttpResponseSpec,
    batch: &HttpBatchSpec,
    reply: &HttpReply,
    parcels: &[OutgoingItem<'_>],
    veil: &SecretRedactor,
) -> Vec<SendOutcome> {
    if reply_outcome(answers, reply) != HttpStatusOutcome::Accepted {
        return vec![map_reply(answers, reply, veil); parcels.len()];
    }
    let list = reply
        .body
        .as_ref()
        .and_then(|body| body.pointer(&batch.items))
        .and_then(Value::as_array);
    let Some(list) = list else {
        let told = "the service took the batch, and its answer could not be understood";
        return vec![SendOutcome::Unknown(told.into()); parcels.len()];
    };
    let about = |parcel: &OutgoingItem<'_>| {
        let is_about = |entry: &&Value| {
            scalar_at_pointer(Some(entry), Some(&batch.id))
                .is_some_and(|id| id == parcel.item || id == parcel.key)
        };
        let mut entries = list.iter().filter(is_about);
        match (entries.next(), entries.next()) {
            (Some(entry), None) => map_batch_entry(answers, batch, entry, veil),
            (Some(_), Some(_)) => SendOutcome::Unknown("the service spoke of it twice".into()),
            (None, _) => SendOutcome::Unknown("the service did not speak of it".into()),
        }
    };
    parcels.iter().map(about).collect()
}

fn map_batch_entry(
    answers: &HttpResponseSpec,
    batch: &HttpBatchSpec,
    entry: &Value,
    veil: &SecretRedactor,
) -> SendOutcome {
    let Some(status) = scalar_at_pointer(Some(entry), Some(&batch.status)) else {
        return SendOutcome::Unknown("the service did not say what became of it".into());
    };
    let said = [
        (&batch.accepted, HttpStatusOutcome::Accepted),
        (&batch.refused, HttpStatusOutcome::Refused),
        (&batch.later, HttpStatusOutcome::Deferred),
    ];
    let meaning = said
        .into_iter()
        .find(|(values, _)| values.contains(&status));
    let meaning = match meaning {
        Some((_, meaning)) => meaning,
        None => status.parse().map_or(HttpStatusOutcome::Unknown, |status| {
            answers.status_outcome(status, false)
        }),
    };
    let error = scalar_at_pointer(Some(entry), batch.error.as_deref())
        .map(|error| format!(": {error}"))
        .unwrap_or_default();
    let told = veil.redact_text(&format!("the service said of it: {status}{error}"));
    let message_id =
        scalar_at_pointer(Some(entry), batch.message_id.as_deref()).map(|id| veil.redact_text(&id));
    meaning.into_send_outcome(message_id, told, None)
}

/// Returns the outcome of a status lookup.
pub(crate) fn map_lookup_reply(
    look: &StatusLookupSpec,
    reply: &HttpReply,
    veil: &SecretRedactor,
) -> LookupOutcome {
    if contains_status(&look.nothing, reply.status) {
        return LookupOutcome::NotFound;
    }
    let is_accepted = match look.accepted.as_slice() {
        [] => (200..300).contains(&reply.status),
        accepted => contains_status(accepted, reply.status),
    };
    if !is_accepted {
        return LookupOutcome::Unknown;
    }
    if let Some(pointer) = &look.found {
        let Some(body) = &reply.body else {
            return LookupOutcome::Unknown;
        };
        match body.pointer(pointer) {
            // A response without this position may be about something else.
            None => return LookupOutcome::Unknown,
            Some(Value::Null) => return LookupOutcome::NotFound,
            Some(Value::Array(list)) if list.is_empty() => return LookupOutcome::NotFound,
            Some(_) => {}
        }
    }
    if let Some(pointer) = &look.status {
        match scalar_at_pointer(reply.body.as_ref(), Some(pointer)) {
            None => return LookupOutcome::Unknown,
            Some(status) if look.refused.contains(&status) => {
                return LookupOutcome::Refused(
                    veil.redact_text(&format!("the service said of it: {status}")),
                );
            }
            Some(_) => {}
        }
    }
    LookupOutcome::Accepted(
        scalar_at_pointer(reply.body.as_ref(), look.message_id.as_deref())
            .map(|id| veil.redact_text(&id)),
    )
}

/// Returns the string, number or boolean at a JSON pointer, as text.
fn scalar_at_pointer(value: Option<&Value>, pointer: Option<&str>) -> Option<String> {
    match value?.pointer(pointer?)? {
        Value::String(text) => Some(text.trim().to_owned()),
        other @ (Value::Number(_) | Value::Bool(_)) => Some(other.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Parses `Retry-After`: a number of seconds, or a date, which is compared with the `Date` header
/// of the same response.
pub(crate) fn parse_retry_after_ms(headers: &HeaderMap) -> Option<u64> {
    let text = |name| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER)?;
    let date = |text: &str| httpdate::parse_http_date(text).ok();
    let wait = match after.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => date(after)?
            .duration_since(date(text(DATE)?)?)
            .unwrap_or_default(),
    };
    Some(
        u64::try_from(wait.as_millis())
            .unwrap_or(u64::MAX)
            .min(RETRY_AFTER_MS_MAX),
    )
}

#[cfg(test)]
mod tests {
    use reqwest::header::{DATE, HeaderMap, HeaderValue, RETRY_AFTER};

    use super::parse_retry_after_ms;

    fn after(after: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(after).unwrap());
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_str(date).unwrap());
        }
        parse_retry_after_ms(&headers)
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
