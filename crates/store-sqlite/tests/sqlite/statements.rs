//! The execution contract of campaigns for direct clients of the database: valid rows, invalid
//! rows, and the query that traces a campaign.

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

/// Statements that insert a campaign run, its job and a sent item; `now` is the time as the
/// database writes it.
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
        item("item", Some("key"), "sent", now),
    ]
}

/// The statement that inserts an item.
fn item(id: &str, key: Option<&str>, status: &str, now: &str) -> String {
    let key = key.map_or_else(|| "NULL".to_owned(), |key| format!("'{key}'"));
    format!(
        "INSERT INTO channel_outbox (id, run_id, job_id, tenant_id, workspace_id, channel, provider, recipient_id, \
         recipient_address, idempotency_key, status, skipped, calls, provider_message_id, created_at, version) \
         VALUES ('{id}', 'run', 'run.0', 't', 'w', 'email', 'smtp', 'ada', 'ada@example.org', {key}, '{status}', false, \
         1, 'm-1', {now}, 1)"
    )
}

/// The statement that inserts an item whose flag `skipped` is set.
fn skipped_item(id: &str, key: &str, status: &str, now: &str) -> String {
    item(id, Some(key), status, now)
        .replace(&format!("'{status}', false"), &format!("'{status}', true"))
}

/// Invalid rows beside those of [`rows`], each with a description of its error.
pub(crate) fn invalid_rows(now: &str) -> Vec<(String, String)> {
    let mut invalid_rows = vec![
        (
            "a missing key".to_owned(),
            item("other", None, "queued", now),
        ),
        (
            "a duplicate key".to_owned(),
            item("other", Some("key"), "queued", now),
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
        invalid_rows.push((
            format!("the status {status}"),
            item("other", Some("other"), status, now),
        ));
    }
    for status in ["queued", "sent", "called", "posted", "failed"] {
        invalid_rows.push((
            format!("the flag `skipped` with the status {status}"),
            skipped_item("other", "other", status, now),
        ));
    }
    let [run, job, _] = rows(now);
    let run = run.replace("'run'", "'other'");
    invalid_rows.push(("two first runs of a campaign".to_owned(), run.clone()));
    for status in ["sent", "locked", "cancelled", "paused", ""] {
        let run = run
            .replace("'w', 1,", "'w', 2,")
            .replace("'queued'", &format!("'{status}'"));
        invalid_rows.push((format!("the status {status} of a run"), run));
    }
    for status in ["partial", "running", "sent", "paused", "locked", ""] {
        // A locked job must have a token.
        let job = job
            .replace("'run.0'", "'other'")
            .replace("'queued'", &format!("'{status}'"));
        invalid_rows.push((format!("the status {status} of a job"), job));
    }
    invalid_rows
}

/// Valid rows beside those of [`rows`].
pub(crate) fn valid_rows(now: &str) -> Vec<String> {
    ["queued", "sent", "called", "posted", "failed", "skipped"]
        .iter()
        .map(|status| match *status {
            "skipped" => skipped_item(status, status, status, now),
            _ => item(status, Some(status), status, now),
        })
        .collect()
}
