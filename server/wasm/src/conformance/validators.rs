//! Checks of isolation validators: each transaction is judged by itself, and accepted if and only if all of its
//! operations are. Also determines the levels whose anomalies a validator rejects.

use tribunal_core::native::NativeValidator;
use tribunal_core::policy::{Validation, Validator, ValidatorColumns};
use tribunal_types::Isolation;

use super::anomalies::{LEVELS, anomalies, harmless};
use super::random::Random;
use super::rules::select as select_txns;
use super::vector::Vector;
use super::{Cost, Failure, Findings, Kit, broken, failed};
use crate::module::Module;
use crate::policy::WasmValidator;

const ROUNDS: u32 = 150;
const GOLDEN: &str = "golden vectors";
const SHUFFLES: &str = "shuffled batches";
const SUBSETS: &str = "subsets of a batch";
const SPLITS: &str = "operations spread over shards";
const FRESH: &str = "fresh instances";
const ANOMALIES: &str = "anomalies";
const FUEL: &str = "fuel";
const SIZES: [usize; 4] = [1, 64, 1024, 8192];

pub(super) fn check(module: Module, kit: &mut Kit) -> Result<Findings, Failure> {
    let limits = module.engine.limits;
    let validator = WasmValidator::new(module)?;
    golden(&validator, kit)?;
    picks(&validator, kit, SHUFFLES, Random(2), |random, picked| random.shuffle(picked))?;
    picks(&validator, kit, SUBSETS, Random(3), |random, picked| picked.retain(|_| random.below(2) == 0))?;
    splits(&validator, kit)?;
    fresh(&validator, kit)?;
    let (levels, misses) = strength(&validator, kit)?;
    let mut random = Random(5);
    let (mut fuel, mut budget) = (Vec::new(), 0);
    for size in SIZES {
        let columns = random.evidence(size);
        fuel.push(metered(&validator, &columns, FUEL)?.1);
        let ops = columns.reads.seen.len() + columns.ranges.changed.len() + columns.writes.kind.len();
        budget = limits.fuel_per_txn + limits.fuel_per_op * ops as u64 / size as u64;
    }
    kit.passed(FUEL, SIZES.len() as u32);
    let per_item = fuel[3].saturating_sub(fuel[0]) / (SIZES[3] - SIZES[0]) as u64;
    let cost = Cost { fuel_per_call: fuel[0], fuel_per_item: per_item, budget_per_item: budget };
    Ok(Findings { cost, levels, misses })
}

/// Returns the rows of transaction `t`.
fn rows(ends: &[u32], t: usize) -> std::ops::Range<usize> {
    let start = if t == 0 { 0 } else { ends[t - 1] as usize };
    start..ends[t] as usize
}

/// Decides whether an operation is kept or left to another shard.
type Keep<'a> = &'a mut dyn FnMut(usize) -> bool;

/// Returns the transactions `picked` with the operations that `keep` accepts.
fn select(columns: &ValidatorColumns, picked: &[usize], keep: Keep<'_>) -> ValidatorColumns {
    let of = |column: &[u64]| picked.iter().map(|&t| column[t]).collect::<Vec<_>>();
    let mut part = ValidatorColumns {
        txns: select_txns(&columns.txns, picked),
        snapshot: of(&columns.snapshot),
        current_from: of(&columns.current_from),
        current_until: of(&columns.current_until),
        multi_version: picked.iter().map(|&t| columns.multi_version[t]).collect(),
        ..ValidatorColumns::default()
    };
    // Cannot truncate: evidence of the kit has far fewer than 2^32 rows.
    for &t in picked {
        for i in rows(&columns.reads.ends, t).filter(|_| keep(t)).collect::<Vec<_>>() {
            part.reads.seen.push(columns.reads.seen[i]);
            part.reads.latest.push(columns.reads.latest[i]);
        }
        part.reads.ends.push(part.reads.seen.len() as u32);
        for i in rows(&columns.ranges.ends, t).filter(|_| keep(t)).collect::<Vec<_>>() {
            part.ranges.changed.push(columns.ranges.changed[i]);
        }
        part.ranges.ends.push(part.ranges.changed.len() as u32);
        for i in rows(&columns.writes.ends, t).filter(|_| keep(t)).collect::<Vec<_>>() {
            part.writes.kind.push(columns.writes.kind[i]);
            part.writes.flags.push(columns.writes.flags[i]);
            part.writes.latest.push(columns.writes.latest[i]);
        }
        part.writes.ends.push(part.writes.kind.len() as u32);
    }
    part
}

