//! The faults of a run, drawn from a seed: their times, places and durations.

use std::fmt;
use std::str::FromStr;

use crate::sim::random::Random;

/// A fault, at a machine or in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The process is killed; its writes stay in the cache.
    Kill,
    /// The power is cut; unsynced writes may be lost, torn or reordered.
    PowerCut,
    /// All machines lose power at once.
    Blackout,
    /// The process is stopped and continues later.
    Pause,
    /// Syncs do not return, while heartbeats continue.
    StuckDisk,
    /// All syncs take long.
    SlowDisks,
    /// The next sync fails.
    FailingSync,
    /// One machine is cut off from all others.
    Isolation,
    /// One machine sends, but receives nothing.
    Deafness,
    /// Two machines cannot reach each other; a third reaches both.
    Bridge,
    /// Frames are lost, duplicated and reordered.
    BadLinks,
    /// A clock jumps, by up to ten seconds.
    ClockJump,
    /// A machine's ticks come too fast or too slow.
    WrongPace,
    /// A process is stopped as planned: it hands over its leaderships, and ends.
    PlannedStop,
    /// A node is added to the cluster.
    AddNode,
    /// A node is removed from the cluster.
    RemoveNode,
    /// A machine loses its disk permanently: an operator removes the node and adds another in its place.
    WipedDisk,
    /// The storages receive requests, but carry out only some of them, and send no results.
    StoragesAway,
    /// A disk is full.
    FullDisk,
    /// A machine lacks the code that decides, and decides nothing.
    MissingCode,
    /// All machines but one lose their disks permanently: an operator lets that one continue alone, and adds others. At
    /// most once per run, and only in some runs.
    MajorityLost,
}

impl Fault {
    /// All faults.
    pub const ALL: [Fault; 21] = [
        Fault::Kill,
        Fault::PowerCut,
        Fault::Blackout,
        Fault::Pause,
        Fault::StuckDisk,
        Fault::SlowDisks,
        Fault::FailingSync,
        Fault::Isolation,
        Fault::Deafness,
        Fault::Bridge,
        Fault::BadLinks,
        Fault::ClockJump,
        Fault::WrongPace,
        Fault::PlannedStop,
        Fault::AddNode,
        Fault::RemoveNode,
        Fault::WipedDisk,
        Fault::StoragesAway,
        Fault::FullDisk,
        Fault::MissingCode,
        Fault::MajorityLost,
    ];

    /// Returns whether the fault adds or removes nodes.
    #[must_use]
    pub fn changes_members(self) -> bool {
        matches!(self, Fault::AddNode | Fault::RemoveNode | Fault::WipedDisk)
    }

    /// Returns whether the fault ends with a repair of the network.
    #[must_use]
    pub fn is_of_the_network(self) -> bool {
        matches!(self, Fault::Isolation | Fault::Deafness | Fault::Bridge | Fault::BadLinks)
    }
}

/// The faults of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Faults {
    /// All kinds, several at a time.
    #[default]
    All,
    /// One kind, one at a time.
    Only(Fault),
    /// Those that change the members, several at a time and in quick succession.
    OfMembers,
}

impl Faults {
    /// Returns the only kind of fault, if there is just one.
    #[must_use]
    pub fn only(self) -> Option<Fault> {
        match self {
            Faults::Only(fault) => Some(fault),
            Faults::All | Faults::OfMembers => None,
        }
    }

    /// Returns the kinds of faults, and the minimum and maximum time from one to the next, microseconds.
    fn drawn(self) -> (Vec<Fault>, (u64, u64)) {
        match self {
            Faults::All | Faults::Only(_) => {
                (Fault::ALL.into_iter().filter(|fault| *fault != Fault::MajorityLost).collect(), (150_000, 1_500_000))
            }
            Faults::OfMembers => {
                (Fault::ALL.into_iter().filter(|fault| fault.changes_members()).collect(), (20_000, 900_000))
            }
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Faults::All => f.write_str("all"),
            Faults::OfMembers => f.write_str("members"),
            Faults::Only(fault) => write!(f, "{fault:?}"),
        }
    }
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(name: &str) -> Result<Faults, String> {
        let mut known = [Faults::All, Faults::OfMembers].into_iter().chain(Fault::ALL.map(Faults::Only));
        let unknown = || format!("`{name}` must be all, members or one of {:?}", Fault::ALL);
        known.find(|faults| faults.to_string() == name).ok_or_else(unknown)
    }
}

/// A planned fault.
#[derive(Clone, Copy, Debug)]
pub struct Planned {
    /// Start, microseconds.
    pub at_us: u64,
    /// Duration, microseconds.
    pub lasts_us: u64,
    /// The fault.
    pub fault: Fault,
    /// The machine, if the fault is at one.
    pub node: u16,
}

/// Draws the faults of a run, up to `end_us`.
#[must_use]
pub fn plan(faults: Faults, machines: u16, end_us: u64, random: &mut Random) -> Vec<Planned> {
    let (kinds, (pause_us_min, pause_us_max)) = faults.drawn();
    let mut planned = Vec::new();
    let mut at_us = random.between(200_000, 1_000_000);
    while at_us < end_us {
        let fault = random.one_of(&kinds);
        let node = random.between(1, u64::from(machines)) as u16;
        planned.push(Planned { at_us, lasts_us: random.between(100_000, 2_500_000), fault, node });
        at_us += random.between(pause_us_min, pause_us_max);
    }
    planned
}
