//! TPC-C's random numbers and names (clauses 2.1.6, 4.3.2, 4.3.3): non-uniform where the specification requires it.

/// Syllables of customers' last names.
const SYLLABLES: [&str; 10] = ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Sizes of the database. The specification's are 100,000 items and 3,000 customers per district.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Warehouses.
    pub warehouses: i32,
    /// Items, and stock rows of each warehouse.
    pub items: i32,
    /// Customers per district, each with one initial order.
    pub customers: i32,
}

/// A generator for the load; only the mix depends on its quality.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts a sequence.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Random(seed.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number of `min..=max`.
    pub fn within(&mut self, min: i32, max: i32) -> i32 {
        let span = u64::from(max.abs_diff(min)) + 1;
        min.saturating_add(i32::try_from((self.next() >> 16) % span).unwrap_or(0))
    }

    /// Returns whether an event of this probability, in percent, happened.
    pub fn percent(&mut self, share: i32) -> bool {
        self.within(1, 100) <= share
    }

    /// TPC-C's NURand over `min..=max`.
    fn non_uniform(&mut self, a: i32, min: i32, max: i32) -> i32 {
        // The constant C of a run; any value is allowed.
        const C: i32 = 123;
        let mixed = self.within(0, a) | self.within(min, max);
        (mixed + C) % (max - min + 1) + min
    }

    /// Returns an item.
    pub fn item(&mut self, sizes: Sizes) -> i32 {
        self.non_uniform(scaled(8191, sizes.items, 100_000), 1, sizes.items)
    }

    /// Returns a customer of a district.
    pub fn customer(&mut self, sizes: Sizes) -> i32 {
        self.non_uniform(scaled(1023, sizes.customers, 3_000), 1, sizes.customers)
    }

    /// Returns the last name of an existing customer.
    pub fn last_name(&mut self, sizes: Sizes) -> String {
        last_name(self.non_uniform(255, 0, name_max(sizes)))
    }

    /// Returns text of `min..=max` letters.
    pub fn text(&mut self, min: i32, max: i32) -> String {
        let len = self.within(min, max);
        (0..len).map(|_| char::from(b'a' + u8::try_from(self.within(0, 25)).unwrap_or(0))).collect()
    }
}

/// Scales NURand's A with the range that it is defined for, to one less than a power of two.
fn scaled(a: i32, size: i32, full: i32) -> i32 {
    let wanted = i64::from(a) * i64::from(size) / i64::from(full);
    i32::try_from((u64::try_from(wanted).unwrap_or(0) + 1).next_power_of_two() - 1).unwrap_or(a)
}

/// Returns the largest number that customers' names are derived from.
#[must_use]
pub fn name_max(sizes: Sizes) -> i32 {
    sizes.customers.clamp(1, 1000) - 1
}

/// Derives a last name from a number in 0..=999.
#[must_use]
pub fn last_name(number: i32) -> String {
    let digit = |place: i32| SYLLABLES[usize::try_from(number / place % 10).unwrap_or(0)];
    [digit(100), digit(10), digit(1)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let sizes = Sizes { warehouses: 2, items: 50, customers: 30 };
        let mut random = Random::new(7);
        let items: std::collections::BTreeSet<_> = (0..20_000).map(|_| random.item(sizes)).collect();
        assert_eq!((items.first(), items.last(), items.len()), (Some(&1), Some(&50), 50));
        let customers: std::collections::BTreeSet<_> = (0..20_000).map(|_| random.customer(sizes)).collect();
        assert_eq!((customers.first(), customers.last(), customers.len()), (Some(&1), Some(&30), 30));
        assert_eq!(random.text(5, 5).len(), 5);
        assert_eq!(last_name(371), "PRICALLYOUGHT");
    }
}
