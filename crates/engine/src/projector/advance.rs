//! One run: from where its snapshot stands to the end of its log.

use onward_journal::Timestamp;
use onward_runs::{Gap, RunId, RunSeq, RunSnapshot};
use onward_store::tables::Snapshot;
use onward_store::{
    Change, Commit, Error, Field as _, Key, Kind, Move, Outcome, Page, Reader, Records as _, RunHead, Scan, Store,
};

use crate::projector::Holes;
use crate::projector::follow::{Follow, OnGap};
use crate::{Alarm, Code, Severity};

/// What became of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Advanced {
    /// Events that went into the snapshot.
    pub events: u64,
    /// How long the first of them had waited, in milliseconds.
    pub lag_ms: u64,
    /// Whether it waits for another pass.
    pub stale: bool,
    /// Whether reading it again can only help once the log is another one.
    pub stuck: bool,
}

/// A snapshot as it is stored, with what is needed to replace it.
struct Kept {
    row: Option<(Snapshot, u64)>,
    position: RunSeq,
}

impl Kept {
    async fn load(store: &dyn Store, head: &RunHead) -> Result<Self, Error> {
        let row = store.get(Key(vec![head.run_id.to_value()])).await?;
        Ok(Self { row, position: head.projected_seq })
    }

    fn is_stale(&self) -> bool {
        self.row.as_ref().is_some_and(|(row, _)| &*row.condition == STALE)
    }

    /// Where to go on from; `None` when the stored snapshot is of no use, which only costs reading the log again.
    fn follow(&self, run: &RunId) -> Option<Follow> {
        let Some((row, _)) = &self.row else {
            let fresh = RunSnapshot::new(run.clone());
            return (self.position == RunSeq::ZERO).then_some(Follow { snapshot: fresh, holes: Holes::default() });
        };
        let snapshot = row.decode().ok().filter(|snapshot| snapshot.last_event_seq == self.position)?;
        Some(Follow { snapshot, holes: Holes::parse(row.holes.as_ref()) })
    }
}

const STALE: &str = "STALE";

/// Brings a run up to date, page by page.
pub(super) async fn to_the_end(store: &dyn Store, head: &RunHead, page: usize) -> Result<Advanced, Error> {
    let mut kept = Kept::load(store, head).await?;
    let Some(mut follow) = kept.follow(&head.run_id) else {
        return resync_full(store, head, kept, page).await;
    };
    let mut advanced = Advanced::default();
    let gap = loop {
        let events = store.run_events(&head.run_id, Page { after: follow.watermark(), limit: page }).await?;
        let Some(first) = events.first() else {
            break missing_end(&follow, head);
        };
        let now = store.now().await?;
        advanced.lag_ms = advanced.lag_ms.max(ms_between(first.persisted_at, now));
        let (before, had_inconsistencies) = (follow.watermark(), follow.snapshot.inconsistencies.is_some());
        let (next, gap) = follow.take(&events, OnGap::Halt);
        advanced.events += next.watermark().get() - before.get();
        follow = next;
        if follow.watermark() > before {
            kept = save(store, head, kept, &follow, Save { now, had_inconsistencies }).await?;
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
            Ok(Advanced { stale: true, ..advanced })
        }
    }
}

/// What the head of the run promises and the log does not hold.
fn missing_end(follow: &Follow, head: &RunHead) -> Option<Gap> {
    (follow.watermark() < head.last_seq).then(|| Gap { after: follow.watermark(), before: head.last_seq.next() })
}

/// 0 if `then` is not before `now`.
pub(super) fn ms_between(then: Timestamp, now: Timestamp) -> u64 {
    let us = now.as_micros().saturating_sub(then.as_micros());
    u64::try_from(us / 1_000).unwrap_or(0)
}

/// Reads the whole log and replaces the snapshot. What is missing from a whole committed read is accepted as missing.
async fn resync_full(store: &dyn Store, head: &RunHead, kept: Kept, page: usize) -> Result<Advanced, Error> {
    let had = kept.row.as_ref().and_then(|(row, _)| row.decode().ok()).is_some_and(|it| it.inconsistencies.is_some());
    let mut follow = Follow { snapshot: RunSnapshot::new(head.run_id.clone()), holes: Holes::default() };
    let mut advanced = Advanced::default();
    loop {
        let events = store.run_events(&head.run_id, Page { after: follow.watermark(), limit: page }).await?;
        if events.is_empty() {
            break;
        }
        advanced.events += events.len() as u64;
        follow = follow.take(&events, OnGap::Accept).0;
    }
    let now = store.now().await?;
    if follow.watermark() < kept.position || (follow.watermark() == kept.position && head.last_seq > kept.position) {
        let message = format!(
            "the whole log of the run ends at event {}, its snapshot stands at {} and its head at {}: events are gone",
            follow.watermark(),
            kept.position,
            head.last_seq
        );
        gap_alarm(head, Severity::P1, format!("stuck at {}", kept.position), message).raise(store, now).await?;
        return Ok(Advanced { stale: true, stuck: true, ..advanced });
    }
    save(store, head, kept, &follow, Save { now, had_inconsistencies: had }).await?;
    Ok(advanced)
}

