//! Workers of the simulated world: they claim tasks, and perform them, lose them, give them back or come too late.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_engine::client::{Client, Refused, Scope};
use onward_engine::offers::{Offers, Seat, Waiting};
use onward_engine::shard::{AttemptId, By, End, Input};
use onward_engine::work::{self, Claim, Held};
use onward_journal::{Delivery, Event, Text, Timestamp};
use onward_store::conformance::Draw;
use onward_store::tables::Task;
use onward_store::{Clock as _, Error, Store};

use crate::Sim;
use crate::now::now;
use crate::scripts::perform;

/// How long a worker may go without a sign of life.
const LEASE_MS: u32 = 2_000;

/// What workers will do.
pub(crate) enum Chore {
    /// Ask for tasks, and again later.
    Ask,
    /// Look for workers that are lost, and again later.
    Expire,
    /// Show a sign of life, and go on.
    Beat(Held),
    /// Perform a task and say so.
    End(Held),
    /// Say again that a task was performed, having heard nothing.
    Repeat(Held),
    /// Give a task back.
    GiveBack(AttemptId, Text),
}

/// What goes on beside the nodes.
pub(crate) struct Workers {
    chores: Vec<(Timestamp, Chore)>,
    /// Who waits for tasks.
    pub(crate) offers: Arc<Offers>,
    waiting: Waiting,
    pub(crate) given: u32,
    pub(crate) reported: u32,
}

impl Workers {
    pub(crate) fn new(at: Timestamp) -> Self {
        let offers: Arc<Offers> = Arc::default();
        let owner = "acme|shop|prod".into();
        let waiting = offers.wait(&owner, &claim());
        let chores = vec![(at, Chore::Ask), (at, Chore::Ask), (at, Chore::Expire)];
        Self { chores, offers, waiting, given: 0, reported: 0 }
    }

    /// When something is to be done next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.chores.iter().map(|(at, _)| *at).min()
    }
}

fn claim() -> Claim {
    let functions = vec!["far".into(), "far_once".into()];
    Claim { worker: "anna".into(), functions, most: 2, lease_ms: LEASE_MS }
}

fn client(store: Arc<dyn Store>) -> Result<Client, Error> {
    let scope = Scope {
        tenant: "acme".parse().map_err(Error::corrupt)?,
        project: "shop".parse().map_err(Error::corrupt)?,
        environment: "prod".parse().map_err(Error::corrupt)?,
    };
    Ok(Client::new(store, scope))
}

fn end(client: &Client, held: &Held) -> Result<(), Refused> {
    let result = perform(&held.function, &held.input, held.id.attempt);
    match now(client.end_task(held.id, &held.claim, result)) {
        Ok(()) | Err(Refused::LeaseLost) => Ok(()),
        Err(other) => Err(other),
    }
}

