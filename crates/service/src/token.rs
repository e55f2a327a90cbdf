//! Bearer tokens with their scope, role and expiry. The store holds only their digests.

use std::sync::Arc;

use onward_api::problem::{Code, Problem};
use onward_api::token::{TokenRole, TokenSummary};
use onward_base::{Scope, Timestamp, hex};
use onward_store::tables::TokenRow;
use onward_store::{
    ColumnCodec as _, Commit, CommitConflict, Error, RecordReader as _, RowChange, RowKey, Store,
    TableScan,
};
use sha2::{Digest as _, Sha256};

/// The prefix of every token, so that people and secret scanners recognize it.
const TOKEN_PREFIX: &str = "onward_";

/// Number of random bytes in a token.
const TOKEN_ENTROPY_BYTES: usize = 32;

/// Creates a token, stores its digest and returns the token. It cannot be read again later. Fails
/// if the name is invalid or already in use.
pub async fn create_token(
    store: &dyn Store,
    scope: &Scope,
    name: &str,
    role: TokenRole,
    expires_at: Option<Timestamp>,
) -> Result<String, Problem> {
    if name.is_empty() || name.len() > 100 || name.chars().any(char::is_control) {
        return Err(Problem::new(
            Code::Unprocessable,
            "name: must have 1 to 100 characters and no control characters",
        ));
    }
    let token = generate_token()?;
    let row = TokenRow {
        token_hash: token_digest(&token),
        tenant_id: scope.tenant.clone(),
        project_id: scope.project.clone(),
        environment_id: scope.environment.clone(),
        name: name.into(),
        role: role.as_str().into(),
        created_at: store.now().await.map_err(crate::store_problem)?,
        expires_at: expires_at.unwrap_or(Timestamp::MAX),
    };
    match store.commit(Commit::new().insert(&row)).await {
        Ok(_) => Ok(token),
        Err(Error::Conflict(CommitConflict::NotUnique { .. })) => Err(Problem::new(
            Code::Conflict,
            format!("a token named {name} already exists"),
        )),
        Err(error) => Err(crate::store_problem(error)),
    }
}

/// Generates the text of a new token.
pub fn generate_token() -> Result<String, Problem> {
    let mut bytes = [0; TOKEN_ENTROPY_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| Problem::new(Code::Internal, error.to_string()))?;
    Ok(format!("{TOKEN_PREFIX}{}", hex::encode_hex(&bytes)))
}

/// Whether a text has the form of a token.
pub fn is_token_text(text: &str) -> bool {
    text.strip_prefix(TOKEN_PREFIX).is_some_and(|digits| {
        digits.len() == 2 * TOKEN_ENTROPY_BYTES
            && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
    })
}

/// Lists the tokens of a scope, without the secrets.
pub async fn list_tokens(store: &dyn Store, scope: &Scope) -> Result<Vec<TokenSummary>, Problem> {
    read_token_rows(store, scope)
        .await?
        .into_iter()
        .map(|(row, _)| api_token_summary(&row))
        .collect()
}

/// Revokes the token with this name. Fails if the scope has none.
pub async fn revoke_token(store: &dyn Store, scope: &Scope, name: &str) -> Result<(), Problem> {
    let found = read_token_rows(store, scope)
        .await?
        .into_iter()
        .find(|(row, _)| &*row.name == name);
    let Some((row, version)) = found else {
        return Err(Problem::new(
            Code::NotFound,
            format!("token {name} not found"),
        ));
    };
    let mut commit = Commit::new();
    commit.changes.push(RowChange::delete(&row, version));
    store
        .commit(commit)
        .await
        .map(drop)
        .map_err(crate::store_problem)
}

/// Whether the store has any token, in any scope.
pub async fn has_any_token(store: &dyn Store) -> Result<bool, Error> {
    let rows: Vec<(TokenRow, u64)> = store
        .list_records(TableScan::all_rows::<TokenRow>().with_limit(1))
        .await?;
    Ok(!rows.is_empty())
}

/// Finds the row of a token. Returns `None` if the token is unknown or has expired.
pub async fn find_token(store: &dyn Store, token: &str) -> Result<Option<TokenRow>, Error> {
    if !token.starts_with(TOKEN_PREFIX) {
        return Ok(None);
    }
    let row: Option<(TokenRow, u64)> = store
        .read_record(RowKey(vec![token_digest(token).to_value()]))
        .await?;
    let now = store.now().await?;
    Ok(row.map(|(row, _)| row).filter(|row| row.expires_at > now))
}

/// The SHA-256 digest of a token. A token has as much entropy as its digest, so a slower hash is
/// not needed.
pub fn token_digest(token: &str) -> Arc<[u8]> {
    Sha256::digest(token.as_bytes()).to_vec().into()
}

async fn read_token_rows(
    store: &dyn Store,
    scope: &Scope,
) -> Result<Vec<(TokenRow, u64)>, Problem> {
    let mut scan = TableScan::all_rows::<TokenRow>();
    let mut all = Vec::new();
    loop {
        let page: Vec<(TokenRow, u64)> = store
            .list_records(scan.clone())
            .await
            .map_err(crate::store_problem)?;
        let Some((last, _)) = page.last() else {
            return Ok(all);
        };
        scan = scan.starting_after(last);
        let is_in_scope = |row: &TokenRow| {
            scope.matches_ids(&row.tenant_id, &row.project_id, &row.environment_id)
        };
        all.extend(page.into_iter().filter(|(row, _)| is_in_scope(row)));
    }
}

fn api_token_summary(row: &TokenRow) -> Result<TokenSummary, Problem> {
    let role = TokenRole::parse(&row.role).ok_or_else(|| {
        let detail = format!("token {} has the unknown role `{}`", row.name, row.role);
        Problem::new(Code::Corrupt, detail)
    })?;
    Ok(TokenSummary {
        name: row.name.to_string(),
        role,
        created_at: row.created_at.to_string(),
        expires_at: (row.expires_at != Timestamp::MAX).then(|| row.expires_at.to_string()),
    })
}
