//! Faults of plugins: a kind for metrics, a text for display. Both are the same on every replica.

use std::fmt;

/// Kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FaultKind {
    /// It used up its fuel.
    OutOfFuel,
    /// Its stack overflowed.
    StackOverflow,
    /// It trapped after the memory limit refused a growth.
    OutOfMemory,
    /// It trapped for another reason: a panic, an address outside its memory, a division by zero.
    Trap,
    /// Its result is not of the type that its world defines.
    Convention,
    /// It returned a fault.
    Returned,
    /// Its result has the right type but is invalid: a wrong length, or a code that is not a reason's.
    WrongAnswer,
}

impl FaultKind {
    /// All kinds.
    pub const ALL: [FaultKind; 7] = [
        FaultKind::OutOfFuel,
        FaultKind::StackOverflow,
        FaultKind::OutOfMemory,
        FaultKind::Trap,
        FaultKind::Convention,
        FaultKind::Returned,
        FaultKind::WrongAnswer,
    ];

    /// Returns the kind's name in the API and in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::OutOfFuel => "out_of_fuel",
            FaultKind::StackOverflow => "stack_overflow",
            FaultKind::OutOfMemory => "out_of_memory",
            FaultKind::Trap => "trap",
            FaultKind::Convention => "convention",
            FaultKind::Returned => "returned",
            FaultKind::WrongAnswer => "wrong_answer",
        }
    }
}

/// A deterministic failure of a plugin: the same input fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Fault {
    /// The kind of fault.
    pub kind: FaultKind,
    /// The description, for display.
    pub text: String,
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, text: impl Into<String>) -> Fault {
        Fault { kind, text: text.into() }
    }

    pub(crate) fn wrong(text: impl Into<String>) -> Fault {
        Fault::new(FaultKind::WrongAnswer, text)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
