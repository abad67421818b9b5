//! Wasm modules as policies of the resolver: columns in, columns out.

use std::ops::Range;

use tribunal_core::policy::{
    ConflictRule, NO_WITNESS, PolicyFault, Ranks, TxnColumns, Validation, Validator, ValidatorColumns, group,
};
use tribunal_types::{Isolation, Reason, Version};

use crate::abi::{self, Groups, RuleColumns};
use crate::chunk::{Piece, pieces, rule_txns_max};
use crate::export::{Export, Rank, RuleNeeds, Validate, ValidatorNeeds};
use crate::fault::Fault;
use crate::module::{LoadError, Module, returned};

impl From<Fault> for PolicyFault {
    fn from(fault: Fault) -> Self {
        PolicyFault(fault.text)
    }
}

/// A conflict rule in Wasm.
#[derive(Clone)]
pub struct WasmRule {
    module: Module,
    needs: RuleColumns,
    rank: Export<Rank>,
}

impl WasmRule {
    /// Creates a rule from a module that was loaded for the world `conflict-rule`.
    ///
    /// # Errors
    /// If the module does not return the columns that it needs.
    pub fn new(module: Module) -> Result<Self, LoadError> {
        let (needs, rank) = (module.function::<RuleNeeds>()?, module.function()?);
        let needs = module.start_bare().and_then(|mut call| call.call(&needs, ()));
        let (needs,) = needs.map_err(|fault| LoadError::Start(fault.text))?;
        Ok(WasmRule { module, needs, rank })
    }

    /// Returns the module.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Ranks transactions, and returns the fuel used.
    ///
    /// # Errors
    /// See [`ConflictRule::rank`].
    pub fn rank_metered(&self, columns: &TxnColumns) -> Result<(Ranks, u64), Fault> {
        let n = columns.csn.len();
        let most = rule_txns_max(self.module.engine.limits.columns_bytes_max);
        let mut answer = Ranks::default();
        let mut fuel = 0;
        for start in (0..n).step_by(most) {
            let (piece, used) = self.rank_piece(columns, start..n.min(start + most))?;
            fuel += used;
            if n <= most {
                return Ok((piece, fuel));
            }
            answer.hi.extend_from_slice(&piece.hi);
            answer.lo.extend_from_slice(&piece.lo);
        }
        Ok((answer, fuel))
    }

    fn rank_piece(&self, columns: &TxnColumns, txns: Range<usize>) -> Result<(Ranks, u64), Fault> {
        let count = txns.len();
        let pick = Pick { needs: self.needs, txns };
        let batch = abi::RuleTxns {
            // A piece has far fewer than 2^32 transactions.
            count: count as u32,
            epoch: columns.epoch,
            csn: pick.column(RuleColumns::CSN, &columns.csn),
            start: pick.column(RuleColumns::START, &columns.start),
            origin: pick.column(RuleColumns::ORIGIN, &columns.origin),
            priority: pick.column(RuleColumns::PRIORITY, &columns.priority),
            reads: pick.column(RuleColumns::READS, &columns.reads),
            writes: pick.column(RuleColumns::WRITES, &columns.writes),
            first_attempt: pick.column(RuleColumns::FIRST_ATTEMPT, &columns.first_attempt),
        };
        let mut call = self.module.start(self.module.engine.limits.fuel(count, 0))?;
        let (answer,) = call.call(&self.rank, (batch,))?;
        let ranks = answer.map_err(|text| returned(text, &self.module.engine))?;
        if ranks.hi.len() != count || ranks.lo.len() != count {
            let (hi, lo) = (ranks.hi.len(), ranks.lo.len());
            return Err(Fault::wrong(format!("it returned {hi} high and {lo} low ranks for {count} transactions")));
        }
        Ok((Ranks { hi: ranks.hi, lo: ranks.lo }, call.fuel_used()))
    }
}

impl ConflictRule for WasmRule {
    fn rank(&self, columns: &TxnColumns) -> Result<Ranks, PolicyFault> {
        self.rank_metered(columns).map(|(ranks, _)| ranks).map_err(PolicyFault::from)
    }
}

/// The columns that a rule needs, and the transactions of one piece.
struct Pick {
    needs: RuleColumns,
    txns: Range<usize>,
}

