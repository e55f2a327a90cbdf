//! Services with an interface over HTTP: for mail, voice, social networks and whatever else there is.

mod call;
mod request;
mod said;
mod spec;
mod status;
mod template;

use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::{Answer, Found};
use onward_dispatcher::{Nature, Provider, Reservation};
use onward_journal::Text;

use crate::http::call::Caller;
use crate::http::request::Draft;
use crate::parcel::{Parcel, unfit};
use crate::secret::Secrets;
use crate::spec::Defaults;

pub use spec::{AnswersSpec, AuthSpec, BatchSpec, HttpSpec, LookSpec};
pub use status::StatusMatch;

/// Items of one request, at most.
const BATCH_MAX: usize = 100;

/// Requests that are under way together, unless it is said.
const REQUESTS: usize = 8;

/// Headers that say who we are. In a document they would be there for everybody to read.
const SECRET_HEADERS: [&str; 4] = ["authorization", "proxy-authorization", "x-api-key", "cookie"];

/// A service is asked about a key after so long: what it has just taken it may not find yet.
const LOOKS_AFTER_MS: u64 = 60_000;

impl HttpSpec {
    pub(crate) fn defaults(&self) -> Defaults {
        Defaults {
            window: self.batch_max() * REQUESTS,
            repeats: self.takes_keys_once,
            looks_after_ms: self.look.as_ref().map(|_| LOOKS_AFTER_MS),
            patience: Duration::from_millis(self.timeout_ms),
        }
    }

    pub(crate) fn host(&self) -> Option<String> {
        request::target(&self.url).ok().map(|target| target.to_string())
    }

    fn batch_max(&self) -> usize {
        self.batch.as_ref().map_or(1, |batch| batch.max)
    }

    pub(crate) fn build(&self, name: &str, secrets: &dyn Secrets) -> Result<Http, String> {
        self.check()?;
        Ok(Http {
            name: name.to_owned(),
            nature: Nature {
                batch_max: self.batch_max(),
                takes_keys_once: self.takes_keys_once,
                can_look: self.look.is_some(),
            },
            draft: Draft::of(self)?,
            look: self.look.as_ref().map(|look| Draft::of_look(self, look)).transpose()?,
            caller: Caller::new(self, secrets)?,
            spec: self.clone(),
        })
    }

    /// Makes the request, for nobody.
    pub(crate) fn rehearse(&self, parcel: &Parcel<'_>) -> Result<(), String> {
        let draft = Draft::of(self)?;
        let written = if self.batch.is_some() { draft.write_batch(&[*parcel]) } else { draft.write(parcel) };
        written.map(drop)
    }

    fn check(&self) -> Result<(), String> {
        self.answers.check(self.takes_keys_once)?;
        let is_secret = |name: &&String| SECRET_HEADERS.iter().any(|secret| name.eq_ignore_ascii_case(secret));
        if let Some(name) = self.headers.keys().find(is_secret) {
            return Err(format!("the header {name} says who we are: put it into `auth`, by a secret"));
        }
        if let Some(batch) = &self.batch {
            if !(1..=BATCH_MAX).contains(&batch.max) {
                return Err(format!("batch.max is to be from 1 to {BATCH_MAX}"));
            }
            if self.answers.message_id.is_some() {
                return Err("in a batch each item has an id of its own: put message_id into batch".to_owned());
            }
            if self.idempotency_header.is_some() {
                return Err("a header is for one key, and a batch has many: put the keys into the body".to_owned());
            }
        }
        if let Some(look) = &self.look {
            status::check(&look.accepted)?;
            status::check(&look.nothing)?;
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
            (items, id, status) = (Some(batch.items.clone()), Some(batch.id.clone()), Some(batch.status.clone()));
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

/// Sends through a service.
#[derive(Debug)]
pub(crate) struct Http {
    name: String,
    nature: Nature,
    draft: Draft,
    look: Option<Draft>,
    caller: Caller,
    spec: HttpSpec,
}

#[async_trait]
impl Provider for Http {
    fn name(&self) -> &str {
        &self.name
    }

    fn nature(&self) -> Nature {
        self.nature
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        let parcels: Vec<Parcel<'_>> = batch.iter().map(Parcel::of).collect();
        let answers = self.send(&parcels).await;
        batch.iter().map(|reservation| reservation.item().clone()).zip(answers).collect()
    }

    async fn look(&self, key: &str) -> Found {
        let Some((draft, look)) = self.look.as_ref().zip(self.spec.look.as_ref()) else { return Found::Unsure };
        let Ok(request) = draft.write_look(key) else { return Found::Unsure };
        match self.caller.call(request).await {
            Ok(reply) => said::found(look, &reply, &self.caller.veil),
            Err(_) => Found::Unsure,
        }
    }
}

impl Http {
    /// What became of each of these, in their order.
    async fn send(&self, parcels: &[Parcel<'_>]) -> Vec<Answer> {
        let mut answers: Vec<Option<Answer>> = vec![None; parcels.len()];
        let Some(batch) = &self.spec.batch else {
            for (answer, parcel) in answers.iter_mut().zip(parcels) {
                *answer = Some(self.send_one(parcel).await);
            }
            return answers.into_iter().flatten().collect();
        };
        // One that cannot be made does not spoil the others.
        for (answer, parcel) in answers.iter_mut().zip(parcels) {
            *answer = self.draft.write_batch(&[*parcel]).err().map(|words| unfit(&words));
        }
        let fit = parcels.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
        let fit: Vec<Parcel<'_>> = fit.map(|(parcel, _)| *parcel).collect();
        let mut said = self.send_batch(batch, &fit).await.into_iter();
        answers.into_iter().filter_map(|answer| answer.or_else(|| said.next())).collect()
    }

    async fn send_batch(&self, batch: &BatchSpec, parcels: &[Parcel<'_>]) -> Vec<Answer> {
        if parcels.is_empty() {
            return Vec::new();
        }
        let request = match self.draft.write_batch(parcels) {
            Ok(request) => request,
            Err(words) => return vec![unfit(&words); parcels.len()],
        };
        match self.caller.call(request).await {
            Ok(reply) => said::answers(&self.spec.answers, batch, &reply, parcels, &self.caller.veil),
            Err(answer) => vec![answer; parcels.len()],
        }
    }

    async fn send_one(&self, parcel: &Parcel<'_>) -> Answer {
        let request = match self.draft.write(parcel) {
            Ok(request) => request,
            Err(words) => return unfit(&words),
        };
        match self.caller.call(request).await {
            Ok(reply) => said::answer(&self.spec.answers, &reply, &self.caller.veil),
            Err(answer) => answer,
        }
    }
}

#[cfg(test)]
mod tests;
