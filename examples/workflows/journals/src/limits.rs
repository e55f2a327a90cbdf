//! Guests that panic or exceed their limits: the engine must survive them.

use onward::prelude::*;

/// Panics.
#[workflow]
pub fn trap() -> Result<()> {
    broken()
}

/// Panics in a task.
#[task]
pub fn trap_task() -> Result<()> {
    broken()
}

#[expect(clippy::panic, reason = "the engine must handle a trap")]
fn broken() -> Result<()> {
    panic!("this function is broken")
}

/// Never returns.
#[workflow]
pub fn spin() -> Result<()> {
    let mut rounds = 0_u64;
    loop {
        rounds = std::hint::black_box(rounds.wrapping_add(1));
    }
}

/// Allocates memory without bound.
#[workflow]
pub fn hog() -> Result<()> {
    let mut allocated = Vec::new();
    loop {
        allocated.push(std::hint::black_box(vec![1_u8; 1 << 20]));
    }
}
