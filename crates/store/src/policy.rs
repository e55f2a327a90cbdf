//! What a store accepts.

/// What happens to an event whose idempotency key is not the one its fields give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdempotencyKeyCheck {
    /// It is stored as it is; the key is not computed.
    Off,
    /// It is stored, and a warning is logged.
    Warn,
    /// It is refused.
    #[default]
    Reject,
}

/// What a store accepts, whichever database it keeps it in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorePolicy {
    /// What happens to a wrong idempotency key.
    pub key_check: IdempotencyKeyCheck,
    /// Whether keys of contract v1 are right as well. Only for importing logs of that time.
    pub accept_v1_keys: bool,
    /// How much one call may carry.
    pub limits: StoreLimits,
}

/// How much one call may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Bytes of payload and unknown members of one run event.
    pub event_bytes_max: usize,
    /// Bytes of the records of one journal append, and of one row.
    pub record_bytes_max: usize,
    /// Journal appends, changes of rows, moves and run events in one commit, each.
    pub changes_max: usize,
    /// Events or rows in one answer.
    pub page_max: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            event_bytes_max: 1 << 20,
            record_bytes_max: 16 << 20,
            changes_max: 100_000,
            page_max: 10_000,
        }
    }
}
