//! Provider for services with an HTTP API: for email, voice, social networks and other channels.

mod client;
mod escaped_template;
mod http_error;
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
use crate::provider_error::MessageBuildError;
use crate::provider_spec::ProviderDefaults;
use crate::secret::SecretSource;

pub use http_error::{HttpConfigError, HttpRequestError};
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
            is_idempotent: self.idempotent,
            lookup_after_ms: self.status_lookup.as_ref().map(|_| LOOKUP_AFTER_MS),
            timeout: Duration::from_millis(self.timeout_ms),
        }
    }

    pub(crate) fn host_port(&self) -> Option<String> {
        request::parse_origin("http.url", &self.url)
            .ok()
            .map(|origin| origin.to_string())
    }

    fn batch_max(&self) -> usize {
        self.batch.as_ref().map_or(1, |batch| batch.max_items)
    }

    pub(crate) fn build_provider(
        &self,
        name: &str,
        secrets: &dyn SecretSource,
    ) -> Result<HttpProvider, HttpConfigError> {
        self.check_spec()?;
        Ok(HttpProvider {
            name: name.to_owned(),
            capabilities: self.capabilities(),
            send_template: HttpRequestTemplate::from_spec(self)?,
            lookup_template: self
                .status_lookup
                .as_ref()
                .map(|lookup| HttpRequestTemplate::for_lookup(self, lookup))
                .transpose()?,
            client: HttpProviderClient::new(self, secrets)?,
            spec: self.clone(),
        })
    }

    fn capabilities(&self) -> ProviderCapabilities {
        ProviderCapabilities {
            max_batch: self.batch_max(),
            idempotent: self.idempotent,
            status_lookup: self.status_lookup.is_some(),
        }
    }

    /// Renders the request without sending it.
    pub(crate) fn dry_run(&self, item: &OutgoingItem<'_>) -> Result<(), MessageBuildError> {
        let template = HttpRequestTemplate::from_spec(self)?;
        if self.batch.is_some() {
            template.render_batch_request(&[*item])?;
        } else {
            template.render_request(item)?;
        }
        Ok(())
    }

    fn check_spec(&self) -> Result<(), HttpConfigError> {
        self.responses.check_mapping(self.capabilities())?;
        let has_credentials = |name: &&String| {
            SECRET_HEADERS
                .iter()
                .any(|secret| name.eq_ignore_ascii_case(secret))
        };
        if let Some(name) = self.headers.keys().find(has_credentials) {
            return Err(HttpConfigError::CredentialsInHeader(name.clone()));
        }
        if let Some(batch) = &self.batch {
            if !(1..=BATCH_MAX).contains(&batch.max_items) {
                return Err(HttpConfigError::MaxItemsOutOfRange(batch.max_items));
            }
            if self.responses.message_id.is_some() {
                return Err(HttpConfigError::MessageIdWithBatch);
            }
            if self.idempotency_header.is_some() {
                return Err(HttpConfigError::IdempotencyHeaderWithBatch);
            }
        }
        if let Some(lookup) = &self.status_lookup {
            status::check_statuses("http.status_lookup.accepted", &lookup.accepted)?;
            status::check_statuses("http.status_lookup.not_found", &lookup.not_found)?;
            if lookup.not_found.is_empty() && lookup.found.is_none() {
                return Err(HttpConfigError::MissingNotFound);
            }
        }
        let has_key = |text: &String| text.contains("key");
        let sends_key = self.idempotency_header.is_some()
            || self.body.as_ref().is_some_and(has_key)
            || self.headers.values().any(has_key)
            || has_key(&self.url);
        match self.idempotent && !sends_key {
            true => Err(HttpConfigError::KeyNotSent),
            false => self.check_pointers(),
        }
    }

    fn check_pointers(&self) -> Result<(), HttpConfigError> {
        let HttpResponseSpec {
            message_id, error, ..
        } = &self.responses;
        let mut pointers = vec![
            ("http.responses.message_id", message_id.as_ref()),
            ("http.responses.error", error.as_ref()),
        ];
        if let Some(batch) = &self.batch {
            pointers.extend([
                ("http.batch.items", Some(&batch.items)),
                ("http.batch.id", Some(&batch.id)),
                ("http.batch.status", Some(&batch.status)),
                ("http.batch.message_id", batch.message_id.as_ref()),
                ("http.batch.error", batch.error.as_ref()),
            ]);
        }
        if let Some(lookup) = &self.status_lookup {
            pointers.extend([
                ("http.status_lookup.found", lookup.found.as_ref()),
                ("http.status_lookup.status", lookup.status.as_ref()),
                ("http.status_lookup.message_id", lookup.message_id.as_ref()),
            ]);
        }
        for (setting, pointer) in pointers {
            if let Some(pointer) = pointer.filter(|it| !it.is_empty() && !it.starts_with('/')) {
                return Err(HttpConfigError::InvalidPointer {
                    setting,
                    pointer: pointer.clone(),
                });
            }
        }
        Ok(())
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
        let items: Vec<OutgoingItem<'_>> =
            batch.iter().map(OutgoingItem::from_reservation).collect();
        let outcomes = self.send_items(&items).await;
        batch
            .iter()
            .map(|reservation| reservation.item_id().clone())
            .zip(outcomes)
            .collect()
    }

    async fn lookup_status(&self, key: &str) -> LookupOutcome {
        let Some((template, lookup)) = self
            .lookup_template
            .as_ref()
            .zip(self.spec.status_lookup.as_ref())
        else {
            return LookupOutcome::Unknown;
        };
        let Ok(request) = template.render_lookup_request(key) else {
            return LookupOutcome::Unknown;
        };
        match self.client.send_request(request).await {
            Ok(reply) => response_mapping::map_lookup_reply(lookup, &reply, &self.client.redactor),
            Err(_) => LookupOutcome::Unknown,
        }
    }
}

