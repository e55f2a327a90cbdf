//! Authenticates the token of a request and authorizes access to the scope and operations that the
//! token permits.

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
use onward_api::token::{Permission, TokenRole};
use onward_base::{Scope, SharedText};
use onward_store::Store;
use tokio::time::Instant;

use crate::http_types::ProblemResponse;
use crate::{ApiService, ServerState};
use onward_service::token;

/// How long an authenticated token is cached. A revoked token therefore stays valid for at most
/// this long.
const TOKEN_CACHE_TTL: Duration = Duration::from_secs(2);

/// Maximum number of cached tokens; the cache is cleared when it is full.
const TOKEN_CACHE_MAX: usize = 10_000;

/// Rate limit key that all unknown tokens share. No token is this short, so it cannot collide with
/// one.
const UNKNOWN_TOKEN_KEY: &str = "?";

/// Headers that select the tenant, project and environment of a request.
pub(crate) const SCOPE_HEADERS: [&str; 3] =
    ["onward-tenant", "onward-project", "onward-environment"];

/// Whether requests need a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthMode {
    /// Every request needs a valid bearer token.
    Tokens,
    /// Requests without a token have full access to all scopes; for development only.
    Disabled,
}

/// Authenticates requests, caches valid tokens and enforces the rate limit of each token.
pub(crate) struct TokenAuthenticator {
    auth_mode: AuthMode,
    cached_callers: Mutex<HashMap<String, (Instant, CallerIdentity)>>,
    limiter: Option<DefaultKeyedRateLimiter<String>>,
}

/// The authenticated caller of a request.
#[derive(Debug, Clone)]
struct CallerIdentity {
    scope: Scope,
    role: TokenRole,
    /// Name of the caller's token; `None` for a request without a token.
    token_name: Option<SharedText>,
    /// Whether the caller may access the whole store and not only its scope.
    full_access: bool,
}

impl TokenAuthenticator {
    /// Creates an authenticator that limits each token to `requests_per_second`; `None` means no
    /// limit.
    pub(crate) fn new(admission: AuthMode, requests_per_second: Option<NonZeroU32>) -> Self {
        let limiter = requests_per_second.map(|rate| RateLimiter::keyed(Quota::per_second(rate)));
        Self {
            auth_mode: admission,
            cached_callers: Mutex::default(),
            limiter,
        }
    }

    /// Drops the rate limit state of callers without recent requests.
    pub(crate) fn prune_rate_limits(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
        }
    }

    fn check_rate_limit(&self, who: &str) -> Result<(), ProblemResponse> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        limiter.check_key(&who.to_owned()).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            ProblemResponse::with_retry_after(
                Problem::new(Code::RateLimited, "more requests than this token may make"),
                wait,
            )
        })
    }

    async fn authenticate_request(
        &self,
        store: &dyn Store,
        parts: &Parts,
        usual: &Scope,
    ) -> Result<CallerIdentity, ProblemResponse> {
        let Some(token) = bearer_token(parts)? else {
            return match self.auth_mode {
                AuthMode::Disabled => {
                    self.check_rate_limit("")?;
                    Ok(CallerIdentity {
                        scope: requested_scope(parts, usual)?,
                        role: TokenRole::Admin,
                        token_name: None,
                        full_access: true,
                    })
                }
                AuthMode::Tokens => Err(unauthenticated_error(
                    "a token is needed: Authorization: Bearer onward_…, or ONWARD_TOKEN for the command line",
                )),
            };
        };
        let asker = match self.cached_caller(token) {
            Some(asker) => asker,
            // All requests with unknown tokens share one rate limit.
            None => match self.load_caller(store, token).await {
                Err(unknown) => {
                    self.check_rate_limit(UNKNOWN_TOKEN_KEY)?;
                    return Err(unknown);
                }
                known => known?,
            },
        };
        self.check_rate_limit(token)?;
        if requested_scope(parts, &asker.scope)? == asker.scope {
            Ok(asker)
        } else {
            Err(Problem::new(
                Code::Forbidden,
                "the token belongs to another tenant, project or environment",
            )
            .into())
        }
    }

    fn cached_caller(&self, token: &str) -> Option<CallerIdentity> {
        let known = self
            .cached_callers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        known
            .get(token)
            .filter(|(since, _)| since.elapsed() < TOKEN_CACHE_TTL)
            .map(|(_, asker)| asker.clone())
    }

    async fn load_caller(
        &self,
        store: &dyn Store,
        token: &str,
    ) -> Result<CallerIdentity, ProblemResponse> {
        let row = token::find_token(store, token)
            .await
            .map_err(onward_service::store_problem)?;
        let row =
            row.ok_or_else(|| unauthenticated_error("the token is not known, or no longer good"))?;
        let role = TokenRole::parse(&row.role)
            .ok_or_else(|| unauthenticated_error("the token has a role that is none"))?;
        let asker = CallerIdentity {
            scope: Scope {
                tenant: row.tenant_id,
                project: row.project_id,
                environment: row.environment_id,
            },
            role,
            token_name: Some(row.name),
            full_access: false,
        };
        let mut known = self
            .cached_callers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() >= TOKEN_CACHE_MAX {
            known.clear();
        }
        known.insert(token.to_owned(), (Instant::now(), asker.clone()));
        Ok(asker)
    }
}