fn metered(
    validator: &WasmValidator,
    columns: &ValidatorColumns,
    check: &'static str,
) -> Result<(Validation, u64), Failure> {
    validator.validate_metered(columns).map_err(|fault| failed(check)(fault).on(Vector::of_evidence(columns)))
}

fn judge(validator: &WasmValidator, columns: &ValidatorColumns, check: &'static str) -> Result<Validation, Failure> {
    metered(validator, columns, check).map(|(judged, _)| judged)
}

fn golden(validator: &WasmValidator, kit: &mut Kit) -> Result<(), Failure> {
    let mut vectors = vec![harmless()];
    vectors.extend(anomalies().into_iter().map(|anomaly| anomaly.evidence));
    let mut random = Random(1);
    vectors.extend((0..40).map(|n| random.evidence(n)));
    // Transactions without operations, and the largest values of every column.
    let mut bare = random.evidence(3);
    bare = select(&bare, &[0, 1, 2], &mut |_| false);
    vectors.push(bare.clone());
    for column in [&mut bare.snapshot, &mut bare.current_from, &mut bare.current_until] {
        column.fill(u64::MAX);
    }
    vectors.push(bare);
    for columns in &vectors {
        let judged = judge(validator, columns, GOLDEN)?;
        kit.note(&judged.code);
        kit.note(&judged.witness.iter().flat_map(|witness| witness.to_le_bytes()).collect::<Vec<_>>());
    }
    kit.passed(GOLDEN, vectors.len() as u32);
    if judge(validator, &vectors[0], GOLDEN)?.code != [0] {
        let why = "it rejects a transaction without conflicts: one with the newest snapshot, of which nothing has changed. With \
                   the configuration that it is checked with, it must accept that";
        return Err(broken(GOLDEN, why).on(Vector::of_evidence(&vectors[0])));
    }
    Ok(())
}

/// Judges subsets of a batch in any order: each transaction must get the same verdict as in the whole batch.
fn picks(
    validator: &WasmValidator,
    kit: &mut Kit,
    check: &'static str,
    mut random: Random,
    pick: impl Fn(&mut Random, &mut Vec<usize>),
) -> Result<(), Failure> {
    for _ in 0..ROUNDS {
        let n = 2 + random.below(30) as usize;
        let columns = random.evidence(n);
        let mut picked: Vec<_> = (0..n).collect();
        pick(&mut random, &mut picked);
        let whole = judge(validator, &columns, check)?;
        let part = judge(validator, &select(&columns, &picked, &mut |_| true), check)?;
        for (i, &t) in picked.iter().enumerate() {
            if (part.code[i], part.witness[i]) != (whole.code[t], whole.witness[t]) {
                let why = format!(
                    "a transaction gets code {} in a batch of {n} and {} among {} of them: each must be judged by itself",
                    whole.code[t],
                    part.code[i],
                    picked.len()
                );
                let picked = picked.iter().map(|&place| place as u64);
                return Err(broken(check, why).on(Vector::of_evidence(&columns).and("kit.second-batch", picked)));
            }
        }
    }
    kit.passed(check, ROUNDS);
    Ok(())
}