impl Pick {
    fn column<'a, T>(&self, name: RuleColumns, values: &'a [T]) -> &'a [T] {
        if self.needs & name == name { &values[self.txns.clone()] } else { &[] }
    }
}

/// A validator of one level in Wasm.
#[derive(Clone)]
pub struct WasmValidator {
    module: Module,
    needs: Groups,
    validate: Export<Validate>,
}

impl WasmValidator {
    /// Creates a validator from a module that was loaded for the world `isolation-validator`.
    ///
    /// # Errors
    /// If the module does not return the groups of columns that it needs.
    pub fn new(module: Module) -> Result<Self, LoadError> {
        let (needs, validate) = (module.function::<ValidatorNeeds>()?, module.function()?);
        let needs = module.start_bare().and_then(|mut call| call.call(&needs, ()));
        let (needs,) = needs.map_err(|fault| LoadError::Start(fault.text))?;
        Ok(WasmValidator { module, needs, validate })
    }

    /// Returns the module.
    #[must_use]
    pub fn module(&self) -> &Module {
        &self.module
    }

    /// Returns the groups of columns that it needs, as [`Validator::needs`] does.
    #[must_use]
    pub fn needs(&self) -> u8 {
        let groups = [
            (Groups::TXNS, group::TXNS),
            (Groups::SNAPSHOTS, group::SNAPSHOTS),
            (Groups::READS, group::READS),
            (Groups::RANGES, group::RANGES),
            (Groups::WRITES, group::WRITES),
            // Derived from the versions, in this crate.
            (Groups::EPOCHS, group::READS | group::WRITES),
        ];
        groups.iter().filter(|(named, _)| self.needs & *named == *named).fold(0, |needs, (_, bits)| needs | bits)
    }

    /// Validates transactions, and returns the fuel used.
    ///
    /// # Errors
    /// See [`Validator::validate`].
    pub fn validate_metered(&self, columns: &ValidatorColumns) -> Result<(Validation, u64), Fault> {
        let mut answer = Validation::default();
        let mut fuel = 0;
        if columns.is_empty() {
            return Ok((answer, fuel));
        }
        let pieces = pieces(columns, self.module.engine.limits.columns_bytes_max);
        let single = pieces.len() == 1;
        for piece in &pieces {
            let (judged, used) = self.validate_piece(columns, piece)?;
            fuel += used;
            if single {
                return Ok((judged, fuel));
            }
            answer.code.extend_from_slice(&judged.code);
            answer.witness.extend_from_slice(&judged.witness);
        }
        Ok((answer, fuel))
    }

    fn validate_piece(&self, columns: &ValidatorColumns, piece: &Piece<'_>) -> Result<(Validation, u64), Fault> {
        let count = piece.txns.len();
        let epochs =
            if self.needs & Groups::EPOCHS == Groups::EPOCHS { Epochs::of(columns, piece) } else { Epochs::default() };
        let evidence = evidence(columns, piece, &epochs, self.needs);
        let mut call = self.module.start(self.module.engine.limits.fuel(count, piece.ops()))?;
        let (answer,) = call.call(&self.validate, (evidence,))?;
        let judged = answer.map_err(|text| returned(text, &self.module.engine))?;
        let judged = Validation { code: judged.code, witness: judged.witness };
        check_validation(&judged, piece)?;
        Ok((judged, call.fuel_used()))
    }
}

