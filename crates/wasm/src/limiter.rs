//! Limits the allocations of an instance. The guest can handle a refused growth; if the guest traps
//! because of it, the error message includes the refusal.

use wasmtime::{Result, format_err};

use crate::memory_budget::MemoryReservation;

/// Counts and limits the memory and the table elements of one instance.
#[derive(Debug)]
pub(crate) struct InstanceLimiter {
    memory_bytes: usize,
    memory_bytes_max: usize,
    table_elements: usize,
    table_elements_max: usize,
    refused_growth: Option<String>,
    growth_granted: bool,
    reservation: MemoryReservation,
}

impl InstanceLimiter {
    pub(crate) fn new(
        memory_bytes_max: usize,
        table_elements_max: usize,
        reservation: MemoryReservation,
    ) -> Self {
        Self {
            reservation,
            memory_bytes: 0,
            memory_bytes_max,
            table_elements: 0,
            table_elements_max,
            refused_growth: None,
            growth_granted: false,
        }
    }

    /// Linear memory of the instance, in bytes.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// Prepares the limiter for another call of the same instance: sets the memory limit and clears
    /// the last refusal.
    pub(crate) fn reset_for_call(&mut self, memory_bytes_max: usize) {
        self.memory_bytes_max = memory_bytes_max;
        self.refused_growth = None;
    }

    /// Describes the growth that was refused last; `None` if none was refused in this call.
    pub(crate) fn refused_growth(&self) -> Option<&str> {
        self.refused_growth.as_deref()
    }

    fn refuse_growth(&mut self, reason: String) -> Result<bool> {
        self.refused_growth = Some(reason);
        self.growth_granted = false;
        Ok(false)
    }

    /// Turns a failed growth within the limits into an error. The limits are checked before
    /// anything is allocated, so a later failure is caused by the machine. A guest that could
    /// observe the difference would not be deterministic.
    fn check_grow_failure(&mut self, error: &wasmtime::Error) -> Result<()> {
        if self.growth_granted {
            Err(format_err!("the machine has no memory left: {error}"))
        } else {
            Ok(())
        }
    }
}

impl wasmtime::ResourceLimiter for InstanceLimiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        let total = (self.memory_bytes - current.min(self.memory_bytes)).saturating_add(desired);
        if total > self.memory_bytes_max {
            return self.refuse_growth(format!(
                "{total} bytes of memory, the limit is {}",
                self.memory_bytes_max
            ));
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return self.refuse_growth(format!(
                "{desired} bytes of memory, its own maximum is lower"
            ));
        }
        self.reservation
            .try_grow(total.saturating_sub(self.memory_bytes) as u64)?;
        self.memory_bytes = total;
        self.growth_granted = true;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> Result<()> {
        self.check_grow_failure(&error)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> Result<bool> {
        let total =
            (self.table_elements - current.min(self.table_elements)).saturating_add(desired);
        if total > self.table_elements_max {
            return self.refuse_growth(format!(
                "{total} table elements, the limit is {}",
                self.table_elements_max
            ));
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return self.refuse_growth(format!(
                "{desired} table elements, its own maximum is lower"
            ));
        }
        self.table_elements = total;
        self.growth_granted = true;
        Ok(true)
    }

    fn table_grow_failed(&mut self, error: wasmtime::Error) -> Result<()> {
        self.check_grow_failure(&error)
    }
}

#[cfg(test)]
mod tests {
    use wasmtime::ResourceLimiter;

    use super::*;

    #[test]
    fn memories_of_an_instance_share_its_limit() {
        let mut limiter = InstanceLimiter::new(100, 10, MemoryReservation::uncounted());
        assert!(limiter.memory_growing(0, 60, None).unwrap());
        assert!(!limiter.memory_growing(0, 60, None).unwrap());
        assert_eq!(
            limiter.refused_growth(),
            Some("120 bytes of memory, the limit is 100")
        );
        assert!(limiter.memory_growing(60, 100, None).unwrap());
        assert!(!limiter.memory_growing(100, usize::MAX, None).unwrap());
    }

    #[test]
    fn only_growth_within_the_limits_can_fail_for_lack_of_machine_memory() {
        let mut limiter = InstanceLimiter::new(100, 10, MemoryReservation::uncounted());
        assert!(!limiter.table_growing(0, 11, None).unwrap());
        assert!(limiter.table_grow_failed(format_err!("no")).is_ok());
        assert!(limiter.table_growing(0, 10, None).unwrap());
        assert!(limiter.table_grow_failed(format_err!("no")).is_err());
    }

    #[test]
    fn a_declared_maximum_is_a_limit_too() {
        let mut limiter = InstanceLimiter::new(100, 10, MemoryReservation::uncounted());
        assert!(!limiter.memory_growing(0, 50, Some(40)).unwrap());
        assert!(!limiter.table_growing(0, 5, Some(4)).unwrap());
    }
}
