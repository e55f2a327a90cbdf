//! Tokens, and what they allow.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What somebody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
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
pub enum Deed {
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

impl Role {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Viewer, Self::Operator, Self::Engineer, Self::Admin, Self::Worker];

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
    pub const fn allows(self, deed: Deed) -> bool {
        match deed {
            Deed::Read => !matches!(self, Self::Worker),
            Deed::Operate => matches!(self, Self::Operator | Self::Engineer | Self::Admin),
            Deed::Build => matches!(self, Self::Engineer | Self::Admin),
            Deed::Work => matches!(self, Self::Worker | Self::Admin),
            Deed::Administer => matches!(self, Self::Admin),
        }
    }
}

/// A token to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewToken {
    /// What people call it.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// Until when; for ever unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(format = DateTime)]
    pub expires_at: Option<String>,
}

/// A token that was made. It is shown once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MadeToken {
    /// What people call it.
    pub name: String,
    /// What it reads.
    pub token: String,
}

/// A token, without what it reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenInfo {
    /// What people call it.
    pub name: String,
    /// What it allows.
    pub role: Role,
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
    pub tokens: Vec<TokenInfo>,
}
