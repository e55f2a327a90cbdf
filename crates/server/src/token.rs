//! Tokens: who they belong to, and what they allow. Only their digests are stored.

use std::sync::Arc;

use onward_api::problem::{Code, Problem};
use onward_api::token::{Role, TokenInfo};
use onward_engine::client::Scope;
use onward_journal::{Timestamp, hex};
use onward_store::tables::Token;
use onward_store::{Change, Commit, Conflict, Error, Field as _, Key, Records as _, Scan, Store};
use sha2::{Digest as _, Sha256};

/// What tokens begin with, so that people and scanners know one when they see it.
const PREFIX: &str = "onward_";

/// Bytes of entropy in a token.
const ENTROPY: usize = 32;

/// Makes a token, stores its digest, and returns it: nobody can read it again.
pub async fn create(
    store: &dyn Store,
    scope: &Scope,
    name: &str,
    role: Role,
    expires_at: Option<Timestamp>,
) -> Result<String, Problem> {
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return Err(Problem::new(
            Code::Unprocessable,
            "a name has 1 to 100 characters, none of them a control character",
        ));
    }
    let mut bytes = [0; ENTROPY];
    getrandom::fill(&mut bytes).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    let token = format!("{PREFIX}{}", hex::encode(&bytes));
    let row = Token {
        token_hash: digest(&token),
        tenant_id: scope.tenant.clone(),
        project_id: scope.project.clone(),
        environment_id: scope.environment.clone(),
        name: name.into(),
        role: role.as_str().into(),
        created_at: store.now().await.map_err(crate::service::store)?,
        expires_at: expires_at.unwrap_or(Timestamp::MAX),
    };
    match store.commit(Commit::new().insert(&row)).await {
        Ok(_) => Ok(token),
        Err(Error::Conflict(Conflict::NotUnique { .. })) => {
            Err(Problem::new(Code::Conflict, format!("there is a token called {name} already")))
        }
        Err(error) => Err(crate::service::store(error)),
    }
}

/// The tokens of a scope, without what they read.
pub async fn list(store: &dyn Store, scope: &Scope) -> Result<Vec<TokenInfo>, Problem> {
    Ok(rows(store, scope).await?.into_iter().map(|(row, _)| info(&row)).collect())
}

/// Takes a token back.
pub async fn revoke(store: &dyn Store, scope: &Scope, name: &str) -> Result<(), Problem> {
    let found = rows(store, scope).await?.into_iter().find(|(row, _)| &*row.name == name);
    let Some((row, version)) = found else {
        return Err(Problem::new(Code::NotFound, format!("there is no token called {name}")));
    };
    let mut commit = Commit::new();
    commit.changes.push(Change::delete(&row, version));
    store.commit(commit).await.map(drop).map_err(crate::service::store)
}

/// Whether there is any token at all, of whomever.
pub async fn is_any(store: &dyn Store) -> Result<bool, Error> {
    let rows: Vec<(Token, u64)> = store.list(Scan::all::<Token>().limit(1)).await?;
    Ok(!rows.is_empty())
}

/// Who comes with this token; nobody if it is not known, or no longer good.
pub(crate) async fn find(store: &dyn Store, token: &str) -> Result<Option<Token>, Error> {
    if !token.starts_with(PREFIX) {
        return Ok(None);
    }
    let row: Option<(Token, u64)> = store.get(Key(vec![digest(token).to_value()])).await?;
    let now = store.now().await?;
    Ok(row.map(|(row, _)| row).filter(|row| row.expires_at > now))
}

/// A token has as many bits of entropy as its digest: nothing slower is needed.
pub(crate) fn digest(token: &str) -> Arc<[u8]> {
    Sha256::digest(token.as_bytes()).to_vec().into()
}

async fn rows(store: &dyn Store, scope: &Scope) -> Result<Vec<(Token, u64)>, Problem> {
    let mut scan = Scan::all::<Token>();
    let mut all = Vec::new();
    loop {
        let page: Vec<(Token, u64)> = store.list(scan.clone()).await.map_err(crate::service::store)?;
        let Some((last, _)) = page.last() else { return Ok(all) };
        scan = scan.after(last);
        let is_its = |row: &Token| scope.has(&row.tenant_id, &row.project_id, &row.environment_id);
        all.extend(page.into_iter().filter(|(row, _)| is_its(row)));
    }
}

fn info(row: &Token) -> TokenInfo {
    TokenInfo {
        name: row.name.to_string(),
        role: Role::parse(&row.role).unwrap_or(Role::Viewer),
        created_at: row.created_at.to_string(),
        expires_at: (row.expires_at != Timestamp::MAX).then(|| row.expires_at.to_string()),
    }
}
