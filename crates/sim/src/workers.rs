//! Workers of the simulated world: they claim tasks, and perform them, lose them, give them back or come too late.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_engine::client::{Client, Refused, Scope};
use onward_engine::work::{self, Claim, Held};
use onward_journal::{Delivery, Timestamp};
use onward_store::conformance::Draw;
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
    /// Give a task back.
    GiveBack(Held),
}

/// What goes on beside the nodes.
pub(crate) struct Workers {
    chores: Vec<(Timestamp, Chore)>,
}

impl Workers {
    pub(crate) fn new(at: Timestamp) -> Self {
        Self { chores: vec![(at, Chore::Ask), (at, Chore::Ask), (at, Chore::Expire)] }
    }

    /// When something is to be done next.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.chores.iter().map(|(at, _)| *at).min()
    }
}

fn client(store: Arc<dyn Store>) -> Result<Client, Error> {
    let scope = Scope {
        tenant: "acme".parse().map_err(Error::corrupt)?,
        project: "shop".parse().map_err(Error::corrupt)?,
        environment: "prod".parse().map_err(Error::corrupt)?,
    };
    Ok(Client::new(store, scope))
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
                let functions = vec!["far".into(), "far_once".into()];
                let claim = Claim { worker: "anna".into(), functions, most: 2, lease_ms: LEASE_MS };
                for held in now(client.claim(&claim, Duration::ZERO, pending()))? {
                    self.plan(held, time);
                }
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
                let result = perform(&held.function, &held.input, held.id.attempt);
                match now(client.end_task(held.id, &held.claim, result)) {
                    Ok(()) | Err(Refused::LeaseLost) => {}
                    Err(other) => return Err(other),
                }
            }
            Chore::GiveBack(held) => match now(client.give_back(held.id, &held.claim)) {
                Ok(()) | Err(Refused::LeaseLost) => {}
                Err(other) => return Err(other),
            },
        }
        Ok(())
    }

    /// What becomes of a task that a worker has.
    fn plan(&mut self, held: Held, time: Timestamp) {
        match self.draw.below(100) {
            0..60 => self.later(time, 500, Chore::End(held)),
            // It comes when its time is over, or about to be.
            60..70 => self.later(time.plus_ms(u64::from(LEASE_MS) - 500), 3_000, Chore::End(held)),
            70..80 => self.later(time, u64::from(LEASE_MS) - 1, Chore::Beat(held)),
            80..88 => self.later(time, 100, Chore::GiveBack(held)),
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
