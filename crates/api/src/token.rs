//! Tokens, and what they allow.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum TokenRole {
    /// Look.
    Viewer,
    /// Look, start, signal and cancel; control campaigns and settle what is in doubt.
    Operator,
    /// The same, deploy components and campaigns, and append run events.
    Engineer,
    /// Everything.
    Admin,
    /// Perform tasks, and nothing else.
    Worker,
}

/// Something that is not allowed to everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Look.
    Read,
    /// Start, signal and cancel executions; control campaigns.
    Operate,
    /// Deploy components and campaigns, append run events.
    Build,
    /// Perform tasks.
    Work,
    /// Give and take tokens, look at the store as a whole.
    Administer,
}

impl TokenRole {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::Viewer,
        Self::Operator,
        Self::Engineer,
        Self::Admin,
        Self::Worker,
    ];

    /// As it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Engineer => "engineer",
            Self::Admin => "admin",
            Self::Worker => "worker",
        }
    }

    /// The role that is stored so.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Whether it allows something.
    pub const fn has_permission(self, deed: Permission) -> bool {
        match deed {
            Permission::Read => !matches!(self, Self::Worker),
            Permission::Operate => matches!(self, Self::Operator | Self::Engineer | Self::Admin),
            Permission::Build => matches!(self, Self::Engineer | Self::Admin),
            Permission::Work => matches!(self, Self::Worker | Self::Admin),
            Permission::Administer => matches!(self, Self::Admin),
        }
    }
}

/// A token to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTokenRequest {
    /// What people call it.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// What it allows.
    pub role: TokenRole,
    /// Until when; for ever unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// A token that was made. It is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreateTokenResponse {
    /// What people call it.
    pub name: String,
    /// What it reads.
    pub token: String,
}

/// A token, without what it reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenSummary {
    /// What people call it.
    pub name: String,
    /// What it allows.
    pub role: TokenRole,
    /// Since when.
    pub created_at: String,
    /// Until when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// Tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// All of a scope.
    pub tokens: Vec<TokenSummary>,
}
