//! Who may do what, over HTTP.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp};

use crate::define_table;

define_table! {
    /// A token that somebody was given. What it reads is known to them alone: only its digest is kept.
    "tokens", key 1,
    unique ["tenant_id", "project_id", "environment_id", "name"];
    pub struct TokenRow {
        /// SHA-256 of the token.
        pub token_hash: Arc<[u8]> = "token_hash",
        /// Whose it is.
        pub tenant_id: TenantId = "tenant_id",
        /// In which project.
        pub project_id: ProjectId = "project_id",
        /// In which environment.
        pub environment_id: EnvironmentId = "environment_id",
        /// What people call it.
        pub name: SharedText = "name",
        /// `viewer`, `operator`, `engineer`, `admin` or `worker`.
        pub role: SharedText = "role",
        /// Since when.
        pub created_at: Timestamp = "created_at",
        /// Until when.
        pub expires_at: Timestamp = "expires_at",
    }
}