/// Selects the piece's rows of the groups that the plugin needs.
fn evidence<'a>(
    columns: &'a ValidatorColumns,
    piece: &'a Piece<'_>,
    epochs: &'a Epochs,
    needs: Groups,
) -> abi::Evidence<'a> {
    let wants = |group: Groups| needs & group == group;
    let t = || piece.txns.clone();
    let txns = &columns.txns;
    abi::Evidence {
        // A piece has far fewer than 2^32 transactions.
        count: piece.txns.len() as u32,
        epoch: txns.epoch,
        txns: if wants(Groups::TXNS) {
            abi::ValidatorTxns {
                csn: &txns.csn[t()],
                start: &txns.start[t()],
                origin: &txns.origin[t()],
                priority: &txns.priority[t()],
                reads: &txns.reads[t()],
                writes: &txns.writes[t()],
                first_attempt: &txns.first_attempt[t()],
            }
        } else {
            abi::ValidatorTxns::default()
        },
        snapshots: if wants(Groups::SNAPSHOTS) {
            abi::Snapshots {
                named: &columns.snapshot[t()],
                current_from: &columns.current_from[t()],
                current_until: &columns.current_until[t()],
                multi_version: &columns.multi_version[t()],
            }
        } else {
            abi::Snapshots::default()
        },
        reads: if wants(Groups::READS) {
            let rows = || piece.reads.clone();
            abi::Reads {
                ends: &piece.read_ends,
                seen: &columns.reads.seen[rows()],
                latest: &columns.reads.latest[rows()],
            }
        } else {
            abi::Reads::default()
        },
        ranges: if wants(Groups::RANGES) {
            abi::Ranges { ends: &piece.range_ends, changed: &columns.ranges.changed[piece.ranges.clone()] }
        } else {
            abi::Ranges::default()
        },
        writes: if wants(Groups::WRITES) {
            let rows = || piece.writes.clone();
            abi::Writes {
                ends: &piece.write_ends,
                kind: &columns.writes.kind[rows()],
                flags: &columns.writes.flags[rows()],
                latest: &columns.writes.latest[rows()],
            }
        } else {
            abi::Writes::default()
        },
        epochs: abi::Epochs { seen: &epochs.seen, latest: &epochs.latest, written: &epochs.written },
    }
}

/// The epochs of a piece's versions.
#[derive(Default)]
struct Epochs {
    seen: Vec<u64>,
    latest: Vec<u64>,
    written: Vec<u64>,
}

impl Epochs {
    fn of(columns: &ValidatorColumns, piece: &Piece<'_>) -> Epochs {
        let split = |versions: &[u64]| versions.iter().map(|version| version >> Version::POSITION_BITS).collect();
        Epochs {
            seen: split(&columns.reads.seen[piece.reads.clone()]),
            latest: split(&columns.reads.latest[piece.reads.clone()]),
            written: split(&columns.writes.latest[piece.writes.clone()]),
        }
    }
}

/// Checks the properties that the resolver relies on: one result per transaction, known reasons, existing operations.
fn check_validation(judged: &Validation, piece: &Piece<'_>) -> Result<(), Fault> {
    let count = piece.txns.len();
    if judged.code.len() != count || judged.witness.len() != count {
        let (codes, witnesses) = (judged.code.len(), judged.witness.len());
        return Err(Fault::wrong(format!(
            "it returned {codes} codes and {witnesses} witnesses for {count} transactions"
        )));
    }
    for (t, (&code, &witness)) in judged.code.iter().zip(&judged.witness).enumerate() {
        if code == 0 {
            continue;
        }
        if Reason::from_code(code).is_none() {
            return Err(Fault::wrong(format!("it returned code {code}, which is not the code of a reason")));
        }
        if witness != NO_WITNESS && witness >= piece.ops_of(t) {
            let ops = piece.ops_of(t);
            return Err(Fault::wrong(format!("it blamed operation {witness} of a transaction with {ops} operations")));
        }
    }
    Ok(())
}

/// The validators of all levels.
#[derive(Clone)]
pub struct WasmValidators {
    by_level: [WasmValidator; 4],
}

impl WasmValidators {
    /// Takes one validator per level, weakest first ([`Isolation::ALL`]).
    #[must_use]
    pub fn new(by_level: [WasmValidator; 4]) -> Self {
        WasmValidators { by_level }
    }

    /// Returns the validator of a level.
    #[must_use]
    pub fn of(&self, level: Isolation) -> &WasmValidator {
        &self.by_level[level as usize]
    }

    /// Replaces the validator of `level`.
    #[must_use]
    pub fn with(mut self, level: Isolation, validator: WasmValidator) -> Self {
        self.by_level[level as usize] = validator;
        self
    }
}

impl Validator for WasmValidators {
    fn needs(&self, level: Isolation) -> u8 {
        self.of(level).needs()
    }

    fn validate(&self, level: Isolation, columns: &ValidatorColumns) -> Result<Validation, PolicyFault> {
        self.of(level).validate_metered(columns).map(|(judged, _)| judged).map_err(PolicyFault::from)
    }
}
