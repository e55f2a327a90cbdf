//! Table of the bearer tokens that authorize HTTP requests.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp};

use crate::define_table;

define_table! {
    /// A bearer token. Only its digest is stored, so that only its recipient knows the token.
    "tokens", key 1,
    unique ["tenant_id", "project_id", "environment_id", "name"];
    pub struct TokenRow {
        /// SHA-256 of the token.
        pub token_hash: Arc<[u8]> = "token_hash",
        /// The tenant that the token gives access to.
        pub tenant_id: TenantId = "tenant_id",
        /// The project that the token gives access to.
        pub project_id: ProjectId = "project_id",
        /// The environment that the token gives access to.
        pub environment_id: EnvironmentId = "environment_id",
        /// Display name of the token, unique in its environment.
        pub name: SharedText = "name",
        /// `viewer`, `operator`, `engineer`, `admin` or `worker`.
        pub role: SharedText = "role",
        /// When the token was created.
        pub created_at: Timestamp = "created_at",
        /// When the token expires.
        pub expires_at: Timestamp = "expires_at",
    }
}
