//! Advances the snapshot of one run from its watermark to the end of its log.

use onward_base::Timestamp;
use onward_runs::{RunEventGap, RunId, RunSeq, RunSnapshot};
use onward_store::tables::{AlertCode, AlertSeverity, RunSnapshotRow, SnapshotCondition};
use onward_store::{
    ChangeOutcome, ColumnCodec as _, Commit, Error, ReaderAdvance, RecordReader as _, RowChange,
    RowKey, RunEventQuery, RunEventReader, RunHead, Store, StoreErrorKind, TableScan,
};

use crate::PendingAlert;
use crate::projector::MissingRanges;
use crate::projector::snapshot_cursor::{GapPolicy, SnapshotCursor};

/// Result of advancing one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunAdvance {
    /// Number of events that were reduced into the snapshot.
    pub events: u64,
    /// Longest time that the first event of a page had waited, in milliseconds.
    pub lag_ms: u64,
    /// Whether the run needs another pass because of a gap.
    pub stale: bool,
    /// Whether another read is useless until the log changes.
    pub stuck: bool,
}

/// A stored snapshot, with the version and position needed to replace it.
struct ProjectedSnapshot {
    row: Option<(RunSnapshotRow, u64)>,
    position: RunSeq,
}

impl ProjectedSnapshot {
    async fn load_snapshot(store: &dyn Store, head: &RunHead) -> Result<Self, Error> {
        let row = store
            .read_record(RowKey(vec![head.run_id.to_value()]))
            .await?;
        Ok(Self {
            row,
            position: head.projected_seq,
        })
    }

    fn is_stale(&self) -> bool {
        self.row
            .as_ref()
            .is_some_and(|(row, _)| row.condition == SnapshotCondition::Stale)
    }

    /// Where to continue; `None` if the stored snapshot is unusable, which only costs reading the
    /// whole log again.
    fn to_cursor(&self, run: &RunId) -> Option<SnapshotCursor> {
        let Some((row, _)) = &self.row else {
            let fresh = RunSnapshot::new(run.clone());
            return (self.position == RunSeq::ZERO).then_some(SnapshotCursor {
                snapshot: fresh,
                missing_ranges: MissingRanges::default(),
            });
        };
        let snapshot = row
            .decode_snapshot()
            .ok()
            .filter(|snapshot| snapshot.last_event_seq == self.position)?;
        Some(SnapshotCursor {
            snapshot,
            missing_ranges: MissingRanges::parse(row.holes.as_ref()).ok()?,
        })
    }
}

/// Brings a run up to date, page by page.
pub(super) async fn advance_run(
    store: &dyn Store,
    head: &RunHead,
    page: usize,
) -> Result<RunAdvance, Error> {
    let mut kept = ProjectedSnapshot::load_snapshot(store, head).await?;
    let Some(mut follow) = kept.to_cursor(&head.run_id) else {
        return resync_full(store, head, kept, page).await;
    };
    let mut advanced = RunAdvance::default();
    let gap = loop {
        let events = store
            .read_run_events(
                &head.run_id,
                RunEventQuery {
                    after: follow.watermark(),
                    limit: page,
                },
            )
            .await?;
        let Some(first) = events.first() else {
            break missing_tail(&follow, head);
        };
        let now = store.now().await?;
        advanced.lag_ms = advanced.lag_ms.max(ms_between(first.persisted_at, now));
        let (before, had_inconsistencies) = (
            follow.watermark(),
            follow.snapshot.inconsistencies.is_some(),
        );
        let (next, gap) = follow.apply_events(&events, GapPolicy::Stop);
        advanced.events += next.watermark().as_u64() - before.as_u64();
        follow = next;
        if follow.watermark() > before {
            kept = save_snapshot(
                store,
                head,
                kept,
                &follow,
                SaveContext {
                    now,
                    had_inconsistencies,
                },
            )
            .await?;
        }
        if gap.is_some() {
            break gap;
        }
    };
    match gap {
        None => Ok(advanced),
        Some(_) if kept.is_stale() => resync_full(store, head, kept, page).await,
        Some(gap) => {
            mark_stale(store, head, &kept, gap).await?;
            Ok(RunAdvance {
                stale: true,
                ..advanced
            })
        }
    }
}

