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

/// Which tokens are valid. Every request needs one.
#[derive(Clone)]
pub enum AuthMode {
    /// The tokens in the store, each with its role and scope.
    Tokens,
    /// The tokens in the store, and one with full access to all scopes, for development only.
    /// Its digest is [`token::token_digest`].
    TokensAndOwner(Arc<[u8]>),
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
    /// Name of the caller's token; `None` for the owner token, which has no name.
    token_name: Option<SharedText>,
    /// Whether the caller may access the whole store and not only its scope.
    full_access: bool,
}

impl TokenAuthenticator {
    /// Creates an authenticator that limits each token to `requests_per_second`; `None` means no
    /// limit.
    pub(crate) fn new(auth_mode: AuthMode, requests_per_second: Option<NonZeroU32>) -> Self {
        let limiter = requests_per_second.map(|rate| RateLimiter::keyed(Quota::per_second(rate)));
        Self {
            auth_mode,
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

    fn check_rate_limit(&self, caller_key: &str) -> Result<(), ProblemResponse> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        limiter.check_key(&caller_key.to_owned()).map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let detail = "the rate limit of this token is exceeded: retry after the time in the \
                          header Retry-After; the server option --requests-per-second sets the limit";
            ProblemResponse::with_retry_after(Problem::new(Code::RateLimited, detail), wait)
        })
    }

    async fn authenticate_request(
        &self,
        store: &dyn Store,
        parts: &Parts,
        default_scope: &Scope,
    ) -> Result<CallerIdentity, ProblemResponse> {
        let Some(token) = bearer_token(parts)? else {
            return Err(unauthenticated_error(
                "no token given: send the header `Authorization: Bearer onward_…`; the command line \
                 reads the token from ONWARD_TOKEN, from a profile, or from .onward/token, which \
                 onward dev creates",
            ));
        };
        if self.is_owner_token(token) {
            self.check_rate_limit(token)?;
            return Ok(CallerIdentity {
                scope: requested_scope(parts, default_scope)?,
                role: TokenRole::Admin,
                token_name: None,
                full_access: true,
            });
        }
        let caller = match self.cached_caller(token) {
            Some(caller) => caller,
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
        if requested_scope(parts, &caller.scope)? == caller.scope {
            Ok(caller)
        } else {
            Err(Problem::new(
                Code::Forbidden,
                "the token belongs to another scope: omit the headers Onward-Tenant, Onward-Project \
                 and Onward-Environment, or use a token of that scope",
            )
            .into())
        }
    }

    /// Whether this is the token of [`AuthMode::TokensAndOwner`]. Digests are compared, so the time
    /// of the comparison reveals nothing about the token.
    fn is_owner_token(&self, token: &str) -> bool {
        match &self.auth_mode {
            AuthMode::Tokens => false,
            AuthMode::TokensAndOwner(digest) => token::token_digest(token) == *digest,
        }
    }

    fn cached_caller(&self, token: &str) -> Option<CallerIdentity> {
        let cached = self
            .cached_callers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        cached
            .get(token)
            .filter(|(since, _)| since.elapsed() < TOKEN_CACHE_TTL)
            .map(|(_, caller)| caller.clone())
    }

    async fn load_caller(
        &self,
        store: &dyn Store,
        token: &str,
    ) -> Result<CallerIdentity, ProblemResponse> {
        let row = token::find_token(store, token)
            .await
            .map_err(onward_service::store_problem)?;
        let row = row.ok_or_else(|| {
            unauthenticated_error(
                "the token is unknown, revoked or expired: create one with `onward token create`",
            )
        })?;
        let role = TokenRole::parse(&row.role)
            .ok_or_else(|| unauthenticated_error("the token has an unknown role"))?;
        let caller = CallerIdentity {
            scope: Scope {
                tenant: row.tenant_id,
                project: row.project_id,
                environment: row.environment_id,
            },
            role,
            token_name: Some(row.name),
            full_access: false,
        };
        let mut cached = self
            .cached_callers
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if cached.len() >= TOKEN_CACHE_MAX {
            cached.clear();
        }
        cached.insert(token.to_owned(), (Instant::now(), caller.clone()));
        Ok(caller)
    }
}

fn unauthenticated_error(detail: &str) -> ProblemResponse {
    Problem::new(Code::Unauthenticated, detail).into()
}

fn bearer_token(parts: &Parts) -> Result<Option<&str>, ProblemResponse> {
    let Some(header) = parts.headers.get(AUTHORIZATION) else {
        return Ok(None);
    };
    let text = header.to_str().ok().and_then(|text| text.split_once(' '));
    match text {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => Ok(Some(token.trim())),
        _ => Err(unauthenticated_error(
            "the header Authorization must be `Bearer TOKEN`",
        )),
    }
}

/// Returns the scope that the request's headers select; each part without a header is taken from
/// `default_scope`.
fn requested_scope(parts: &Parts, default_scope: &Scope) -> Result<Scope, ProblemResponse> {
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
    };
    let invalid = |name: &str, error: &dyn std::fmt::Display| -> ProblemResponse {
        Problem::new(Code::InvalidRequest, format!("header {name}: {error}")).into()
    };
    let mut scope = default_scope.clone();
    let [tenant, project, environment] = SCOPE_HEADERS;
    if let Some(text) = header(tenant) {
        scope.tenant = text.parse().map_err(|error| invalid(tenant, &error))?;
    }
    if let Some(text) = header(project) {
        scope.project = text.parse().map_err(|error| invalid(project, &error))?;
    }
    if let Some(text) = header(environment) {
        scope.environment = text.parse().map_err(|error| invalid(environment, &error))?;
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
        permission: Permission,
    ) -> Result<&ApiService, ProblemResponse> {
        if self.role.has_permission(permission) {
            return Ok(&self.service);
        }
        let (role, required) = (self.role.as_str(), least_role(permission).as_str());
        let detail =
            format!("the token has the role {role}, but this operation requires {required}");
        Err(Problem::new(Code::Forbidden, detail).into())
    }
}

/// Returns the role with the fewest permissions that includes this one, for the error message.
const fn least_role(permission: Permission) -> TokenRole {
    match permission {
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
        let caller = app
            .authenticator
            .authenticate_request(&**client.store(), parts, client.scope())
            .await?;
        let service = app
            .service
            .for_scope(caller.scope)
            .with_caller_token(caller.token_name);
        Ok(Self {
            service: if caller.full_access {
                service.with_full_access()
            } else {
                service
            },
            role: caller.role,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_role_has_the_permission_and_no_lesser_role_has_it() {
        for permission in [
            Permission::Read,
            Permission::Operate,
            Permission::Build,
            Permission::Work,
            Permission::Administer,
        ] {
            let least = least_role(permission);
            assert!(least.has_permission(permission));
            assert!(!TokenRole::ALL.into_iter().any(|role| role < least
                && role != TokenRole::Admin
                && role.has_permission(permission)));
        }
    }
}
