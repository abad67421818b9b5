//! The context of a figure: the machine, its load, the code's commit, and CPU time. Reads Linux's `/proc`; missing
//! values are reported as unknown rather than guessed.

use std::fs;
use std::process::Command;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The machine of a measurement.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Processor model.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// Load average of the last minute, before the measurement.
    pub load_1m: String,
    /// Commit of the working directory, `+` if it has changes.
    pub commit: String,
    /// Date, UTC.
    pub date: String,
}

impl Machine {
    /// Inspects this machine.
    #[must_use]
    pub fn look() -> Machine {
        let first_word = |path: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            text.split_whitespace().next().unwrap_or("unknown").to_owned()
        };
        Machine {
            cpu: field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: field("/proc/meminfo", "MemTotal")
                .and_then(|text| text.split(' ').next()?.parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            kernel: first_word("/proc/sys/kernel/osrelease"),
            load_1m: first_word("/proc/loadavg"),
            commit: commit(),
            date: said("date", &["-u", "+%Y-%m-%d %H:%M"]).unwrap_or_else(|| "unknown".to_owned()),
        }
    }

    /// Describes the machine in one line.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{}, {} cores, {} MiB, Linux {}, load {}, commit {}, {} UTC",
            self.cpu, self.cores, self.memory_mib, self.kernel, self.load_1m, self.commit, self.date
        )
    }
}

fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn commit() -> String {
    let Some(hash) = said("git", &["rev-parse", "--short=10", "HEAD"]) else { return "unknown".to_owned() };
    let changed = said("git", &["status", "--porcelain", "--untracked-files=no"]).is_none_or(|text| !text.is_empty());
    if changed { hash + "+" } else { hash }
}

/// Returns the CPU time that this process has used.
#[must_use]
pub fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns the user and system CPU time that process `pid` has used; `None` if there is no such process.
#[must_use]
pub fn cpu_of(pid: u32) -> Option<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    ticks_in(&stat).map(|ticks| Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Adds fields 14 and 15 of a `/proc/PID/stat` line. The second field may contain spaces and parentheses.
fn ticks_in(stat: &str) -> Option<u64> {
    let behind_name = &stat[stat.rfind(')')? + 1..];
    let mut fields = behind_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_ticks_are_parsed_after_an_unusual_process_name() {
        let stat = "7 (a b) c)) S 1 7 7 0 -1 4194304 100 0 0 0 25 17 0 0 20 0 4 0 100 0 0";
        assert_eq!(ticks_in(stat), Some(42));
    }

    #[test]
    fn own_cpu_time_passes() {
        let before = own_cpu();
        let mut sum = 0_u64;
        while own_cpu() == before {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(cpu_of(std::process::id()).is_some());
    }
}
