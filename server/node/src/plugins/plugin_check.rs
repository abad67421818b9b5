//! Checks an uploaded component in a separate process: compiling hostile code may take any amount of time and memory,
//! and a compiler fault must not reach the node.
//!
//! The node starts its own binary with a hidden command; that process limits itself before it reads a byte of the
//! component, runs gate, compiler and conformance kit, and writes its findings to standard output. Nothing else is
//! returned: the node itself compiles the code that runs later.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use tribunal_wasm::conformance::vector::{Column, Vector};
use tribunal_wasm::conformance::{self, Failure, Report};
use tribunal_wasm::{PluginEngine, PluginLimits, World};

use crate::plugins::digest::hex;
use crate::plugins::plugin_store::Checked;

/// Name of the hidden command.
pub const COMMAND: &str = "check-plugin";
/// Maximum processor time of a check, seconds. The largest permitted component takes a fraction of it.
const CPU_S_MAX: u64 = 120;
/// Maximum duration of a check: several times its processor time, for busy machines.
const CHECK_TIMEOUT: Duration = Duration::from_secs(480);
/// Maximum memory that a check may write to, bytes: the compiler's, and the instance's.
const DATA_BYTES_MAX: u64 = 2 << 30;
/// Maximum address space: in addition, two memories are reserved as in production, which consumes none.
const ADDRESS_BYTES_MAX: u64 = DATA_BYTES_MAX + (12 << 30);
/// Maximum length of a check's answer, bytes.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;

/// Findings of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// World.
    pub world: String,
    /// The plugin's declared name.
    pub name: String,
    /// The plugin's declared version.
    pub version: String,
    /// The plugin's declared description.
    pub about: String,
    /// Results of the kit.
    pub checked: Checked,
}

/// The answer of the process.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Passed(Box<Found>),
    Refused(Rejected),
}

/// Why a component is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rejected {
    /// The reason, for operators.
    pub reason: String,
    /// The input that the plugin failed on, by interface names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<serde_json::Value>,
}

impl From<String> for Rejected {
    fn from(reason: String) -> Rejected {
        Rejected { reason, input: None }
    }
}

impl From<&Failure> for Rejected {
    fn from(failure: &Failure) -> Rejected {
        let value = |column: &Column| match column {
            Column::Number(number) => serde_json::json!(number),
            Column::Numbers(numbers) => serde_json::json!(numbers),
            Column::Texts(texts) => serde_json::json!(texts),
        };
        let input = failure.input().map(|Vector { columns }| {
            let fields = columns.iter().map(|(name, column)| ((*name).to_owned(), value(column)));
            serde_json::Value::Object(fields.collect())
        });
        Rejected { reason: failure.to_string(), input }
    }
}

impl From<Report> for Found {
    fn from(report: Report) -> Found {
        Found {
            world: report.world.name().to_owned(),
            name: report.description.name,
            version: report.description.version,
            about: report.description.about,
            checked: Checked {
                // The caller fills in these two.
                config: String::new(),
                engine: String::new(),
                checks: report.checks.iter().map(|check| (check.name.to_owned(), check.cases)).collect(),
                fuel_per_call: report.cost.fuel_per_call,
                fuel_per_item: report.cost.fuel_per_item,
                budget_per_item: report.cost.budget_per_item,
                behaviour: hex(&report.behaviour),
                levels: report.levels.iter().map(|level| level.name().to_owned()).collect(),
                misses: report.misses.iter().map(|(level, why)| (level.name().to_owned(), (*why).to_owned())).collect(),
            },
        }
    }
}

/// Why a check has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// The component is refused.
    Refused(Rejected),
    /// This machine could not check it.
    Unavailable(String),
}

