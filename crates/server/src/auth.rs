//! Authenticates the token of a request and authorizes access to the scope and operations that the
//! token permits.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, DefaultKeyedRateLimiter, Quota, RateLimiter};
use onward_api::problem::{Code, Problem};
use onward_api::token::{Permission, TokenRole};
use onward_base::{Scope, SharedText};
use onward_store::Store;
use tokio::time::Instant;

use crate::connections::RequestOrigin;
use crate::http_types::ProblemResponse;
use crate::{ApiService, ServerState};
use onward_service::token;

/// How long an authenticated token is valid without another lookup. A revoked token therefore stays
/// valid for at most this long.
const TOKEN_CACHE_TTL: Duration = Duration::from_secs(2);

/// How long a token that was valid is looked up again without the rate limit of unknown tokens.
const KNOWN_TOKEN_TTL: Duration = Duration::from_secs(3_600);

/// Maximum number of known tokens; all are forgotten when there are more.
const KNOWN_TOKENS_MAX: usize = 10_000;

/// Lookups per second of tokens that this process has not seen yet, for each peer. A client with a
/// valid token needs one lookup, an attacker who guesses needs one for each guess.
const UNKNOWN_TOKENS_PER_SECOND: NonZeroU32 = NonZeroU32::new(200).expect("not zero");

/// Maximum number of peers whose lookups are limited separately. Further peers share one limit, so
/// that an attacker with many addresses cannot make the map grow.
const LIMITED_PEERS_MAX: usize = 10_000;

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
///
/// Nothing in it grows with the requests of clients without a valid token.
pub(crate) struct TokenAuthenticator {
    auth_mode: AuthMode,
    known_callers: Mutex<HashMap<String, KnownCaller>>,
    limiter: Option<DefaultKeyedRateLimiter<String>>,
    unknown_tokens: UnknownTokenLimiter,
}

/// Limits lookups of unknown tokens, so that guessing tokens costs the store little.
struct UnknownTokenLimiter {
    by_peer: DefaultKeyedRateLimiter<IpAddr>,
    of_further_peers: DefaultDirectRateLimiter,
}

impl UnknownTokenLimiter {
    fn new(per_second: NonZeroU32) -> Self {
        Self {
            by_peer: RateLimiter::keyed(Quota::per_second(per_second)),
            of_further_peers: RateLimiter::direct(Quota::per_second(per_second)),
        }
    }

    fn check_lookup(&self, peer: Option<IpAddr>) -> Result<(), ProblemResponse> {
        let checked = match peer {
            Some(peer) if self.by_peer.len() < LIMITED_PEERS_MAX => self.by_peer.check_key(&peer),
            _ => self.of_further_peers.check(),
        };
        checked.map_err(|until| {
            let wait = until.wait_time_from(DefaultClock::default().now());
            let detail = "too many requests with unknown tokens: retry after the time in the header \
                          Retry-After";
            ProblemResponse::with_retry_after(Problem::new(Code::RateLimited, detail), wait)
        })
    }
}