fn unauthenticated_error(words: &str) -> ProblemResponse {
    Problem::new(Code::Unauthenticated, words).into()
}

fn bearer_token(parts: &Parts) -> Result<Option<&str>, ProblemResponse> {
    let Some(header) = parts.headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let text = header.to_str().ok().and_then(|text| text.split_once(' '));
    match text {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthenticated_error(
            "the header is not `Authorization: Bearer TOKEN`",
        )),
    }
}

/// Returns the scope that the request's headers select; each part without a header is taken from
/// `usual`.
fn requested_scope(parts: &Parts, usual: &Scope) -> Result<Scope, ProblemResponse> {
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let wrong = |name: &str, error: &dyn std::fmt::Display| -> ProblemResponse {
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

/// Access to the API on behalf of the authenticated caller.
pub(crate) struct AuthenticatedCaller {
    service: ApiService,
    role: TokenRole,
}

impl AuthenticatedCaller {
    /// Returns the API of the caller's scope. Fails with `forbidden` if the caller's role lacks the
    /// permission.
    pub(crate) fn require_permission(
        &self,
        deed: Permission,
    ) -> Result<&ApiService, ProblemResponse> {
        if self.role.has_permission(deed) {
            return Ok(&self.service);
        }
        let (has, needs) = (self.role.as_str(), least_role(deed).as_str());
        let words = format!("a token with the role {has} is not enough for this: it needs {needs}");
        Err(Problem::new(Code::Forbidden, words).into())
    }
}

/// Returns the role with the fewest permissions that includes this one, for the error message.
const fn least_role(deed: Permission) -> TokenRole {
    match deed {
        Permission::Read => TokenRole::Viewer,
        Permission::Operate => TokenRole::Operator,
        Permission::Build => TokenRole::Engineer,
        Permission::Work => TokenRole::Worker,
        Permission::Administer => TokenRole::Admin,
    }
}

impl FromRequestParts<Arc<ServerState>> for AuthenticatedCaller {
    type Rejection = ProblemResponse;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<ServerState>,
    ) -> Result<Self, ProblemResponse> {
        let client = app.service.engine_client();
        let asker = app
            .authenticator
            .authenticate_request(&**client.store(), parts, client.scope())
            .await?;
        let service = app
            .service
            .for_scope(asker.scope)
            .with_caller_token(asker.token_name);
        Ok(Self {
            service: if asker.full_access {
                service.with_full_access()
            } else {
                service
            },
            role: asker.role,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_role_for_something_is_enough_for_it_and_no_lesser_is() {
        for deed in [
            Permission::Read,
            Permission::Operate,
            Permission::Build,
            Permission::Work,
            Permission::Administer,
        ] {
            let least = least_role(deed);
            assert!(least.has_permission(deed));
            assert!(
                !TokenRole::ALL.into_iter().any(|role| role < least
                    && role != TokenRole::Admin
                    && role.has_permission(deed))
            );
        }
    }
}
