//! The limits and checks that a store enforces on each call.

/// How a store treats an event whose idempotency key does not match its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IdempotencyKeyCheck {
    /// Stores the event without computing the expected key.
    Off,
    /// Stores the event and logs a warning.
    Warn,
    /// Rejects the event (default).
    #[default]
    Reject,
}

/// The limits and checks that a store enforces, independent of its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorePolicy {
    /// How to treat an event whose idempotency key does not match its fields.
    pub key_check: IdempotencyKeyCheck,
    /// Whether idempotency keys of contract v1 are also accepted; default: false. Only for
    /// importing logs written under v1.
    pub accept_v1_keys: bool,
    /// Size limits of one call.
    pub limits: StoreLimits,
}

/// Size limits of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreLimits {
    /// Maximum bytes of the payload and unknown members of one run event; default: 1 MiB.
    pub event_bytes_max: usize,
    /// Maximum bytes of the records of one journal append, and of one row; default: 16 MiB.
    pub record_bytes_max: usize,
    /// Maximum number of fences, journal appends, row changes, reader moves and run events in one
    /// commit, each; default: 100,000.
    pub changes_max: usize,
    /// Maximum number of events or rows that one read returns; default: 10,000.
    pub page_max: usize,
    /// Maximum bytes of the records that one read of a journal returns, unless the first chunk
    /// alone has more; default: 8 MiB.
    pub journal_page_bytes_max: usize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            event_bytes_max: 1 << 20,
            record_bytes_max: 16 << 20,
            changes_max: 100_000,
            page_max: 10_000,
            journal_page_bytes_max: 8 << 20,
        }
    }
}