impl HttpProvider {
    /// Sends the items and returns their outcomes in the same order.
    async fn send_items(&self, items: &[OutgoingItem<'_>]) -> Vec<SendOutcome> {
        let mut outcomes: Vec<Option<SendOutcome>> = vec![None; items.len()];
        let Some(batch) = &self.spec.batch else {
            for (outcome, item) in outcomes.iter_mut().zip(items) {
                *outcome = Some(self.send_one(item).await);
            }
            return outcomes.into_iter().flatten().collect();
        };
        // Render each item alone first, so that an item that cannot be rendered does not fail the
        // whole batch.
        for (outcome, item) in outcomes.iter_mut().zip(items) {
            *outcome = self
                .send_template
                .render_batch_request(&[*item])
                .err()
                .map(|error| invalid_message(&error));
        }
        let valid = items
            .iter()
            .zip(&outcomes)
            .filter(|(_, outcome)| outcome.is_none());
        let valid: Vec<OutgoingItem<'_>> = valid.map(|(item, _)| *item).collect();
        let mut sent = self.send_batch(batch, &valid).await.into_iter();
        outcomes
            .into_iter()
            .filter_map(|outcome| outcome.or_else(|| sent.next()))
            .collect()
    }

    async fn send_batch(
        &self,
        batch: &HttpBatchSpec,
        items: &[OutgoingItem<'_>],
    ) -> Vec<SendOutcome> {
        if items.is_empty() {
            return Vec::new();
        }
        let request = match self.send_template.render_batch_request(items) {
            Ok(request) => request,
            Err(error) => return vec![invalid_message(&error); items.len()],
        };
        match self.client.send_request(request).await {
            Ok(reply) => response_mapping::map_batch_reply(
                &self.spec.responses,
                batch,
                &reply,
                items,
                &self.client.redactor,
            ),
            Err(outcome) => vec![outcome; items.len()],
        }
    }

    async fn send_one(&self, item: &OutgoingItem<'_>) -> SendOutcome {
        let request = match self.send_template.render_request(item) {
            Ok(request) => request,
            Err(error) => return invalid_message(&error),
        };
        match self.client.send_request(request).await {
            Ok(reply) => {
                response_mapping::map_reply(&self.spec.responses, &reply, &self.client.redactor)
            }
            Err(outcome) => outcome,
        }
    }
}

#[cfg(test)]
mod tests;
