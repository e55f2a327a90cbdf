//! The budget of one request for rendering templates: however many parts and recipients it has, all
//! of its renderings together take a limited number of steps, and end when their caller stops them.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::templates::template_error::TemplateErrorKind;

thread_local! {
    /// The budget that renderings on this thread are charged to.
    static CURRENT_BUDGET: RefCell<Option<RenderBudget>> = const { RefCell::new(None) };
}

/// Steps that all renderings of one request may take together, and when they have to stop. Clones
/// share the budget.
#[derive(Clone)]
pub struct RenderBudget(Arc<BudgetState>);

struct BudgetState {
    steps_left: AtomicU64,
    is_stopped: Box<dyn Fn() -> bool + Send + Sync>,
    is_spent: AtomicBool,
}

impl RenderBudget {
    /// Creates a budget of `steps` template steps. No rendering starts any more once `is_stopped`
    /// returns true, because the time of the request is over or its client is gone.
    pub fn new(steps: u64, is_stopped: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(BudgetState {
            steps_left: AtomicU64::new(steps),
            is_stopped: Box::new(is_stopped),
            is_spent: AtomicBool::new(false),
        }))
    }

    /// Runs `work`, and charges all renderings on this thread to the budget meanwhile.
    pub fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        /// Restores the budget of the caller, also if `work` panics.
        struct RestoreBudget(Option<RenderBudget>);

        impl Drop for RestoreBudget {
            fn drop(&mut self) {
                CURRENT_BUDGET.with(|current| *current.borrow_mut() = self.0.take());
            }
        }

        let outer = CURRENT_BUDGET.with(|current| current.borrow_mut().replace(self.clone()));
        let _restore = RestoreBudget(outer);
        work()
    }

    /// Whether a rendering was refused or interrupted because the budget was spent or stopped.
    pub fn is_spent(&self) -> bool {
        self.0.is_spent.load(Ordering::Relaxed)
    }

    /// Whether the budget allows no further rendering. The caller stops working through a list.
    pub fn is_over(&self) -> bool {
        let is_over = self.is_spent()
            || (self.0.is_stopped)()
            || self.0.steps_left.load(Ordering::Relaxed) == 0;
        if is_over {
            self.0.is_spent.store(true, Ordering::Relaxed);
        }
        is_over
    }

    /// The budget that renderings on this thread are charged to.
    pub(super) fn current() -> Option<Self> {
        CURRENT_BUDGET.with(|current| current.borrow().clone())
    }

    /// The number of steps that a rendering may take, at most `steps_max`. Fails if the budget
    /// allows none.
    pub(super) fn allowed_steps(&self, steps_max: u64) -> Result<u64, TemplateErrorKind> {
        if self.is_over() {
            return Err(TemplateErrorKind::BudgetSpent);
        }
        Ok(steps_max.min(self.0.steps_left.load(Ordering::Relaxed)))
    }

    /// Charges the steps of a rendering.
    pub(super) fn charge_steps(&self, steps: u64) {
        // The closure always returns a value, so the update cannot fail.
        let _ = self
            .0
            .steps_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_sub(steps))
            });
    }

    /// Records that a rendering was interrupted because the steps of the budget did not suffice.
    pub(super) fn mark_spent(&self) {
        self.0.is_spent.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for RenderBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenderBudget")
            .field("steps_left", &self.0.steps_left)
            .field("is_spent", &self.0.is_spent)
            .finish_non_exhaustive()
    }
}
