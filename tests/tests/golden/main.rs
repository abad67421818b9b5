//! Golden tests: one file per rule of the algorithm, each case a script that a person can check against the rule.

mod adds;
mod declared;
mod early_abort;
mod evidence;
mod existence;
mod faults;
mod floor;
mod identity;
mod imports;
mod levels;
mod logs;
mod merge;
mod ranks;
mod snapshot;