/// The gap between the end of the log and the last event that the run head names, if any.
fn missing_tail(follow: &SnapshotCursor, head: &RunHead) -> Option<RunEventGap> {
    (follow.watermark() < head.last_seq).then(|| RunEventGap {
        after_seq: follow.watermark(),
        before_seq: head.last_seq.next_seq(),
    })
}

/// Milliseconds from `then` to `now`; 0 if `then` is not before `now`.
pub(super) fn ms_between(then: Timestamp, now: Timestamp) -> u64 {
    let us = now.as_micros().saturating_sub(then.as_micros());
    u64::try_from(us / 1_000).unwrap_or(0)
}

/// Reads the whole log and replaces the snapshot. Events that are missing from a full committed
/// read are accepted as missing.
async fn resync_full(
    store: &dyn Store,
    head: &RunHead,
    kept: ProjectedSnapshot,
    page: usize,
) -> Result<RunAdvance, Error> {
    let had = kept
        .row
        .as_ref()
        .and_then(|(row, _)| row.decode_snapshot().ok())
        .is_some_and(|it| it.inconsistencies.is_some());
    let mut follow = SnapshotCursor {
        snapshot: RunSnapshot::new(head.run_id.clone()),
        missing_ranges: MissingRanges::default(),
    };
    let mut advanced = RunAdvance::default();
    loop {
        let events = store
            .read_run_events(
                &head.run_id,
                RunEventQuery {
                    after: follow.watermark(),
                    limit: page,
                },
            )
            .await?;
        if events.is_empty() {
            break;
        }
        advanced.events += events.len() as u64;
        follow = follow.apply_events(&events, GapPolicy::Accept).0;
    }
    let now = store.now().await?;
    if follow.watermark() < kept.position
        || (follow.watermark() == kept.position && head.last_seq > kept.position)
    {
        let message = format!(
            "the log of the run ends at event {}, but its snapshot is at {} and its head at {}: events are missing",
            follow.watermark(),
            kept.position,
            head.last_seq
        );
        gap_alert(
            head,
            AlertSeverity::P1,
            format!("stuck at {}", kept.position),
            message,
        )
        .raise_once(store, now)
        .await?;
        return Ok(RunAdvance {
            stale: true,
            stuck: true,
            ..advanced
        });
    }
    save_snapshot(
        store,
        head,
        kept,
        &follow,
        SaveContext {
            now,
            had_inconsistencies: had,
        },
    )
    .await?;
    Ok(advanced)
}

struct SaveContext {
    now: Timestamp,
    had_inconsistencies: bool,
}

/// Commits the snapshot and the watermark together. An alert about an event that is not allowed is
/// raised only the first time.
async fn save_snapshot(
    store: &dyn Store,
    head: &RunHead,
    kept: ProjectedSnapshot,
    follow: &SnapshotCursor,
    save: SaveContext,
) -> Result<ProjectedSnapshot, Error> {
    let SaveContext {
        now,
        had_inconsistencies,
    } = save;
    let inconsistencies = follow.snapshot.inconsistencies.as_ref();
    let condition = if inconsistencies.is_some() {
        SnapshotCondition::Inconsistent
    } else {
        SnapshotCondition::Current
    };
    let snapshot = serde_json::to_string(&follow.snapshot).map_err(Error::corrupt)?;
    let row = RunSnapshotRow {
        run_id: head.run_id.clone(),
        last_event_seq: follow.watermark(),
        condition,
        is_whole: follow.missing_ranges.is_empty(),
        holes: follow.missing_ranges.to_text(),
        snapshot: snapshot.into(),
        projected_at: now,
    };
    let step = ReaderAdvance {
        run: head.run_id.clone(),
        reader: RunEventReader::Projector,
        from: kept.position,
        to: follow.watermark(),
    };
    let mut commit = Commit::new().advance_reader(step);
    commit.changes.push(kept.row.as_ref().map_or_else(
        || RowChange::insert(&row),
        |(_, version)| RowChange::update(&row, *version),
    ));
    let alert = inconsistencies
        .filter(|_| !had_inconsistencies)
        .map(|found| PendingAlert {
            code: AlertCode::InvalidTransition,
            severity: AlertSeverity::P2,
            subject: head.run_id.to_string().into(),
            dedup_key: "first".into(),
            message: format!(
                "event {} is not legal in the state of the run and was ignored: {}",
                found.first.run_seq, found.first.message
            )
            .into(),
        });
    commit
        .changes
        .extend(alert.as_ref().map(|alert| alert.insert_change(now)));
    let receipt = store.commit(commit).await?;
    if let (Some(alert), Some(ChangeOutcome::Applied)) = (alert, receipt.changes.get(1)) {
        alert.log_and_count();
    }
    let version = kept.row.map_or(0, |(_, version)| version) + 1;
    Ok(ProjectedSnapshot {
        position: row.last_event_seq,
        row: Some((row, version)),
    })
}

