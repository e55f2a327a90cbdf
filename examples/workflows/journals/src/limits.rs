//! Guests that misbehave: the engine must outlive them.

use onward::prelude::*;

/// Panics.
#[workflow]
pub fn trap() -> Result<()> {
    broken()
}

/// Panics too, as a task.
#[task]
pub fn trap_task() -> Result<()> {
    broken()
}

#[expect(clippy::panic, reason = "panicking is what it is for")]
fn broken() -> Result<()> {
    panic!("this function is broken")
}

/// Never ends.
#[workflow]
pub fn spin() -> Result<()> {
    let mut turns = 0_u64;
    loop {
        turns = std::hint::black_box(turns.wrapping_add(1));
    }
}

/// Takes all memory there is.
#[workflow]
pub fn hog() -> Result<()> {
    let mut taken = Vec::new();
    loop {
        taken.push(std::hint::black_box(vec![1_u8; 1 << 20]));
    }
}