/// The caller of a token, as of the last lookup.
struct KnownCaller {
    caller: CallerIdentity,
    looked_up_at: Instant,
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
        let unknown_rate = requests_per_second.map_or(UNKNOWN_TOKENS_PER_SECOND, |rate| {
            rate.min(UNKNOWN_TOKENS_PER_SECOND)
        });
        Self {
            auth_mode,
            known_callers: Mutex::default(),
            limiter,
            unknown_tokens: UnknownTokenLimiter::new(unknown_rate),
        }
    }

    /// Drops the state of callers without recent requests.
    pub(crate) fn prune_inactive_callers(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
        }
        self.unknown_tokens.by_peer.retain_recent();
        self.lock_known_callers()
            .retain(|_, known| known.looked_up_at.elapsed() < KNOWN_TOKEN_TTL);
    }

    fn check_rate_limit(&self, token: &str) -> Result<(), ProblemResponse> {
        let Some(limiter) = &self.limiter else {
            return Ok(());
        };
        limiter.check_key(&token.to_owned()).map_err(|until| {
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
        let peer = parts
            .extensions
            .get::<RequestOrigin>()
            .map(|origin| origin.peer);
        let caller = self.identify_caller(store, token, peer).await?;
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

    /// Returns the caller of a token. The rate limits apply before the token is looked up.
    async fn identify_caller(
        &self,
        store: &dyn Store,
        token: &str,
        peer: Option<IpAddr>,
    ) -> Result<CallerIdentity, ProblemResponse> {
        let known = self
            .lock_known_callers()
            .get(token)
            .map(|known| (known.caller.clone(), known.looked_up_at));
        if known.is_some() {
            self.check_rate_limit(token)?;
        } else {
            self.unknown_tokens.check_lookup(peer)?;
        }
        if let Some((caller, looked_up_at)) = known
            && looked_up_at.elapsed() < TOKEN_CACHE_TTL
        {
            return Ok(caller);
        }
        let caller = load_caller(store, token).await?;
        let mut known_callers = self.lock_known_callers();
        let Some(caller) = caller else {
            known_callers.remove(token);
            return Err(unauthenticated_error(
                "the token is unknown, revoked or expired: create one with `onward token create`",
            ));
        };
        if known_callers.len() >= KNOWN_TOKENS_MAX {
            known_callers.clear();
        }
        let known = KnownCaller {
            caller: caller.clone(),
            looked_up_at: Instant::now(),
        };
        known_callers.insert(token.to_owned(), known);
        Ok(caller)
    }

    fn lock_known_callers(&self) -> MutexGuard<'_, HashMap<String, KnownCaller>> {
        self.known_callers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks up the caller of a token in the store; `None` if the token is not valid.
async fn load_caller(
    store: &dyn Store,
    token: &str,
) -> Result<Option<CallerIdentity>, ProblemResponse> {
    let row = token::find_token(store, token)
        .await
        .map_err(onward_service::store_problem)?;
    let Some(row) = row else {
        return Ok(None);
    };
    let role = TokenRole::parse(&row.role)
        .ok_or_else(|| unauthenticated_error("the token has an unknown role"))?;
    Ok(Some(CallerIdentity {
        scope: Scope {
            tenant: row.tenant_id,
            project: row.project_id,
            environment: row.environment_id,
        },
        role,
        token_name: Some(row.name),
        full_access: false,
    }))
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

/// The permission that an operation requires, as a type, so that it is part of the signature of a
/// handler.
pub(crate) trait RequiredPermission: Send + Sync {
    /// The permission.
    const PERMISSION: Permission;
}

macro_rules! required_permissions {
    ($($name:ident = $permission:ident),+ $(,)?) => {$(
        #[doc = concat!("Requires the permission `", stringify!($permission), "`.")]
        pub(crate) struct $name;

        impl RequiredPermission for $name {
            const PERMISSION: Permission = Permission::$permission;
        }
    )+};
}

required_permissions! {
    ReadAccess = Read,
    OperateAccess = Operate,
    BuildAccess = Build,
    WorkAccess = Work,
    AdministerAccess = Administer,
}

/// Identifies a token by its scope and name; all callers without a token share one key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct CallerKey(String);

impl CallerKey {
    fn of_caller(caller: &CallerIdentity) -> Self {
        let Scope {
            tenant,
            project,
            environment,
        } = &caller.scope;
        let name = caller.token_name.as_deref().unwrap_or_default();
        Self(format!("{tenant}\n{project}\n{environment}\n{name}"))
    }
}

/// The API of the caller's scope, for a caller whose role has the permission `P`. A request without
/// that permission is refused before its body is read.
pub(crate) struct Authorized<P> {
    service: ApiService,
    role: TokenRole,
    key: CallerKey,
    permission: PhantomData<P>,
}

impl<P> Authorized<P> {
    /// The token of the caller.
    pub(crate) const fn caller_key(&self) -> &CallerKey {
        &self.key
    }

    pub(crate) fn into_service(self) -> ApiService {
        self.service
    }

    /// Requires a permission that depends on the content of the request.
    pub(crate) fn require_permission(
        &self,
        permission: Permission,
    ) -> Result<&ApiService, ProblemResponse> {
        check_role(self.role, permission)?;
        Ok(&self.service)
    }
}

impl<P> Deref for Authorized<P> {
    type Target = ApiService;

    fn deref(&self) -> &ApiService {
        &self.service
    }
}

fn check_role(role: TokenRole, permission: Permission) -> Result<(), ProblemResponse> {
    if role.has_permission(permission) {
        return Ok(());
    }
    let (role, required) = (role.as_str(), least_role(permission).as_str());
    let detail = format!("the token has the role {role}, but this operation requires {required}");
    Err(Problem::new(Code::Forbidden, detail).into())
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

impl<P: RequiredPermission> FromRequestParts<Arc<ServerState>> for Authorized<P> {
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
        check_role(caller.role, P::PERMISSION)?;
        let key = CallerKey::of_caller(&caller);
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
            key,
            permission: PhantomData,
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