/// Handles the first detection of a gap: the snapshot is left as it is and marked stale, and an
/// alert is raised.
async fn mark_stale(
    store: &dyn Store,
    head: &RunHead,
    kept: &ProjectedSnapshot,
    gap: RunEventGap,
) -> Result<(), Error> {
    let now = store.now().await?;
    let message = format!(
        "events {} to {} are missing from the log; the snapshot does not advance until they are found or accepted as missing",
        gap.after_seq.next_seq(),
        gap.before_seq.as_u64() - 1
    );
    let alert = gap_alert(
        head,
        AlertSeverity::P2,
        format!("after {}", gap.after_seq),
        message,
    );
    let mut commit = Commit::new();
    commit.changes.push(match &kept.row {
        Some((row, version)) => RowChange::update(
            &RunSnapshotRow {
                condition: SnapshotCondition::Stale,
                ..row.clone()
            },
            *version,
        ),
        None => RowChange::insert(&RunSnapshotRow {
            run_id: head.run_id.clone(),
            last_event_seq: RunSeq::ZERO,
            condition: SnapshotCondition::Stale,
            is_whole: true,
            holes: None,
            snapshot: serde_json::to_string(&RunSnapshot::new(head.run_id.clone()))
                .map_err(Error::corrupt)?
                .into(),
            projected_at: now,
        }),
    });
    commit.changes.push(alert.insert_change(now));
    let receipt = store.commit(commit).await?;
    if receipt.changes.get(1) == Some(&ChangeOutcome::Applied) {
        alert.log_and_count();
    }
    Ok(())
}

fn gap_alert(
    head: &RunHead,
    severity: AlertSeverity,
    occasion: String,
    message: String,
) -> PendingAlert {
    PendingAlert {
        code: AlertCode::ProjectorGapDetected,
        severity,
        subject: head.run_id.to_string().into(),
        dedup_key: occasion.into(),
        message: message.into(),
    }
}

/// Projects every run again in which missing events have appeared. Returns their number.
pub(super) async fn reproject_filled_gaps(store: &dyn Store, page: usize) -> Result<usize, Error> {
    let mut filled = 0;
    let mut scan =
        TableScan::by_index::<RunSnapshotRow>(RunSnapshotRow::BY_WHOLENESS).where_equal(&false);
    loop {
        let rows: Vec<(RunSnapshotRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = rows.last() else {
            return Ok(filled);
        };
        scan = scan.starting_after(last);
        for (row, _) in &rows {
            let Some(head) = store.read_run_head(&row.run_id).await? else {
                continue;
            };
            // Ranges that cannot be read are found again by the same reduction of the log.
            let is_outdated = match MissingRanges::parse(row.holes.as_ref()) {
                Ok(ranges) => has_filled_gap(store, &row.run_id, &ranges).await?,
                Err(_) => true,
            };
            if is_outdated {
                let kept = ProjectedSnapshot::load_snapshot(store, &head).await?;
                match resync_full(store, &head, kept, page).await {
                    Ok(_) => filled += 1,
                    Err(error) if error.kind() == StoreErrorKind::Conflict => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

async fn has_filled_gap(
    store: &dyn Store,
    run: &RunId,
    holes: &MissingRanges,
) -> Result<bool, Error> {
    for (first, last) in holes.ranges() {
        let after = RunSeq::new(first.as_u64() - 1).unwrap_or(RunSeq::ZERO);
        let found = store
            .read_run_events(run, RunEventQuery { after, limit: 1 })
            .await?;
        if found.first().is_some_and(|event| event.run_seq <= last) {
            return Ok(true);
        }
    }
    Ok(false)
}