/// Spreads the operations of transactions over up to four shards: a transaction must be accepted as a whole if and only if
/// all shards accept it.
fn splits(validator: &WasmValidator, kit: &mut Kit) -> Result<(), Failure> {
    let mut random = Random(6);
    for _ in 0..ROUNDS {
        let n = 1 + random.below(20) as usize;
        let columns = random.evidence(n);
        let shards = 2 + random.below(3);
        let operations = columns.reads.seen.len() + columns.ranges.changed.len() + columns.writes.kind.len();
        let places: Vec<u64> = (0..operations).map(|_| random.below(shards)).collect();
        let whole = judge(validator, &columns, SPLITS)?;
        let all: Vec<_> = (0..n).collect();
        let mut rejected = vec![false; n];
        let mut takes_part = vec![false; n];
        for shard in 0..shards {
            let (mut next, mut here) = (0, vec![false; n]);
            let part = select(&columns, &all, &mut |t| {
                next += 1;
                let kept = places[next - 1] == shard;
                here[t] |= kept;
                kept
            });
            // A shard judges only transactions with operations on it.
            let picked: Vec<_> = (0..n).filter(|&t| here[t]).collect();
            let judged = judge(validator, &select(&part, &picked, &mut |_| true), SPLITS)?;
            for (&t, &code) in picked.iter().zip(&judged.code) {
                takes_part[t] = true;
                rejected[t] |= code != 0;
            }
        }
        for t in (0..n).filter(|&t| takes_part[t]) {
            if rejected[t] != (whole.code[t] != 0) {
                let word = |rejected| if rejected { "rejected" } else { "accepted" };
                let why = format!(
                    "a transaction is {} as a whole and {} in parts on {shards} shards: the verdict must be \
                     conjunctive over its operations",
                    word(whole.code[t] != 0),
                    word(rejected[t])
                );
                return Err(broken(SPLITS, why).on(Vector::of_evidence(&columns).and("kit.shards", places)));
            }
        }
    }
    kit.passed(SPLITS, ROUNDS);
    Ok(())
}

fn fresh(validator: &WasmValidator, kit: &mut Kit) -> Result<(), Failure> {
    let mut random = Random(4);
    for _ in 0..20 {
        let n = random.below(64) as usize;
        let columns = random.evidence(n);
        let first = metered(validator, &columns, FRESH)?;
        let second = metered(validator, &columns, FRESH)?;
        if first != second {
            let why = "judging the same batch twice gives different results, or uses different amounts of fuel";
            return Err(broken(FRESH, why).on(Vector::of_evidence(&columns)));
        }
    }
    kit.passed(FRESH, 20);
    Ok(())
}

/// The levels that a validator enforces, and the others with the reasons.
type Strength = (Vec<Isolation>, Vec<(Isolation, &'static str)>);

/// Determines the levels that the validator enforces: it must reject each anomaly that a level forbids, and the random
/// evidence that the level's native validator rejects.
fn strength(validator: &WasmValidator, kit: &mut Kit) -> Result<Strength, Failure> {
    let anomalies = anomalies();
    let mut accepted = Vec::new();
    for anomaly in &anomalies {
        accepted.push(judge(validator, &anomaly.evidence, ANOMALIES)?.code[0] == 0);
    }
    let mut random = Random(7);
    let mut evidence = Vec::new();
    for _ in 0..ROUNDS {
        let columns = random.evidence(8);
        let judged = judge(validator, &columns, ANOMALIES)?;
        evidence.push((columns, judged));
    }
    let (mut levels, mut misses) = (Vec::new(), Vec::new());
    for level in LEVELS {
        let missed =
            anomalies.iter().zip(&accepted).find(|(a, accepted)| **accepted && a.forbidden_at.contains(&level));
        let weaker = || {
            evidence.iter().any(|(columns, judged)| {
                let native = NativeValidator.validate(level, columns);
                native.is_ok_and(|native| native.code.iter().zip(&judged.code).any(|(&n, &own)| n != 0 && own == 0))
            })
        };
        match missed {
            Some((anomaly, _)) => misses.push((level, anomaly.name)),
            None if weaker() => misses.push((level, "a conflict in random evidence that this level rejects")),
            None => levels.push(level),
        }
    }
    kit.passed(ANOMALIES, (anomalies.len() + evidence.len()) as u32);
    Ok((levels, misses))
}
