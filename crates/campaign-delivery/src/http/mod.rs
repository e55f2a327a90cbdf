//! Provider for services with an HTTP API: for email, voice, social networks and other channels.

mod client;
mod escaped_template;
mod http_spec;
mod request;
mod response_mapping;
mod status;

use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_campaign_core::{LookupOutcome, SendOutcome};
use onward_campaign_dispatch::{Provider, ProviderCapabilities, Reservation};

use crate::http::client::HttpProviderClient;
use crate::http::request::HttpRequestTemplate;
use crate::outgoing_item::{OutgoingItem, invalid_message};
use crate::provider_spec::ProviderDefaults;
use crate::secret::SecretSource;

pub use http_spec::{HttpAuthSpec, HttpBatchSpec, HttpResponseSpec, HttpSpec, StatusLookupSpec};
pub use status::HttpStatusMatch;

/// Maximum number of items per request.
const BATCH_MAX: usize = 100;

/// Default number of concurrent requests.
const CONCURRENT_REQUESTS: usize = 8;

/// Headers that contain credentials. They are rejected in `headers`, where every reader of the
/// document could see them.
const SECRET_HEADERS: [&str; 4] = [
    "authorization",
    "proxy-authorization",
    "x-api-key",
    "cookie",
];

/// Default delay of a status lookup: the service may not find an item yet that it has just
/// accepted.
const LOOKUP_AFTER_MS: u64 = 60_000;

impl HttpSpec {
    pub(crate) fn provider_defaults(&self) -> ProviderDefaults {
        ProviderDefaults {
            window: self.batch_max() * CONCURRENT_REQUESTS,
            is_idempotent: self.takes_keys_once,
            lookup_after_ms: self.look.as_ref().map(|_| LOOKUP_AFTER_MS),
            timeout: Duration::from_millis(self.timeout_ms),
        }
    }

    pub(crate) fn host_port(&self) -> Option<String> {
        request::parse_origin(&self.url)
            .ok()
            .map(|target| target.to_string())
    }

    fn batch_max(&self) -> usize {
        self.batch.as_ref().map_or(1, |batch| batch.max)
    }

    pub(crate) fn build_provider(
        &self,
        name: &str,
        secrets: &dyn SecretSource,
    ) -> Result<HttpProvider, String> {
        self.check_spec()?;
        Ok(HttpProvider {
            name: name.to_owned(),
            capabilities: ProviderCapabilities {
                max_batch: self.batch_max(),
                idempotent: self.takes_keys_once,
                status_lookup: self.look.is_some(),
            },
            send_template: HttpRequestTemplate::from_spec(self)?,
            lookup_template: self
                .look
                .as_ref()
                .map(|look| HttpRequestTemplate::for_lookup(self, look))
                .transpose()?,
            client: HttpProviderClient::new(self, secrets)?,
            spec: self.clone(),
        })
    }

    /// Renders the request without sending it.
    pub(crate) fn dry_run(&self, parcel: &OutgoingItem<'_>) -> Result<(), String> {
        let draft = HttpRequestTemplate::from_spec(self)?;
        let written = if self.batch.is_some() {
            draft.render_batch_request(&[*parcel])
        } else {
            draft.render_request(parcel)
        };
        written.map(drop)
    }

    fn check_spec(&self) -> Result<(), String> {
        self.answers.check_mapping(self.takes_keys_once)?;
        let is_secret = |name: &&String| {
            SECRET_HEADERS
                .iter()
                .any(|secret| name.eq_ignore_ascii_case(secret))
        };
        if let Some(name) = self.headers.keys().find(is_secret) {
            return Err(format!(
                "the header {name} says who we are: put it into `auth`, by a secret"
            ));
        }
        if let Some(batch) = &self.batch {
            if !(1..=BATCH_MAX).contains(&batch.max) {
                return Err(format!("batch.max is to be from 1 to {BATCH_MAX}"));
            }
            if self.answers.message_id.is_some() {
                return Err(
                    "in a batch each item has an id of its own: put message_id into batch"
                        .to_owned(),
                );
            }
            if self.idempotency_header.is_some() {
                return Err(
                    "a header is for one key, and a batch has many: put the keys into the body"
                        .to_owned(),
                );
            }
        }
        if let Some(look) = &self.look {
            status::check_statuses(&look.accepted)?;
            status::check_statuses(&look.nothing)?;
            if look.nothing.is_empty() && look.found.is_none() {
                return Err(
                    "look is to say when nothing is known of a key: by `nothing`, such as [404], or `found`".to_owned()
                );
            }
        }
        let has_key = |text: &String| text.contains("key");
        let sends_key = self.idempotency_header.is_some()
            || self.body.as_ref().is_some_and(has_key)
            || self.headers.values().any(has_key)
            || has_key(&self.url);
        match self.takes_keys_once && !sends_key {
            true => {
                Err("takes_keys_once, but the key is not sent: set idempotency_header, or use {{ key }}".to_owned())
            }
            false => self.check_pointers(),
        }
    }

