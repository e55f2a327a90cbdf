//! Campaigns as schema 1 stores them, and what migration 2 makes of them. Both adapters are tested
//! with the same rows.

/// A campaign document of schema 1 and the document that migration 2 makes of it.
#[derive(Debug, Clone, Copy)]
pub struct CampaignDocumentMigration {
    /// The document as schema 1 stores it.
    pub before: &'static str,
    /// The document after migration 2.
    pub after: &'static str,
}

/// Documents with every renamed key, with names that only look like one, and with content that a
/// database could alter.
pub const CAMPAIGN_DOCUMENT_MIGRATIONS: &[CampaignDocumentMigration] = &[
    CampaignDocumentMigration {
        before: r#"{"audience":{"bad_rows":"refuse","file":"people.csv"},"campaign":"spring","channel":"email","job_items":2,"provider":"mail","retries":{"attempts":10,"calls":5,"first_ms":1000,"max_ms":600000},"schedule":{"at":"2026-03-01T09:00","quiet":{"from":"21:00","until":"08:00","zone":"Europe/Berlin","zone_field":"tz"},"zone":"Europe/Berlin"},"template":{"subject":"Hi","text":"a \"quoted\" line\nand another \\ é 😀"}}"#,
        after: r#"{"audience":{"file":"people.csv","invalid_rows":"reject"},"campaign":"spring","channel":"email","job_size":2,"provider":"mail","retries":{"initial_backoff_ms":1000,"max_attempts":10,"max_backoff_ms":600000,"max_sends":5},"schedule":{"at":"2026-03-01T09:00","quiet_hours":{"from":"21:00","time_zone":"Europe/Berlin","time_zone_field":"tz","until":"08:00"},"time_zone":"Europe/Berlin"},"template":{"subject":"Hi","text":"a \"quoted\" line\nand another \\ é 😀"}}"#,
    },
    CampaignDocumentMigration {
        before: r#"{"audience":{"bad_rows":"skip"},"campaign":"calls","channel":"voice","provider":{"http":{"answers":{"busy":"status == 429","later":"status == 503","refused":"status == 400"},"batch":{"later":"l","max":20,"refused":"r"},"headers":{"calls":"1","limits":"x","zone":"y"},"limits":{"per_second":5},"look":{"nothing":"n","refused":"r","url":"http://127.0.0.1:1/"},"takes_keys_once":true,"terms":{"attempts_max":3,"calls_max":2,"looks_after_ms":5000,"window":4}}},"template":{"script":"{{ zone }} {{ calls }}"}}"#,
        after: r#"{"audience":{"invalid_rows":"skip"},"campaign":"calls","channel":"voice","provider":{"http":{"batch":{"deferred":"l","max_items":20,"rejected":"r"},"headers":{"calls":"1","limits":"x","zone":"y"},"idempotent":true,"policy":{"lookup_after_ms":5000,"window":4},"rate_limits":{"per_second":5},"responses":{"deferred":"status == 503","rejected":"status == 400","throttled":"status == 429"},"status_lookup":{"not_found":"n","rejected":"r","url":"http://127.0.0.1:1/"}}},"template":{"script":"{{ zone }} {{ calls }}"}}"#,
    },
    CampaignDocumentMigration {
        before: r#"{"campaign":"mail","provider":{"smtp":{"connections":4,"idle_ms":30000,"limits":{"per_day":9},"terms":{"window":3}}},"template":{"text":"a \u0000 b \\u0000"}}"#,
        after: r#"{"campaign":"mail","provider":{"smtp":{"idle_timeout_ms":30000,"max_connections":4,"policy":{"window":3},"rate_limits":{"per_day":9}}},"template":{"text":"a \u0000 b \\u0000"}}"#,
    },
    CampaignDocumentMigration {
        before: r#"{"campaign":"disk","provider":{"folder":{"limits":{},"path":"out","terms":{"attempts_max":1}}}}"#,
        after: r#"{"campaign":"disk","provider":{"folder":{"path":"out","policy":{},"rate_limits":{}}}}"#,
    },
    CampaignDocumentMigration {
        before: "not JSON",
        after: "not JSON",
    },
];

/// Inserts the outbox items `invalid`, `refused` and `resolved` with the reasons of schema 1. A row
/// of `campaign_runs` must exist: each database has its own form of a timestamp, which is copied.
pub const INSERT_ITEMS_OF_SCHEMA_1: &str = "
    INSERT INTO channel_outbox (
        id, run_id, job_id, tenant_id, workspace_id, channel, provider, recipient_id,
        recipient_address, idempotency_key, status, skipped, calls, reason, created_at, version
    )
    SELECT item.id, 'r', 'j', 't', 'w', 'email', 'mail', item.id, 'a@example.com', item.id,
        'failed', false, 1, item.reason, (SELECT min(created_at) FROM campaign_runs), 1
    FROM (
        SELECT 'invalid' AS id, 'unfit' AS reason
        UNION ALL SELECT 'refused', 'refused'
        UNION ALL SELECT 'resolved', 'verdict'
    ) AS item";