impl Sim {
    /// Does what workers have to do by now.
    pub(crate) fn work(&mut self) -> Result<(), String> {
        let time = self.clock.now();
        while let Some(place) = self.workers.chores.iter().position(|(at, _)| *at <= time) {
            let chore = self.workers.chores.swap_remove(place).1;
            self.chore(chore, time).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn chore(&mut self, chore: Chore, time: Timestamp) -> Result<(), Refused> {
        let client = client(Arc::clone(&self.store) as Arc<dyn Store>)?;
        match chore {
            Chore::Ask => {
                let mut held = self.workers.waiting.take();
                held.extend(now(client.claim(&claim(), Duration::ZERO, pending()))?);
                for held in held {
                    self.plan(held, time);
                }
                self.workers.waiting.open(self.draw.below(3) as usize);
                self.later(time, 300, Chore::Ask);
            }
            Chore::Expire => {
                now(work::expire(&*self.store, time))?;
                self.later(time, 1_000, Chore::Expire);
            }
            Chore::Beat(held) => {
                if now(client.go_on(held.id, &held.claim)).is_ok() {
                    self.plan(held, time);
                }
            }
            Chore::End(held) => {
                self.perform_far(&held);
                match self.nodes.keys().copied().next_back() {
                    // The node may have lost the shard, and lose the report.
                    Some(node) if self.draw.percent(50) => self.report(&client, node, held, time)?,
                    _ => end(&client, &held)?,
                }
            }
            Chore::Repeat(held) => end(&client, &held)?,
            Chore::GiveBack(id, claim) => match now(client.give_back(id, &claim)) {
                Ok(()) | Err(Refused::LeaseLost) => {}
                Err(other) => return Err(other),
            },
        }
        Ok(())
    }

    /// Tells a node directly how a task ended. Whoever is not answered in time goes through the store.
    fn report(&mut self, client: &Client, node: u32, held: Held, time: Timestamp) -> Result<(), Refused> {
        let stored = client.tasks(None, 1_000);
        let is_held = |row: &Task| work::id_of(row) == held.id && row.claim.as_deref() == Some(&*held.claim);
        if !now(stored)?.iter().any(is_held) {
            return Ok(());
        }
        let result = perform(&held.function, &held.input, held.id.attempt);
        self.tell(node, Input::Ended(vec![End { attempt: held.id, by: By::Worker, result }]));
        if self.draw.percent(50) {
            self.later(time, 500, Chore::Repeat(held));
        }
        Ok(())
    }

    /// A task that was stored as a worker's.
    pub(crate) fn give(&mut self, seat: Seat, held: Held) {
        self.workers.given += 1;
        let its = (held.id.promise(), held.id.attempt);
        if !self.is_started(held.id.execution, &its) {
            self.hasty.push(format!("{} was given away before its start was durable", its.0));
        }
        if seat.give(held).is_err() {
            self.hasty.push("somebody is gone who is not".to_owned());
        }
    }

    /// Tasks that may be held by nobody.
    pub(crate) fn take_back(&mut self, claims: Vec<(AttemptId, Text)>) {
        for (id, claim) in claims {
            if self.draw.percent(50) {
                self.later(self.clock.now(), 500, Chore::GiveBack(id, claim));
            }
        }
    }

    /// What a worker was told of is recorded.
    pub(crate) fn expect_ended(&mut self, id: AttemptId) {
        self.workers.reported += 1;
        let its = (id.promise(), id.attempt);
        let is_end = |event: &Event| matches!(event, Event::InvokeCompleted { promise_id, attempt, .. } if (promise_id, *attempt) == (&its.0, its.1));
        let is_retry = |event: &Event| matches!(event, Event::InvokeRetrying { promise_id, failed_attempt, .. } if (promise_id, *failed_attempt) == (&its.0, its.1));
        let events = self.events(id.execution).unwrap_or_default();
        if !events.iter().any(|recorded| is_end(&recorded.event) || is_retry(&recorded.event)) {
            self.hasty.push(format!("the end of {} was told before it was durable", its.0));
        }
    }

    /// What becomes of a task that a worker has.
    fn plan(&mut self, held: Held, time: Timestamp) {
        match self.draw.below(100) {
            0..60 => self.later(time, 500, Chore::End(held)),
            // It comes when its time is over, or about to be.
            60..70 => self.later(time.plus_ms(u64::from(LEASE_MS) - 500), 3_000, Chore::End(held)),
            70..80 => self.later(time, u64::from(LEASE_MS) - 1, Chore::Beat(held)),
            80..88 => self.later(time, 100, Chore::GiveBack(held.id, held.claim)),
            // Its worker dies after it was done, or before.
            88..94 => self.perform_far(&held),
            _ => {}
        }
    }

    fn perform_far(&mut self, held: &Held) {
        *self.performed.entry((held.id, held.delivery == Delivery::AtMostOnce)).or_default() += 1;
    }

    fn later(&mut self, from: Timestamp, spread_ms: u64, chore: Chore) {
        let draw: &mut Draw = &mut self.draw;
        let at = from.plus_ms(1 + draw.below(spread_ms));
        self.workers.chores.push((at, chore));
    }
}
