//! The execution contract of campaigns, as whoever has the database sees it: rows that must be
//! taken, rows that must not, and the query that traces a campaign.

/// Traces a campaign: its runs, their jobs and items.
pub(crate) const TRACE: &str = "SELECT 
  cr.id as run_id, cr.status as run_status,
  jq.id as job_id, jq.status as job_status, jq.attempts,
  co.id as outbox_id, co.status as outbox_status, co.provider_message_id
FROM campaign_runs cr
JOIN job_queue jq ON jq.run_id = cr.id
LEFT JOIN channel_outbox co ON co.run_id = cr.id
WHERE cr.campaign_id = 'CAMPAIGN_UUID'
ORDER BY cr.created_at DESC, jq.created_at, co.created_at;";

/// A campaign run, its job and an item that was sent, in a database that writes the time so.
pub(crate) fn rows(now: &str) -> [String; 3] {
    [
        format!(
            "INSERT INTO campaign_runs (id, campaign_id, tenant_id, workspace_id, ordinal, channel, status, control, document, \
             audience_id, audience_digest, items, jobs, scheduled_for, asset, wake_at, created_at, version) \
             VALUES ('run', 'CAMPAIGN_UUID', 't', 'w', 1, 'email', 'queued', 'active', '{{}}', 'a', 'd', 1, 1, {now}, 'v1', {now}, {now}, 1)"
        ),
        format!(
            "INSERT INTO job_queue (id, run_id, tenant_id, workspace_id, job_type, status, attempts, run_after, lock_epoch, \
             number, items, served, failed, skipped, in_doubt, doubt_since, created_at, version) \
             VALUES ('run.0', 'run', 't', 'w', 'email_send_batch', 'queued', 0, {now}, 0, 0, 1, 0, 0, 0, 0, {now}, {now}, 1)"
        ),
        item("item", Some("key"), "sent", false, now),
    ]
}

/// An item.
fn item(id: &str, key: Option<&str>, status: &str, skipped: bool, now: &str) -> String {
    let key = key.map_or_else(|| "NULL".to_owned(), |key| format!("'{key}'"));
    format!(
        "INSERT INTO channel_outbox (id, run_id, job_id, tenant_id, workspace_id, channel, provider, recipient_id, \
         recipient_address, idempotency_key, status, skipped, calls, provider_message_id, created_at, version) \
         VALUES ('{id}', 'run', 'run.0', 't', 'w', 'email', 'smtp', 'ada', 'ada@example.org', {key}, '{status}', {skipped}, \
         1, 'm-1', {now}, 1)"
    )
}

/// Rows that break the contract beside those of [`rows`], and what is wrong with each.
pub(crate) fn broken(now: &str) -> Vec<(String, String)> {
    let mut broken = vec![
        (
            "a key that is missing".to_owned(),
            item("other", None, "queued", false, now),
        ),
        (
            "a key that is taken".to_owned(),
            item("other", Some("key"), "queued", false, now),
        ),
    ];
    for status in [
        "delivered",
        "",
        "Queued",
        "partial",
        "dead",
        "running",
        "locked",
    ] {
        broken.push((
            format!("the status {status}"),
            item("other", Some("other"), status, false, now),
        ));
    }
    for status in ["queued", "sent", "called", "posted", "failed"] {
        broken.push((
            format!("skipped, and {status}"),
            item("other", Some("other"), status, true, now),
        ));
    }
    let [run, job, _] = rows(now);
    let run = run.replace("'run'", "'other'");
    broken.push(("two first runs of a campaign".to_owned(), run.clone()));
    for status in ["sent", "locked", "cancelled", "paused", ""] {
        let run = run
            .replace("'w', 1,", "'w', 2,")
            .replace("'queued'", &format!("'{status}'"));
        broken.push((format!("the status {status} of a run"), run));
    }
    for status in ["partial", "running", "sent", "paused", "locked", ""] {
        // One that is locked has a token.
        let job = job
            .replace("'run.0'", "'other'")
            .replace("'queued'", &format!("'{status}'"));
        broken.push((format!("the status {status} of a job"), job));
    }
    broken
}

/// Rows that keep the contract beside those of [`rows`].
pub(crate) fn sound(now: &str) -> Vec<String> {
    ["queued", "sent", "called", "posted", "failed", "skipped"]
        .iter()
        .map(|status| item(status, Some(status), status, *status == "skipped", now))
        .collect()
}
