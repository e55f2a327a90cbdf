//! Wire types for API tokens, their roles and the permissions that a role grants.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The role of a token, which determines its permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenRole {
    /// May read.
    Viewer,
    /// May read; start, signal and cancel executions; control campaigns and settle items in doubt.
    Operator,
    /// Everything an operator may do; deploy components and campaigns; append run events.
    Engineer,
    /// May do everything.
    Admin,
    /// May claim and perform tasks, and nothing else.
    Worker,
}

/// A permission that an operation requires and a role grants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Read executions, runs, campaigns and the rest of the scope.
    Read,
    /// Start, signal and cancel executions; control campaigns.
    Operate,
    /// Deploy components and campaigns; append run events.
    Build,
    /// Claim and perform tasks.
    Work,
    /// Create and revoke tokens; inspect the store as a whole.
    Administer,
}

impl TokenRole {
    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::Viewer,
        Self::Operator,
        Self::Engineer,
        Self::Admin,
        Self::Worker,
    ];

    /// The role as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Engineer => "engineer",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }

    /// Parses the stored form of a role; `None` if there is no such role.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Whether the role grants the permission.
    pub const fn has_permission(self, permission: Permission) -> bool {
        match permission {
            Permission::Read => !matches!(self, Self::Worker),
            Permission::Operate => matches!(self, Self::Operator | Self::Engineer | Self::Admin),
            Permission::Build => matches!(self, Self::Engineer | Self::Admin),
            Permission::Work => matches!(self, Self::Worker | Self::Admin),
            Permission::Administer => matches!(self, Self::Admin),
        }
    }
}

/// Request to create a token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// The name of the token, unique in the scope; 1 to 100 characters.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// The role of the token.
    pub role: TokenRole,
    /// When the token expires (RFC 3339); default: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// A token that was created. Its secret is returned only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateTokenResponse {
    /// The name of the token.
    pub name: String,
    /// The secret to send as bearer token.
    pub token: String,
}

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenSummary {
    /// The name of the token.
    pub name: String,
    /// The role of the token.
    pub role: TokenRole,
    /// When the token was created (RFC 3339).
    pub created_at: String,
    /// When the token expires (RFC 3339); absent if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// The tokens of a scope, without their secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// All tokens of the scope.
    pub tokens: Vec<TokenSummary>,
}
