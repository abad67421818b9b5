//! Mutations of inputs: the same seed, the same bytes, on every machine.

/// Numbers where programs are wrong most often.
const EDGES: [u64; 12] =
    [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0xffff, 0x7fff_ffff, 0xffff_ffff, i64::MAX as u64, 1 << 63, u64::MAX];
/// Bytes of the largest mutated input.
const INPUT_BYTES_MAX: usize = 1 << 17;

/// Random numbers by SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`; 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.number() % bound.max(1) as u64) as usize
    }
}

/// Changes an input in one to eight places; pieces of `other` may come in.
#[must_use]
pub fn mutated(input: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..1 << random.below(4) {
        change(&mut bytes, other, random);
    }
    bytes.truncate(INPUT_BYTES_MAX);
    bytes
}

fn change(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    let at = random.below(bytes.len());
    let rest = bytes.len() - at;
    let scale = 1 << random.below(8);
    let len = 1 + random.below(rest.min(scale));
    match random.below(10) {
        0 | 1 if rest > 0 => bytes[at] ^= 1 << random.below(8),
        2 if rest > 0 => bytes[at] = random.number() as u8,
        3 if rest > 0 => drop(bytes.drain(at..(at + len).min(bytes.len()))),
        4 => {
            let more: Vec<u8> = (0..len).map(|_| random.number() as u8).collect();
            bytes.splice(at..at, more);
        }
        5 => {
            let edge = EDGES[random.below(EDGES.len())];
            let wide = if random.below(2) == 0 { edge.to_le_bytes() } else { edge.to_be_bytes() };
            let width = 1 << random.below(4);
            let value = if wide[7] == edge as u8 { &wide[8 - width..] } else { &wide[..width] };
            let end = if random.below(2) == 0 { at } else { (at + width).min(bytes.len()) };
            bytes.splice(at..end, value.iter().copied());
        }
        6 if rest > 0 => {
            let piece = bytes[at..(at + len).min(bytes.len())].to_vec();
            let to = random.below(bytes.len());
            bytes.splice(to..to, piece);
        }
        7 if !other.is_empty() => {
            let from = random.below(other.len());
            let piece = &other[from..(from + len).min(other.len())];
            bytes.splice(at..at, piece.iter().copied());
        }
        8 => {
            // A number in text.
            let edge = EDGES[random.below(EDGES.len())].to_string();
            bytes.splice(at..at, edge.bytes());
        }
        _ => bytes.truncate(at),
    }
}