struct Save {
    now: Timestamp,
    had_inconsistencies: bool,
}

/// The snapshot and the watermark, together; an event that is not allowed is reported the first time only.
async fn save(store: &dyn Store, head: &RunHead, kept: Kept, follow: &Follow, save: Save) -> Result<Kept, Error> {
    let Save { now, had_inconsistencies } = save;
    let inconsistencies = follow.snapshot.inconsistencies.as_ref();
    let condition = if inconsistencies.is_some() { "INCONSISTENT" } else { "CURRENT" };
    let snapshot = serde_json::to_string(&follow.snapshot).map_err(Error::corrupt)?;
    let row = Snapshot {
        run_id: head.run_id.clone(),
        last_event_seq: follow.watermark(),
        condition: condition.into(),
        is_whole: follow.holes.is_empty(),
        holes: follow.holes.to_text(),
        snapshot: snapshot.into(),
        projected_at: now,
    };
    let step =
        Move { run: head.run_id.clone(), reader: Reader::Projector, from: kept.position, to: follow.watermark() };
    let mut commit = Commit::new().advance(step);
    commit
        .changes
        .push(kept.row.as_ref().map_or_else(|| Change::insert(&row), |(_, version)| Change::update(&row, *version)));
    let alarm = inconsistencies.filter(|_| !had_inconsistencies).map(|found| Alarm {
        code: Code::InvalidTransition,
        severity: Severity::P2,
        subject: head.run_id.to_string().into(),
        occasion: "first".into(),
        message: format!(
            "event {} is not allowed where the run stood, and was ignored: {}",
            found.first.run_seq, found.first.message
        )
        .into(),
    });
    commit.changes.extend(alarm.as_ref().map(|alarm| alarm.change(now)));
    let receipt = store.commit(commit).await?;
    if let (Some(alarm), Some(Outcome::Made)) = (alarm, receipt.changes.get(1)) {
        alarm.announce();
    }
    let version = kept.row.map_or(0, |(_, version)| version) + 1;
    Ok(Kept { position: row.last_event_seq, row: Some((row, version)) })
}

/// The first sight of a gap: the snapshot stays as it is and says so.
async fn mark_stale(store: &dyn Store, head: &RunHead, kept: &Kept, gap: Gap) -> Result<(), Error> {
    let now = store.now().await?;
    let message = format!(
        "events {} to {} are missing from the log; the snapshot stands still until it has been read again",
        gap.after.next(),
        gap.before.get() - 1
    );
    let alarm = gap_alarm(head, Severity::P2, format!("after {}", gap.after), message);
    let mut commit = Commit::new();
    commit.changes.push(match &kept.row {
        Some((row, version)) => Change::update(&Snapshot { condition: STALE.into(), ..row.clone() }, *version),
        None => Change::insert(&Snapshot {
            run_id: head.run_id.clone(),
            last_event_seq: RunSeq::ZERO,
            condition: STALE.into(),
            is_whole: true,
            holes: None,
            snapshot: serde_json::to_string(&RunSnapshot::new(head.run_id.clone())).map_err(Error::corrupt)?.into(),
            projected_at: now,
        }),
    });
    commit.changes.push(alarm.change(now));
    let receipt = store.commit(commit).await?;
    if receipt.changes.get(1) == Some(&Outcome::Made) {
        alarm.announce();
    }
    Ok(())
}

fn gap_alarm(head: &RunHead, severity: Severity, occasion: String, message: String) -> Alarm {
    Alarm {
        code: Code::ProjectorGapDetected,
        severity,
        subject: head.run_id.to_string().into(),
        occasion: occasion.into(),
        message: message.into(),
    }
}

/// Projects anew every run in which events have turned up that were missing; returns how many.
pub(super) async fn recheck(store: &dyn Store, page: usize) -> Result<usize, Error> {
    let mut filled = 0;
    let mut scan = Scan::by::<Snapshot>(Snapshot::BY_WHOLENESS).equal(&false);
    loop {
        let rows: Vec<(Snapshot, u64)> = store.list(scan.clone()).await?;
        let Some((last, _)) = rows.last() else { return Ok(filled) };
        scan = scan.after(last);
        for (row, _) in &rows {
            let Some(head) = store.run(&row.run_id).await? else { continue };
            if has_filled(store, &row.run_id, &Holes::parse(row.holes.as_ref())).await? {
                let kept = Kept::load(store, &head).await?;
                match resync_full(store, &head, kept, page).await {
                    Ok(_) => filled += 1,
                    Err(error) if error.kind() == Kind::Conflict => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

async fn has_filled(store: &dyn Store, run: &RunId, holes: &Holes) -> Result<bool, Error> {
    for (first, last) in holes.ranges() {
        let after = RunSeq::new(first.get() - 1).unwrap_or(RunSeq::ZERO);
        let found = store.run_events(run, Page { after, limit: 1 }).await?;
        if found.first().is_some_and(|event| event.run_seq <= last) {
            return Ok(true);
        }
    }
    Ok(false)
}
