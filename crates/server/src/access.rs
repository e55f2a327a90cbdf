//! Who asks, and whether they may: from the token of a request to access to what its owner has.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use onward_api::problem::{Code, Problem};
use onward_api::token::{Deed, Role};
use onward_engine::client::Scope;
use onward_journal::Text;
use onward_store::Store;
use tokio::time::Instant;

use crate::answer::Failed;
use crate::{App, Service, token};

/// How long a token is taken for what it was: one that is taken back is good for as long.
const REMEMBERED: Duration = Duration::from_secs(2);

/// Tokens that are remembered at most.
const REMEMBERED_MAX: usize = 10_000;

/// Whose rate tokens count against that nobody has: no token is as short.
const UNKNOWN: &str = "?";

/// Headers that say whose things are meant.
pub(crate) const SCOPE_HEADERS: [&str; 3] = ["onward-tenant", "onward-project", "onward-environment"];

/// Who may ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// Whoever has a token.
    Tokens,
    /// Everybody, for everything: development.
    Everybody,
}

/// What is known of those who ask.
pub(crate) struct Gate {
    admission: Admission,
    known: Mutex<HashMap<String, (Instant, Asker)>>,
    limiter: Option<DefaultKeyedRateLimiter<String>>,
}

/// Somebody who asks.
#[derive(Debug, Clone)]
struct Asker {
    scope: Scope,
    role: Role,
    /// What their token is called.
    name: Option<Text>,
    /// Whether there is nobody to be kept apart from.
    has_all: bool,
}

impl Gate {
    /// At most so many requests a second for each token.
    pub(crate) fn new(admission: Admission, requests_per_second: Option<NonZeroU32>) -> Self {
        let limiter = requests_per_second.map(|rate| RateLimiter::keyed(Quota::per_second(rate)));
        Self { admission, known: Mutex::default(), limiter }
    }

    /// Forgets who has not asked for a while.
    pub(crate) fn tidy(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
        }
    }

    fn expect_rate(&self, who: &str) -> Result<(), Failed> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.check_key(&who.to_owned()).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            Failed::later(Problem::new(Code::RateLimited, "more requests than this token may make"), wait)
        })
    }

    async fn asker(&self, store: &dyn Store, parts: &Parts, usual: &Scope) -> Result<Asker, Failed> {
        let Some(token) = bearer(parts)? else {
            return match self.admission {
                Admission::Everybody => {
                    self.expect_rate("")?;
                    Ok(Asker { scope: wanted(parts, usual)?, role: Role::Admin, name: None, has_all: true })
                }
                Admission::Tokens => Err(unknown(
                    "a token is needed: Authorization: Bearer onward_…, or ONWARD_TOKEN for the command line",
                )),
            };
        };
        let asker = match self.remembered(token) {
            Some(asker) => asker,
            // Whoever guesses tokens shares with all others who do.
            None => match self.look_up(store, token).await {
                Err(unknown) => {
                    self.expect_rate(UNKNOWN)?;
                    return Err(unknown);
                }
                known => known?,
            },
        };
        self.expect_rate(token)?;
        if wanted(parts, &asker.scope)? == asker.scope {
            Ok(asker)
        } else {
            Err(Problem::new(Code::Forbidden, "the token belongs to another tenant, project or environment").into())
        }
    }

    fn remembered(&self, token: &str) -> Option<Asker> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(token).filter(|(since, _)| since.elapsed() < REMEMBERED).map(|(_, asker)| asker.clone())
    }

    async fn look_up(&self, store: &dyn Store, token: &str) -> Result<Asker, Failed> {
        let row = token::find(store, token).await.map_err(crate::service::store)?;
        let row = row.ok_or_else(|| unknown("the token is not known, or no longer good"))?;
        let role = Role::parse(&row.role).ok_or_else(|| unknown("the token has a role that is none"))?;
        let asker = Asker {
            scope: Scope { tenant: row.tenant_id, project: row.project_id, environment: row.environment_id },
            role,
            name: Some(row.name),
            has_all: false,
        };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(token.to_owned(), (Instant::now(), asker.clone()));
        Ok(asker)
    }
}

fn unknown(words: &str) -> Failed {
    Problem::new(Code::Unauthenticated, words).into()
}

fn bearer(parts: &Parts) -> Result<Option<&str>, Failed> {
    let Some(header) = parts.headers.get(AUTHORIZATION) else { return Ok(None) };
    let text = header.to_str().ok().and_then(|text| text.split_once(' '));
    match text {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unknown("the header is not `Authorization: Bearer TOKEN`")),
    }
}

/// Whose things are meant, unless the headers say nothing of it.
fn wanted(parts: &Parts, usual: &Scope) -> Result<Scope, Failed> {
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let wrong = |name: &str, error: &dyn std::fmt::Display| -> Failed {
        Problem::new(Code::InvalidRequest, format!("{name}: {error}")).into()
    };
    let mut scope = usual.clone();
    let [tenant, project, environment] = SCOPE_HEADERS;
    if let Some(text) = header(tenant) {
        scope.tenant = text.parse().map_err(|error| wrong(tenant, &error))?;
    }
    if let Some(text) = header(project) {
        scope.project = text.parse().map_err(|error| wrong(project, &error))?;
    }
    if let Some(text) = header(environment) {
        scope.environment = text.parse().map_err(|error| wrong(environment, &error))?;
    }
    Ok(scope)
}

/// Access to what whoever asks has.
pub(crate) struct Access {
    service: Service,
    role: Role,
}

impl Access {
    /// Access, if the role allows this.
    pub(crate) fn to(&self, deed: Deed) -> Result<&Service, Failed> {
        if self.role.allows(deed) {
            return Ok(&self.service);
        }
        let (has, needs) = (self.role.as_str(), least(deed).as_str());
        let words = format!("a token with the role {has} is not enough for this: it needs {needs}");
        Err(Problem::new(Code::Forbidden, words).into())
    }
}

/// The role that is enough for something, and allows least besides.
const fn least(deed: Deed) -> Role {
    match deed {
        Deed::Read => Role::Viewer,
        Deed::Operate => Role::Operator,
        Deed::Build => Role::Engineer,
        Deed::Work => Role::Worker,
        Deed::Administer => Role::Admin,
    }
}

impl FromRequestParts<Arc<App>> for Access {
    type Rejection = Failed;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failed> {
        let client = app.service.client();
        let asker = app.gate.asker(&**client.store(), parts, client.scope()).await?;
        let service = app.service.of(asker.scope).asked_by(asker.name);
        Ok(Self { service: if asker.has_all { service.with_all() } else { service }, role: asker.role })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_role_for_something_is_enough_for_it_and_no_lesser_is() {
        for deed in [Deed::Read, Deed::Operate, Deed::Build, Deed::Work, Deed::Administer] {
            let least = least(deed);
            assert!(least.allows(deed));
            assert!(!Role::ALL.into_iter().any(|role| role < least && role != Role::Admin && role.allows(deed)));
        }
    }
}
