//! Reproducible pseudo-random numbers: the same seed gives the same values on every machine and in
//! every version, so a seed identifies a test case.

/// A pseudo-random number generator (splitmix64).
#[derive(Debug, Clone)]
pub struct SeededRng(u64);

impl SeededRng {
    /// Returns a generator that starts from `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64 bits.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, which must not be 0.
    pub const fn next_below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// Returns `true` with a probability of `percent` in 100.
    pub const fn roll_percent(&mut self, percent: u64) -> bool {
        self.next_below(100) < percent
    }

    /// Returns one element of `from`, which must not be empty.
    pub fn pick_element<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        let place = self.next_below(from.len() as u64);
        &from[usize::try_from(place).unwrap_or(0)]
    }
}

#[cfg(test)]
mod tests {
    use super::SeededRng;

    #[test]
    fn a_seed_always_draws_the_same_values() {
        let mut draw = SeededRng::new(0);
        assert_eq!(
            [draw.next_u64(), draw.next_u64()],
            [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4]
        );
        assert!((0..1_000).all(|_| draw.next_below(3) < 3));
        let often = (0..10_000).filter(|_| draw.roll_percent(20)).count();
        assert!((1_800..2_200).contains(&often), "{often}");
    }
}
