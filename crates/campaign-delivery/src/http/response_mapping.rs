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
    responses: &HttpResponseSpec,
    reply: &HttpReply,
    redactor: &SecretRedactor,
) -> SendOutcome {
    let message_id = scalar_at_pointer(reply.body.as_ref(), responses.message_id.as_deref())
        .map(|id| redactor.redact_text(&id));
    reply_outcome(responses, reply).into_send_outcome(
        message_id,
        describe_reply(responses, reply, redactor),
        reply.retry_after_ms,
    )
}

fn reply_outcome(responses: &HttpResponseSpec, reply: &HttpReply) -> HttpStatusOutcome {
    responses.status_outcome(reply.status, reply.retry_after_ms)
}

fn describe_reply(
    responses: &HttpResponseSpec,
    reply: &HttpReply,
    redactor: &SecretRedactor,
) -> SharedText {
    match scalar_at_pointer(reply.body.as_ref(), responses.error.as_deref()) {
        Some(error) => redactor.redact_text(&format!(
            "the service responded with {}: {error}",
            reply.status
        )),
        None => redactor.redact_text(&format!("the service responded with {}", reply.status)),
    }
}

/// Returns the outcomes of a batch in the order of its items. If the response does not mention an
/// item, or is invalid, the service may have accepted the item, so its outcome is unknown.
pub(crate) fn map_batch_reply(
    responses: &HttpResponseSpec,
    batch: &HttpBatchSpec,
    reply: &HttpReply,
    items: &[OutgoingItem<'_>],
    redactor: &SecretRedactor,
) -> Vec<SendOutcome> {
    if reply_outcome(responses, reply) != HttpStatusOutcome::Accepted {
        return vec![map_reply(responses, reply, redactor); items.len()];
    }
    let list = reply
        .body
        .as_ref()
        .and_then(|body| body.pointer(&batch.items))
        .and_then(Value::as_array);
    let Some(list) = list else {
        let error = "the service accepted the batch, but its response has no list of entries at \
                     `http.batch.items`";
        return vec![SendOutcome::Unknown(error.into()); items.len()];
    };
    let outcome_of = |item: &OutgoingItem<'_>| {
        let is_entry = |entry: &&Value| {
            scalar_at_pointer(Some(entry), Some(&batch.id))
                .is_some_and(|id| id == item.item_id || id == item.key)
        };
        let mut entries = list.iter().filter(is_entry);
        match (entries.next(), entries.next()) {
            (Some(entry), None) => map_batch_entry(responses, batch, entry, redactor),
            (Some(_), Some(_)) => {
                SendOutcome::Unknown("the response has two entries for the item".into())
            }
            (None, _) => SendOutcome::Unknown("the response has no entry for the item".into()),
        }
    };
    items.iter().map(outcome_of).collect()
}

fn map_batch_entry(
    responses: &HttpResponseSpec,
    batch: &HttpBatchSpec,
    entry: &Value,
    redactor: &SecretRedactor,
) -> SendOutcome {
    let Some(status) = scalar_at_pointer(Some(entry), Some(&batch.status)) else {
        return SendOutcome::Unknown("the response has no status for the item".into());
    };
    let configured = [
        (&batch.accepted, HttpStatusOutcome::Accepted),
        (&batch.rejected, HttpStatusOutcome::Rejected),
        (&batch.deferred, HttpStatusOutcome::Deferred),
    ];
    let listed = configured
        .into_iter()
        .find(|(values, _)| values.contains(&status));
    let outcome = match listed {
        Some((_, outcome)) => outcome,
        None => status.parse().map_or(HttpStatusOutcome::Unknown, |status| {
            responses.status_outcome(status, None)
        }),
    };
    let error = scalar_at_pointer(Some(entry), batch.error.as_deref())
        .map(|error| format!(": {error}"))
        .unwrap_or_default();
    let error = redactor.redact_text(&format!("the status of the item is {status}{error}"));
    let message_id = scalar_at_pointer(Some(entry), batch.message_id.as_deref())
        .map(|id| redactor.redact_text(&id));
    outcome.into_send_outcome(message_id, error, None)
}

/// Returns the outcome of a status lookup.
pub(crate) fn map_lookup_reply(
    lookup: &StatusLookupSpec,
    reply: &HttpReply,
    redactor: &SecretRedactor,
) -> LookupOutcome {
    if contains_status(&lookup.not_found, reply.status) {
        return LookupOutcome::NotFound;
    }
    let is_accepted = match lookup.accepted.as_slice() {
        [] => (200..300).contains(&reply.status),
        accepted => contains_status(accepted, reply.status),
    };
    if !is_accepted {
        return LookupOutcome::Unknown;
    }
    if let Some(pointer) = &lookup.found {
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
    if let Some(pointer) = &lookup.status {
        match scalar_at_pointer(reply.body.as_ref(), Some(pointer)) {
            None => return LookupOutcome::Unknown,
            Some(status) if lookup.rejected.contains(&status) => {
                return LookupOutcome::Refused(
                    redactor.redact_text(&format!("the status of the item is {status}")),
                );
            }
            Some(_) => {}
        }
    }
    LookupOutcome::Accepted(
        scalar_at_pointer(reply.body.as_ref(), lookup.message_id.as_deref())
            .map(|id| redactor.redact_text(&id)),
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

    fn retry_after_ms(after: &str, date: Option<&str>) -> Option<u64> {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, HeaderValue::from_str(after).unwrap());
        if let Some(date) = date {
            headers.insert(DATE, HeaderValue::from_str(date).unwrap());
        }
        parse_retry_after_ms(&headers)
    }

    #[test]
    fn retry_after_is_a_number_of_seconds_or_a_date() {
        let now = Some("Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(retry_after_ms("7", None), Some(7_000));
        assert_eq!(
            retry_after_ms("Sun, 06 Nov 1994 08:50:07 GMT", now),
            Some(30_000)
        );
        assert_eq!(
            retry_after_ms("Sun, 06 Nov 1994 08:49:07 GMT", now),
            Some(0)
        );
        assert_eq!(retry_after_ms("Sun, 06 Nov 1994 08:50:07 GMT", None), None);
        assert_eq!(retry_after_ms("soon", now), None);
        assert_eq!(retry_after_ms("-1", now), None);
        assert_eq!(retry_after_ms("99999999999999999999", now), None);
        assert_eq!(retry_after_ms("999999999", now), Some(86_400_000));
    }
}
