//! People: they pause and cancel, say what became of items, and want things tried again, while everything fails around them.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_dispatch::Standing;
use onward_dispatcher::{Campaigns, Refused, Verdict, standing};
use onward_journal::Text;
use tokio::time::timeout;

use super::World;
use super::provider::Known;

/// What somebody does to a campaign run.
const DEEDS: u64 = 12;

impl World {
    /// Somebody wants something, and may be killed before it is done.
    pub(super) async fn somebody(&mut self) -> Result<(), String> {
        let people = Campaigns::new(std::sync::Arc::clone(&self.flaky) as _, self.campaigns.scope().clone());
        let patience = Duration::from_millis(self.chance.below(4_000));
        match self.chance.below(DEEDS) {
            0 | 1 => drop(timeout(patience, people.pause(&self.run, "sim")).await),
            2..5 => drop(timeout(patience, people.resume(&self.run, "sim")).await),
            5 if self.may_cancel && self.chance.percent(20) => {
                drop(timeout(patience, people.cancel(&self.run, "sim")).await);
            }
            6 | 7 => {
                let jobs = self.jobs().await?;
                let job = self.chance.draw().pick(&jobs).id.clone();
                if let Ok(Ok(_)) = timeout(patience, people.redrive(&job, "sim")).await {
                    self.report.redriven += 1;
                }
            }
            8..10 => self.say(&people, patience).await?,
            _ => {}
        }
        Ok(())
    }

    /// Says of something in doubt what is so, as far as that can be known.
    async fn say(&mut self, people: &Campaigns, patience: Duration) -> Result<(), String> {
        let known = self.ledger.known().clone();
        let items = self.items().await?;
        let doubts = items.iter().filter(|item| standing(item) == Standing::InDoubt);
        let doubts: Vec<_> = doubts.filter_map(|item| Some((item, truth(&known, &item.idempotency_key)?))).collect();
        let Some((item, is_taken)) = doubts.first() else { return Ok(()) };
        let verdict = match (is_taken, self.chance.percent(50)) {
            (true, _) => Verdict::Served(None),
            (false, true) => Verdict::Again,
            (false, false) => Verdict::Failed,
        };
        // Of others of its job the same may be so.
        let same = doubts.iter().filter(|(it, taken)| it.job_id == item.job_id && taken == is_taken);
        let same: Vec<String> = same.map(|(item, _)| item.id.to_string()).collect();
        let said = timeout(patience, people.settle_all(&same, &verdict, "sim", "as the provider says")).await;
        if let Ok(Ok(settled)) = said {
            let is_done = |(_, outcome): &(String, Result<_, Refused>)| outcome.is_ok();
            self.report.verdicts += u32::try_from(settled.iter().filter(|it| is_done(it)).count()).unwrap_or(u32::MAX);
        }
        Ok(())
    }
}

/// Whether the provider has taken a key; nothing while that can still change.
pub(super) fn truth(known: &BTreeMap<Text, Known>, key: &Text) -> Option<bool> {
    let it = known.get(key).copied().unwrap_or_default();
    (it.on_their_way == 0).then_some(it.taken > 0)
}
