//! Checks of conflict rules: the order of two transactions depends only on their own columns and the epoch.

use tribunal_core::policy::{Ranks, TxnColumns};

use super::random::Random;
use super::vector::Vector;
use super::{Cost, Failure, Findings, Kit, broken, failed};
use crate::module::Module;
use crate::policy::WasmRule;

const ROUNDS: u32 = 150;
const GOLDEN: &str = "golden vectors";
const SHUFFLES: &str = "shuffled batches";
const SUBSETS: &str = "subsets of a batch";
const FRESH: &str = "fresh instances";
const FUEL: &str = "fuel";
/// Sizes of the batches whose fuel is measured.
const SIZES: [usize; 4] = [1, 64, 1024, 8192];

pub(super) fn check(module: Module, kit: &mut Kit) -> Result<Findings, Failure> {
    let limits = module.engine.limits;
    let rule = WasmRule::new(module)?;
    golden(&rule, kit)?;
    shuffles(&rule, kit)?;
    subsets(&rule, kit)?;
    fresh(&rule, kit)?;
    let mut random = Random(5);
    let mut fuel = Vec::new();
    for size in SIZES {
        let txns = random.txns(size);
        fuel.push(rank(&rule, &txns, FUEL)?.1);
    }
    kit.passed(FUEL, SIZES.len() as u32);
    let per_item = fuel[3].saturating_sub(fuel[0]) / (SIZES[3] - SIZES[0]) as u64;
    let cost = Cost { fuel_per_call: fuel[0], fuel_per_item: per_item, budget_per_item: limits.fuel_per_txn };
    Ok(Findings { cost, ..Findings::default() })
}

fn rank(rule: &WasmRule, txns: &TxnColumns, check: &'static str) -> Result<(Ranks, u64), Failure> {
    rule.rank_metered(txns).map_err(|fault| failed(check)(fault).on(Vector::of_txns(txns)))
}

/// Returns the arrival stamps in the order of the ranks.
fn order(txns: &TxnColumns, ranks: &Ranks) -> Vec<u64> {
    let mut order: Vec<_> = (0..txns.csn.len()).collect();
    order.sort_by_key(|&t| (ranks.hi[t], ranks.lo[t], txns.csn[t]));
    order.into_iter().map(|t| txns.csn[t]).collect()
}

/// Returns the transactions `picked`, in that order.
pub(super) fn select(txns: &TxnColumns, picked: &[usize]) -> TxnColumns {
    fn of<T: Copy>(column: &[T], picked: &[usize]) -> Vec<T> {
        picked.iter().map(|&t| column[t]).collect()
    }
    TxnColumns {
        csn: of(&txns.csn, picked),
        epoch: txns.epoch,
        start: of(&txns.start, picked),
        origin: of(&txns.origin, picked),
        priority: of(&txns.priority, picked),
        reads: of(&txns.reads, picked),
        writes: of(&txns.writes, picked),
        first_attempt: of(&txns.first_attempt, picked),
    }
}

/// Checks edge cases: no transaction, one, identical ones, the smallest and largest values of every column.
fn golden(rule: &WasmRule, kit: &mut Kit) -> Result<(), Failure> {
    let alike = |n: usize, value: u64, byte: u8, count: u32| TxnColumns {
        csn: (0..n as u64).map(|i| if value == 0 { i } else { value - i }).collect(),
        epoch: value.max(1),
        start: vec![value; n],
        origin: vec![value; n],
        priority: vec![byte; n],
        reads: vec![count; n],
        writes: vec![count; n],
        first_attempt: vec![value; n],
    };
    let mut vectors =
        vec![alike(0, 7, 100, 1), alike(1, 7, 100, 1), alike(3, 0, 0, 0), alike(4, u64::MAX, u8::MAX, u32::MAX)];
    let mut random = Random(1);
    vectors.extend((2..40).map(|n| random.txns(n)));
    for txns in &vectors {
        let (ranks, _) = rank(rule, txns, GOLDEN)?;
        let order: Vec<u8> = order(txns, &ranks).into_iter().flat_map(u64::to_le_bytes).collect();
        kit.note(&order);
    }
    kit.passed(GOLDEN, vectors.len() as u32);
    Ok(())
}

fn shuffles(rule: &WasmRule, kit: &mut Kit) -> Result<(), Failure> {
    let mut random = Random(2);
    for _ in 0..ROUNDS {
        let n = 2 + random.below(40) as usize;
        let txns = random.txns(n);
        let mut places: Vec<_> = (0..n).collect();
        random.shuffle(&mut places);
        let shuffled = select(&txns, &places);
        let (before, _) = rank(rule, &txns, SHUFFLES)?;
        let (after, _) = rank(rule, &shuffled, SHUFFLES)?;
        if order(&txns, &before) != order(&shuffled, &after) {
            let why = format!("shuffling {n} transactions gives another order: nodes would disagree");
            let places = places.iter().map(|&place| place as u64);
            return Err(broken(SHUFFLES, why).on(Vector::of_txns(&txns).and("kit.second-order", places)));
        }
    }
    kit.passed(SHUFFLES, ROUNDS);
    Ok(())
}

fn subsets(rule: &WasmRule, kit: &mut Kit) -> Result<(), Failure> {
    let mut random = Random(3);
    for _ in 0..ROUNDS {
        let n = 2 + random.below(30) as usize;
        let txns = random.txns(n);
        let picked: Vec<_> = (0..n).filter(|_| random.below(2) == 0).collect();
        let part = select(&txns, &picked);
        let (all, _) = rank(rule, &txns, SUBSETS)?;
        let (some, _) = rank(rule, &part, SUBSETS)?;
        let mut expected = order(&txns, &all);
        expected.retain(|csn| part.csn.contains(csn));
        if expected != order(&part, &some) {
            let of = picked.len();
            let why = format!(
                "{of} of {n} transactions get another order when the rest is not in the batch: the order of two \
                 transactions must depend only on their own columns and `epoch`"
            );
            let picked = picked.iter().map(|&place| place as u64);
            return Err(broken(SUBSETS, why).on(Vector::of_txns(&txns).and("kit.second-batch", picked)));
        }
    }
    kit.passed(SUBSETS, ROUNDS);
    Ok(())
}

fn fresh(rule: &WasmRule, kit: &mut Kit) -> Result<(), Failure> {
    let mut random = Random(4);
    for _ in 0..20 {
        let n = random.below(64) as usize;
        let txns = random.txns(n);
        let first = rank(rule, &txns, FRESH)?;
        let second = rank(rule, &txns, FRESH)?;
        if first != second {
            let why = "ranking the same batch twice gives different results, or uses different amounts of fuel";
            return Err(broken(FRESH, why).on(Vector::of_txns(&txns)));
        }
    }
    kit.passed(FRESH, 20);
    Ok(())
}