    fn check_pointers(&self) -> Result<(), String> {
        let mut pointers = vec![&self.answers.message_id, &self.answers.error];
        let (items, id, status);
        if let Some(batch) = &self.batch {
            (items, id, status) = (
                Some(batch.items.clone()),
                Some(batch.id.clone()),
                Some(batch.status.clone()),
            );
            pointers.extend([&items, &id, &status, &batch.message_id, &batch.error]);
        }
        if let Some(look) = &self.look {
            pointers.extend([&look.found, &look.status, &look.message_id]);
        }
        let is_wrong = |pointer: &&String| !pointer.is_empty() && !pointer.starts_with('/');
        match pointers.into_iter().flatten().find(is_wrong) {
            Some(wrong) => Err(format!("`{wrong}` is not a JSON pointer, such as /data/id")),
            None => Ok(()),
        }
    }
}

/// Sends items through an HTTP service.
#[derive(Debug)]
pub(crate) struct HttpProvider {
    name: String,
    capabilities: ProviderCapabilities,
    send_template: HttpRequestTemplate,
    lookup_template: Option<HttpRequestTemplate>,
    client: HttpProviderClient,
    spec: HttpSpec,
}

#[async_trait]
impl Provider for HttpProvider {
    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> ProviderCapabilities {
        self.capabilities
    }

    async fn deliver_batch(&self, batch: Vec<Reservation>) -> Vec<(SharedText, SendOutcome)> {
        let parcels: Vec<OutgoingItem<'_>> =
            batch.iter().map(OutgoingItem::from_reservation).collect();
        let answers = self.send_items(&parcels).await;
        batch
            .iter()
            .map(|reservation| reservation.item_id().clone())
            .zip(answers)
            .collect()
    }

    async fn lookup_status(&self, key: &str) -> LookupOutcome {
        let Some((draft, look)) = self.lookup_template.as_ref().zip(self.spec.look.as_ref()) else {
            return LookupOutcome::Unknown;
        };
        let Ok(request) = draft.render_lookup_request(key) else {
            return LookupOutcome::Unknown;
        };
        match self.client.send_request(request).await {
            Ok(reply) => response_mapping::map_lookup_reply(look, &reply, &self.client.redactor),
            Err(_) => LookupOutcome::Unknown,
        }
    }
}

impl HttpProvider {
    /// Sends the items and returns their outcomes in the same order.
    async fn send_items(&self, parcels: &[OutgoingItem<'_>]) -> Vec<SendOutcome> {
        let mut answers: Vec<Option<SendOutcome>> = vec![None; parcels.len()];
        let Some(batch) = &self.spec.batch else {
            for (answer, parcel) in answers.iter_mut().zip(parcels) {
                *answer = Some(self.send_one(parcel).await);
            }
            return answers.into_iter().flatten().collect();
        };
        // Render each item alone first, so that an item that cannot be rendered does not fail the
        // whole batch.
        for (answer, parcel) in answers.iter_mut().zip(parcels) {
            *answer = self
                .send_template
                .render_batch_request(&[*parcel])
                .err()
                .map(|words| invalid_message(&words));
        }
        let fit = parcels
            .iter()
            .zip(&answers)
            .filter(|(_, answer)| answer.is_none());
        let fit: Vec<OutgoingItem<'_>> = fit.map(|(parcel, _)| *parcel).collect();
        let mut said = self.send_batch(batch, &fit).await.into_iter();
        answers
            .into_iter()
            .filter_map(|answer| answer.or_else(|| said.next()))
            .collect()
    }

    async fn send_batch(
        &self,
        batch: &HttpBatchSpec,
        parcels: &[OutgoingItem<'_>],
    ) -> Vec<SendOutcome> {
        if parcels.is_empty() {
            return Vec::new();
        }
        let request = match self.send_template.render_batch_request(parcels) {
            Ok(request) => request,
            Err(words) => return vec![invalid_message(&words); parcels.len()],
        };
        match self.client.send_request(request).await {
            Ok(reply) => response_mapping::map_batch_reply(
                &self.spec.answers,
                batch,
                &reply,
                parcels,
                &self.client.redactor,
            ),
            Err(answer) => vec![answer; parcels.len()],
        }
    }

    async fn send_one(&self, parcel: &OutgoingItem<'_>) -> SendOutcome {
        let request = match self.send_template.render_request(parcel) {
            Ok(request) => request,
            Err(words) => return invalid_message(&words),
        };
        match self.client.send_request(request).await {
            Ok(reply) => {
                response_mapping::map_reply(&self.spec.answers, &reply, &self.client.redactor)
            }
            Err(answer) => answer,
        }
    }
}

#[cfg(test)]
mod tests;
