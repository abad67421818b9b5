//! Bloom filters of runs (Bloom 1970, with the double hashing of Kirsch and Mitzenmacher 2006).
//!
//! Ten bits and seven probes per key give about 1 % false positives. The hash is part of the file format.

/// Bits per key.
const BITS_PER_KEY: u64 = 10;
/// Probes per key.
const PROBES: u64 = 7;

/// An approximate set of keys: no false negatives, few false positives.
#[derive(Debug)]
pub(super) struct Filter {
    words: Vec<u64>,
}

impl Filter {
    /// Creates an empty filter for up to `keys` keys.
    pub(super) fn for_keys(keys: u64) -> Self {
        let words = (keys.max(1) * BITS_PER_KEY).div_ceil(64);
        Filter { words: vec![0; usize::try_from(words).unwrap_or(usize::MAX)] }
    }

    pub(super) fn insert(&mut self, key: &[u8]) {
        for bit in bits(key, self.words.len()) {
            self.words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
    }

    /// Returns false if the key was never inserted.
    pub(super) fn may_contain(&self, key: &[u8]) -> bool {
        bits(key, self.words.len()).all(|bit| self.words[(bit / 64) as usize] & (1 << (bit % 64)) != 0)
    }

    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        for word in &self.words {
            into.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Decodes the output of [`Filter::encode`]; `None` if the bytes are malformed.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        (rest.is_empty() && !words.is_empty()).then_some(Filter { words })
    }
}

fn bits(key: &[u8], words: usize) -> impl Iterator<Item = u64> {
    let hash = hash(key);
    let (first, step) = (hash, hash.rotate_left(32) | 1);
    let bits = words as u64 * 64;
    (0..PROBES).map(move |probe| first.wrapping_add(probe.wrapping_mul(step)) % bits)
}

/// A multiplicative hash with the finalizer of MurmurHash3.
fn hash(key: &[u8]) -> u64 {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = (key.len() as u64).wrapping_mul(FACTOR);
    let mut add = |word: u64| state = (state.rotate_left(23) ^ word).wrapping_mul(FACTOR);
    let (words, rest) = key.as_chunks::<8>();
    words.iter().for_each(|word| add(u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    add(u64::from_le_bytes(last));
    state ^= state >> 33;
    state = state.wrapping_mul(0xff51_afd7_ed55_8ccd);
    state ^= state >> 33;
    state = state.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    state ^ (state >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_inserted_key_and_few_others_are_found() {
        let mut filter = Filter::for_keys(10_000);
        (0..10_000).for_each(|n| filter.insert(format!("key-{n}").as_bytes()));
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        let filter = Filter::decode(&bytes).expect("whole");
        assert!((0..10_000).all(|n| filter.may_contain(format!("key-{n}").as_bytes())));
        let wrong = (0..10_000).filter(|n| filter.may_contain(format!("other-{n}").as_bytes())).count();
        assert!(wrong < 300, "{wrong} of 10,000");
        assert!(Filter::decode(&bytes[1..]).is_none());
    }
}
