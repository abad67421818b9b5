//! The embedded rules and validators give the same answers as their native twins, on thousands of random columns, and
//! burn the same fuel each time.

use std::sync::Arc;

use tribunal_core::native::{NativeRule, NativeValidator};
use tribunal_core::policy::{
    ConflictRule, RangeColumns, ReadColumns, TxnColumns, Validator, ValidatorColumns, WriteColumns,
};
use tribunal_types::Isolation;
use tribunal_wasm::{PluginEngine, PluginLimits, builtin};

const ROUNDS: u64 = 1_000;

/// SplitMix64 (Steele, Lea and Flood, 2014): the same sequence on every machine.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A column of `n` values below `end`, now and then of any.
    fn column(&mut self, n: usize, end: u64) -> Vec<u64> {
        (0..n).map(|_| if self.below(20) == 0 { self.next() } else { self.below(end) }).collect()
    }

    fn bytes(&mut self, n: usize, end: u64) -> Vec<u8> {
        (0..n).map(|_| self.below(end) as u8).collect()
    }

    /// Ends of up to `most` rows for each of `n` transactions.
    fn ends(&mut self, n: usize, most: u64) -> Vec<u32> {
        let mut end = 0;
        (0..n)
            .map(|_| {
                end += self.below(most + 1) as u32;
                end
            })
            .collect()
    }

    fn txns(&mut self, n: usize) -> TxnColumns {
        let small = |random: &mut Random| (0..n).map(|_| random.below(9) as u32).collect::<Vec<_>>();
        TxnColumns {
            csn: self.column(n, 1 << 40),
            cen: 2 + self.below(50),
            start: self.column(n, 50),
            origin: (0..n).map(|_| self.next()).collect(),
            priority: self.bytes(n, 256),
            reads: small(self),
            writes: small(self),
        }
    }

    fn columns(&mut self, n: usize) -> ValidatorColumns {
        let (reads, writes, ranges) = (self.ends(n, 4), self.ends(n, 4), self.ends(n, 2));
        let rows = |ends: &[u32]| ends.last().map_or(0, |&end| end as usize);
        ValidatorColumns {
            txns: self.txns(n),
            snapshot: self.column(n, 40),
            current_from: self.column(n, 40),
            current_until: self.column(n, 60),
            multi_version: self.bytes(n, 2),
            reads: ReadColumns {
                seen: self.column(rows(&reads), 2),
                latest: self.column(rows(&reads), 2),
                ends: reads,
            },
            writes: WriteColumns {
                kind: self.bytes(rows(&writes), 5),
                flags: self.bytes(rows(&writes), 16),
                latest: self.column(rows(&writes), 50),
                ends: writes,
            },
            ranges: RangeColumns {
                changed: (0..rows(&ranges)).map(|_| u8::from(self.below(6) == 0)).collect(),
                ends: ranges,
            },
        }
    }
}

fn engine(columns_bytes_max: usize) -> Arc<PluginEngine> {
    let limits = PluginLimits { instances_max: 2, columns_bytes_max, ..PluginLimits::default() };
    PluginEngine::new(limits).expect("the engine starts")
}

#[test]
fn rules_rank_as_their_twins() {
    let (whole, cut) = (engine(PluginLimits::default().columns_bytes_max), engine(500));
    let mut random = Random(1);
    for (name, turns) in [
        ("first-writer-wins", 0),
        ("shorter-txn-wins", 0),
        ("priority", 0),
        ("fair-rotation", 0),
        ("fair-rotation", 1),
        ("fair-rotation", 7),
        ("fair-rotation", u32::MAX),
    ] {
        let config = if turns == 0 { String::new() } else { format!(r#"{{"turns": {turns}}}"#) };
        let load = |engine| builtin::rule(engine, name, &config).expect("is built in").expect("loads");
        let (wasm, in_pieces) = (load(&whole), load(&cut));
        let native = NativeRule::by_name(name, turns).expect("has a twin");
        for round in 0..ROUNDS {
            let n = random.below(40) as usize;
            let txns = random.txns(n);
            let expected = native.rank(&txns).expect("natives never fail");
            let (ranks, fuel) = wasm.rank_metered(&txns).expect("no fault");
            assert_eq!(ranks, expected, "{name}, round {round}");
            if round % 10 == 0 {
                assert_eq!(wasm.rank_metered(&txns), Ok((ranks, fuel)), "the same fuel");
                assert_eq!(in_pieces.rank(&txns), Ok(expected), "{name} in pieces, round {round}");
            }
        }
    }
}

#[test]
fn validators_judge_as_their_twins() {
    let whole = builtin::validators(&engine(PluginLimits::default().columns_bytes_max)).expect("load");
    let cut = builtin::validators(&engine(700)).expect("load");
    let mut random = Random(2);
    let mut reasons = std::collections::BTreeSet::new();
    for level in Isolation::ALL {
        for round in 0..ROUNDS {
            let n = random.below(40) as usize;
            let columns = random.columns(n);
            let expected = NativeValidator.validate(level, &columns).expect("natives never fail");
            reasons.extend(expected.code.iter().copied());
            let (judged, fuel) = whole.of(level).validate_metered(&columns).expect("no fault");
            assert_eq!(judged, expected, "{}, round {round}", level.name());
            if round % 10 == 0 {
                assert_eq!(whole.of(level).validate_metered(&columns), Ok((judged, fuel)), "the same fuel");
                assert_eq!(cut.validate(level, &columns), Ok(expected), "{} in pieces, round {round}", level.name());
            }
        }
    }
    assert_eq!(reasons.into_iter().collect::<Vec<_>>(), [0, 128, 129, 130], "every reason was met");
}

#[test]
fn large_batches_fit() {
    let engine = engine(PluginLimits::default().columns_bytes_max);
    let validators = builtin::validators(&engine).expect("load");
    let rule = builtin::rule(&engine, "first-writer-wins", "").expect("is built in").expect("loads");
    let mut random = Random(3);
    let columns = random.columns(70_000);
    for level in Isolation::ALL {
        let expected = NativeValidator.validate(level, &columns).expect("natives never fail");
        assert_eq!(validators.validate(level, &columns), Ok(expected));
    }
    assert_eq!(rule.rank(&columns.txns), NativeRule::FirstWriterWins.rank(&columns.txns));
}