/// Checks the component in `file`. Blocks until done.
///
/// # Errors
/// See [`CheckError`].
pub fn check(file: &Path, world: Option<World>, config: &str) -> Result<Found, CheckError> {
    let unavailable = |error: std::io::Error| CheckError::Unavailable(format!("the check cannot be run: {error}"));
    // This process's own executable, even if another file has its name by now.
    let mut command = Command::new("/proc/self/exe");
    command.arg(COMMAND).arg("--file").arg(file).args(["--config", config]);
    if let Some(world) = world {
        command.args(["--world", world.name()]);
    }
    command.env_clear().current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().map_err(unavailable)?;
    let read = |stream: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(stream) = stream {
                let _ = stream.take(ANSWER_BYTES_MAX).read_to_end(&mut text);
            }
            text
        })
    };
    let answer = read(child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let complaint = read(child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let status = loop {
        if let Some(status) = child.try_wait().map_err(unavailable)? {
            break status;
        }
        if start.elapsed() > CHECK_TIMEOUT {
            let _ = child.kill();
            let _ = child.wait();
            let text = format!("checking it took longer than {} s; make it smaller", CHECK_TIMEOUT.as_secs());
            return Err(CheckError::Refused(text.into()));
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let answer = answer.join().unwrap_or_default();
    let complaint = String::from_utf8_lossy(&complaint.join().unwrap_or_default()).trim().to_owned();
    match serde_json::from_slice(&answer) {
        Ok(Answer::Passed(found)) if status.success() => Ok(*found),
        Ok(Answer::Refused(rejected)) => Err(CheckError::Refused(rejected)),
        _ => Err(CheckError::Refused(ended_badly(status, &complaint).into())),
    }
}

/// Describes a check that ended without an answer.
fn ended_badly(status: std::process::ExitStatus, complaint: &str) -> String {
    use std::os::unix::process::ExitStatusExt;
    const SIGKILL: i32 = 9;
    const SIGXCPU: i32 = 24;
    match status.signal() {
        Some(SIGKILL | SIGXCPU) => {
            format!("checking it took more than {CPU_S_MAX} s of processor time; make it smaller")
        }
        _ => format!(
            "checking it failed within {} MiB of memory ({status}): {}",
            DATA_BYTES_MAX >> 20,
            complaint.lines().last().unwrap_or("it said nothing")
        ),
    }
}

/// Runs the hidden command: limits itself, checks, and answers on standard output.
///
/// # Errors
/// If the limits cannot be set or the file cannot be read. A refusal is an answer, not an error.
pub fn run(file: &Path, world: Option<&str>, config: &str) -> Result<(), String> {
    for (resource, max) in [
        (Resource::Cpu, CPU_S_MAX),
        (Resource::As, ADDRESS_BYTES_MAX),
        (Resource::Data, DATA_BYTES_MAX),
        (Resource::Core, 0),
    ] {
        setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) })
            .map_err(|error| format!("a check runs under limits, which cannot be set: {error}"))?;
    }
    let bytes = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let answer = match examine(&bytes, world, config) {
        Ok(found) => Answer::Passed(Box::new(found)),
        Err(rejected) => Answer::Refused(rejected),
    };
    println!("{}", serde_json::to_string(&answer).map_err(|error| error.to_string())?);
    Ok(())
}

fn examine(bytes: &[u8], world: Option<&str>, config: &str) -> Result<Found, Rejected> {
    let expected = match world {
        Some(name) => Some(World::by_name(name).ok_or_else(|| format!("there is no world `{name}`"))?),
        None => None,
    };
    // Two instances: one running, one idle; everything that affects fuel and memory is as in production.
    let limits = PluginLimits { instances_max: 2, ..PluginLimits::default() };
    let engine = PluginEngine::new(limits).map_err(|error| error.to_string())?;
    let report = conformance::check(&engine, bytes, config, expected).map_err(|failure| Rejected::from(&failure))?;
    let mut found = Found::from(report);
    (found.checked.config, found.checked.engine) = (config.to_owned(), engine.fingerprint().to_string());
    Ok(found)
}
