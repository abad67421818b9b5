//! The same measurement along one axis: cost should grow with operations, and stay constant in rows and clients.
//!
//! A step reuses the server and the rows of the previous one if its flags only change the requests.

use clap::ValueEnum as _;
use serde::{Deserialize, Serialize};

use crate::error::BenchError;
use crate::measure::Bench;
use crate::options::{Axis, Common, Level};
use crate::report::Report;
use crate::traffic::Mode;

/// Rules available with the server's flag `--rule`.
const BUILTIN_RULES: [&str; 4] = ["first-writer-wins", "shorter-txn-wins", "fair-rotation", "priority"];

/// All steps along an axis.
#[derive(Debug, Serialize, Deserialize)]
pub struct Swept {
    /// What varies.
    pub axis: Axis,
    /// The steps.
    pub steps: Vec<Step>,
}

/// One value and its measurement.
#[derive(Debug, Serialize, Deserialize)]
pub struct Step {
    /// The value as given.
    pub value: String,
    /// The figures.
    pub report: Report,
}

impl Swept {
    /// Returns the steps as lines of text.
    #[must_use]
    pub fn text(&self) -> String {
        let line = |step: &Step| format!("{:?} {}: {}", self.axis, step.value, step.report.text());
        self.steps.iter().map(line).collect()
    }
}

impl Axis {
    /// Returns the flags of one value.
    ///
    /// # Errors
    /// If it is not a value of this axis.
    pub fn at(self, common: &Common, value: &str) -> Result<Common, BenchError> {
        let mut step = common.clone();
        let number = || value.parse::<usize>().map_err(|_| wrong(self, value));
        let mut serve = |flag: &str| step.serve_arg.extend([flag.to_owned(), value.to_owned()]);
        match self {
            Axis::Connections => step.connections = number()?,
            Axis::Ops => (step.shape.reads, step.shape.writes) = (number()?, number()?),
            Axis::Rows => step.shape.rows = number()?,
            Axis::Batch => step.batch = number()?,
            Axis::Epoch => serve("--epoch-ms"),
            Axis::Rule if common.spawn.is_some() && BUILTIN_RULES.contains(&value) => serve("--rule"),
            Axis::Rule => step.rule = Some(value.to_owned()),
            Axis::Zipf => step.shape.zipf = value.parse().map_err(|_| wrong(self, value))?,
            Axis::Isolation => {
                step.shape.isolation = Level::from_str(value, true).map_err(|_| wrong(self, value))?;
            }
            Axis::Long => step.long_ms = number()? as u64,
        }
        if self == Axis::Epoch && common.spawn.is_none() {
            return Err(BenchError::Usage(
                "each epoch length needs a server of its own; add --spawn BINARY".to_owned(),
            ));
        }
        if common.spawn.is_some()
            && let Some(plugin) = &step.rule
            && !std::path::Path::new(plugin).exists()
        {
            return Err(BenchError::Usage(format!(
                "`{plugin}` is not a built-in rule ({}), nor the folder or component of a plugin",
                BUILTIN_RULES.join(", ")
            )));
        }
        Ok(step)
    }
}

fn wrong(axis: Axis, value: &str) -> BenchError {
    let name = axis.to_possible_value().map_or_else(String::new, |axis| axis.get_name().to_owned());
    if axis != Axis::Isolation {
        return BenchError::Usage(format!("`{value}` is not a value of the axis {name}"));
    }
    let levels = Level::value_variants().iter().filter_map(Level::to_possible_value);
    let levels: Vec<String> = levels.map(|level| level.get_name().to_owned()).collect();
    BenchError::Usage(format!("`{value}` is not a value of the axis {name}; use {}", levels.join(", ")))
}

/// Measures each value along an axis.
///
/// # Errors
/// If a value is not valid or the traffic fails.
pub fn measure(common: &Common, axis: Axis, values: &[String]) -> Result<Swept, BenchError> {
    let mode = if axis == Axis::Batch { Mode::Batch } else { Mode::Commit };
    let flags = values.iter().map(|value| axis.at(common, value)).collect::<Result<Vec<_>, _>>()?;
    let mut steps = Vec::new();
    let mut last: Option<Bench> = None;
    for (value, flags) in values.iter().zip(&flags) {
        let kept = match last.take() {
            Some(bench) => bench.reshaped(flags)?,
            None => None,
        };
        let mut bench = match kept {
            Some(bench) => bench,
            None => Bench::prepare(flags)?,
        };
        let report = bench.measure(mode)?;
        eprint!("{axis:?} {value}: {}", report.text());
        steps.push(Step { value: value.clone(), report });
        last = Some(bench);
    }
    Ok(Swept { axis, steps })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::options::{Cli, Command};

    fn flags(args: &[&str]) -> Common {
        let args = ["tribunal-bench", "commit"].iter().chain(args);
        let Command::Commit(common) = Cli::parse_from(args).command else { panic!("commit was asked for") };
        common
    }

    #[test]
    fn values_become_flags() {
        let base = flags(&["--spawn", "tribunal"]);
        let at = |axis: Axis, value: &str| axis.at(&base, value).unwrap();
        assert_eq!(at(Axis::Ops, "7").shape.reads, 7);
        assert_eq!(at(Axis::Isolation, "snapshot").shape.isolation, Level::Snapshot);
        assert_eq!(at(Axis::Epoch, "adaptive").serve_arg, ["--epoch-ms", "adaptive"]);
        assert_eq!(at(Axis::Long, "20").long_ms, 20);
    }

    #[test]
    fn a_rule_is_built_in_uploaded_or_already_on_the_server() {
        let spawned = flags(&["--spawn", "tribunal"]);
        assert_eq!(Axis::Rule.at(&spawned, "priority").unwrap().serve_arg, ["--rule", "priority"]);
        // The folder at run time, which may differ from that at build time.
        let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap();
        assert_eq!(Axis::Rule.at(&spawned, &folder).unwrap().rule.as_deref(), Some(&*folder));
        let error = Axis::Rule.at(&spawned, "coin-toss").unwrap_err().to_string();
        assert!(error.contains("`coin-toss`") && error.contains("first-writer-wins"), "{error}");
        let step = Axis::Rule.at(&flags(&[]), "most-writes-wins").unwrap();
        assert_eq!((step.rule.as_deref(), step.serve_arg.len()), (Some("most-writes-wins"), 0));
    }

    #[test]
    fn values_of_another_axis_are_refused() {
        let base = flags(&[]);
        for (axis, value) in [(Axis::Ops, "many"), (Axis::Isolation, "serial"), (Axis::Zipf, "x"), (Axis::Epoch, "5")] {
            assert!(axis.at(&base, value).is_err(), "{axis:?} {value}");
        }
    }
}
