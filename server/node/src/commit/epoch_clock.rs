//! The clock of batches and ids: Unix time that rises at a bounded rate.
//!
//! `epoch_time` never falls, so one wrong reading of the wall clock would last until real time caught up with it. The
//! wall clock is therefore not used directly. Time advances with the monotonic clock, and is corrected towards the wall
//! clock:
//! * within [`TOLERANCE_MS`] of it, at once, at no more than twice real time;
//! * beyond that, the wall clock is distrusted and reported. A difference that ends within [`HOLD_MS`] changes nothing.
//!   After that, time rises by at most [`RISE_MAX`] times real time until it has caught up, or does not rise until the
//!   wall clock has.
//!
//! The bound on the rise keeps ids made from this clock valid: `ID_WINDOW_MS` of it take at least `ID_WINDOW_MS /
//! RISE_MAX` of real time. Invariant: no reading is below an earlier one, nor below the time of the log.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use rustix::time::{ClockId, clock_gettime};

/// Maximum difference at which the wall clock is trusted, milliseconds.
const TOLERANCE_MS: i64 = 1_000;
/// How long a greater difference must last before time follows it, milliseconds.
const HOLD_MS: i64 = 10_000;
/// Maximum rate of this clock relative to real time.
const RISE_MAX: i64 = 4;
/// A start that finds the wall clock further past the log than this reads it again after [`SECOND_LOOK`], milliseconds.
const SECOND_LOOK_ABOVE_MS: i64 = 60 * 60 * 1000;
/// Time between the two readings of such a start.
const SECOND_LOOK: Duration = Duration::from_secs(1);

/// A reading of both clocks of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Unix time, microseconds.
    pub wall_us: i64,
    /// Time since the machine booted, including sleep, microseconds.
    pub monotonic_us: i64,
}

/// Reads both clocks.
pub type ReadClocks = Box<dyn Fn() -> Reading + Send + Sync>;

/// The epoch clock.
pub struct EpochClock {
    read: ReadClocks,
    state: Mutex<State>,
}

struct State {
    time_us: i64,
    monotonic_us: i64,
    /// The wall clock minus this one, microseconds.
    offset_us: i64,
    /// When distrust of the wall clock began, by the monotonic clock.
    distrusted_since_us: Option<i64>,
    /// Number of times distrust began.
    jumps: u64,
}

/// How the wall clock differs from this one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockState {
    /// The wall clock minus this one, milliseconds.
    pub offset_ms: i64,
    /// The difference is too large to be corrected at once.
    pub distrusted: bool,
    /// The distrust has lasted, so it is no short jump.
    pub lasting: bool,
    /// Number of times distrust began since the start.
    pub jumps: u64,
}

impl ClockState {
    /// Describes a distrusted clock, for operators; returns `None` for a trusted one.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let (side, effect) = if self.offset_ms > 0 {
            ("is ahead of", "it is followed at a bounded rate if it stays there")
        } else {
            ("is behind", "time does not rise until it has caught up")
        };
        self.distrusted.then(|| {
            format!(
                "the system clock {side} the node's time by {:.1} s: {effect}. Transaction ids from Begin stay valid; ids \
                 that clients make are refused if they are more than 10 minutes off the node's time. Check the \
                 system's clock synchronisation",
                self.offset_ms.unsigned_abs() as f64 / 1000.0
            )
        })
    }
}

impl EpochClock {
    /// Starts at the wall clock, or at `log_time_ms`, the last `epoch_time` of the log, if that is later.
    #[must_use]
    pub fn start(log_time_ms: u64) -> EpochClock {
        EpochClock::with(Box::new(system_clocks), log_time_ms, || std::thread::sleep(SECOND_LOOK))
    }

    /// Starts as [`EpochClock::start`] does, with other clocks. `wait` passes the time between two readings.
    fn with(read: ReadClocks, log_time_ms: u64, wait: impl FnOnce()) -> EpochClock {
        let log_us = i64::try_from(log_time_ms.saturating_mul(1000)).unwrap_or(i64::MAX);
        let mut first = read();
        let mut time_us = first.wall_us;
        if log_us > 0 && time_us.saturating_sub(log_us) > SECOND_LOOK_ABOVE_MS * 1000 {
            wait();
            let second = read();
            // A forward jump that began or ended in between has no effect: the lower reading counts.
            let passed = second.monotonic_us - first.monotonic_us;
            time_us = second.wall_us.min(first.wall_us.saturating_add(passed));
            first = second;
        }
        let time_us = time_us.max(log_us);
        let state =
            State { time_us, monotonic_us: first.monotonic_us, offset_us: 0, distrusted_since_us: None, jumps: 0 };
        let clock = EpochClock { read, state: Mutex::new(state) };
        let _ = clock.now_us();
        clock
    }

    /// Returns the current time, Unix microseconds.
    pub fn now_us(&self) -> u64 {
        let reading = (self.read)();
        let mut state = self.state.lock();
        state.advance(reading);
        u64::try_from(state.time_us).unwrap_or(0)
    }

    /// Returns the current time, Unix milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_us() / 1000
    }

    /// Reads the clocks and returns their difference.
    pub fn check(&self) -> ClockState {
        let reading = (self.read)();
        let mut state = self.state.lock();
        state.advance(reading);
        ClockState {
            offset_ms: state.offset_us / 1000,
            distrusted: state.distrusted_since_us.is_some(),
            lasting: state.distrusted_since_us.is_some_and(|since| state.monotonic_us - since >= HOLD_MS * 1000),
            jumps: state.jumps,
        }
    }
}

impl State {
    fn advance(&mut self, reading: Reading) {
        // Two threads may read in one order and get here in the other.
        let passed = reading.monotonic_us.saturating_sub(self.monotonic_us).max(0);
        self.monotonic_us = self.monotonic_us.max(reading.monotonic_us);
        let offset = reading.wall_us.saturating_sub(self.time_us.saturating_add(passed));
        let correction = if offset.abs() <= TOLERANCE_MS * 1000 {
            if self.distrusted_since_us.take().is_some() {
                tracing::info!(offset_ms = offset / 1000, "the system clock agrees with the node's time again");
            }
            offset.clamp(-passed, passed)
        } else {
            let since = *self.distrusted_since_us.get_or_insert_with(|| {
                self.jumps += 1;
                tracing::warn!(
                    offset_ms = offset / 1000,
                    "the system clock jumped, or differs from the log's time; the node's time follows at a bounded rate"
                );
                reading.monotonic_us
            });
            if reading.monotonic_us.saturating_sub(since) < HOLD_MS * 1000 {
                0
            } else {
                offset.clamp(-passed, passed.saturating_mul(RISE_MAX - 1))
            }
        };
        self.time_us = self.time_us.saturating_add(passed.saturating_add(correction));
        self.offset_us = reading.wall_us.saturating_sub(self.time_us);
    }
}

fn system_clocks() -> Reading {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let boot = clock_gettime(ClockId::Boottime);
    Reading {
        wall_us: i64::try_from(since.as_micros()).unwrap_or(i64::MAX) + crate::planted::clock_offset_us(),
        monotonic_us: boot.tv_sec.saturating_mul(1_000_000).saturating_add(boot.tv_nsec / 1000),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicI64, Ordering};

    use tribunal_core::epochs::Epochs;
    use tribunal_types::{Batch, Epoch, FenceItem, GroupId, limits};

    use super::*;

    const SECOND: i64 = 1_000_000;
    const HOUR: i64 = 3600 * SECOND;
    const YEAR: i64 = 365 * 24 * HOUR;
    const START: i64 = 1_700_000_000 * SECOND;

    /// Two clocks under the test's control.
    #[derive(Clone, Default)]
    struct Clocks(Arc<(AtomicI64, AtomicI64)>);

    impl Clocks {
        fn at(real: i64) -> Clocks {
            let clocks = Clocks::default();
            clocks.0.0.store(real, Ordering::Relaxed);
            clocks
        }

        fn pass(&self, us: i64) {
            self.0.0.fetch_add(us, Ordering::Relaxed);
        }

        fn jump(&self, us: i64) {
            self.0.1.fetch_add(us, Ordering::Relaxed);
        }

        fn real_us(&self) -> i64 {
            self.0.0.load(Ordering::Relaxed)
        }

        fn wall_us(&self) -> i64 {
            self.real_us() + self.0.1.load(Ordering::Relaxed)
        }

        fn clock(&self, log_time_ms: u64) -> EpochClock {
            let (these, waiting) = (self.clone(), self.clone());
            let read = move || Reading { wall_us: these.wall_us(), monotonic_us: these.real_us() };
            EpochClock::with(Box::new(read), log_time_ms, move || {
                waiting.pass(SECOND / 2);
                waiting.jump(-waiting.0.1.load(Ordering::Relaxed));
                waiting.pass(SECOND / 2);
            })
        }
    }

    /// The fold of a node's batches, each stamped with the clock's reading.
    struct Log {
        epochs: Epochs,
        next: Epoch,
    }

    impl Log {
        fn new() -> Log {
            Log { epochs: Epochs::new(&[GroupId::default()], Epoch(1), 0), next: Epoch(1) }
        }

        /// Seals an epoch; returns its time.
        fn seal(&mut self, clock_ms: u64) -> u64 {
            let fences = vec![FenceItem { id: Default::default(), namespace: Default::default() }];
            let batch = Batch { first: self.next, last: self.next, clock_ms, fences, ..Batch::default() };
            self.epochs.entry(Arc::new(batch));
            self.next = self.next.next();
            assert!(self.epochs.poll().is_some(), "complete");
            self.epochs.epoch_time_ms()
        }
    }

    fn within_window(id_ms: u64, epoch_time_ms: u64) -> bool {
        id_ms.abs_diff(epoch_time_ms) <= limits::ID_WINDOW_MS
    }

    #[test]
    fn a_jump_of_the_system_clock_expires_no_id_and_is_over_with_it() {
        for jump in [HOUR, 24 * HOUR, YEAR, -HOUR, -24 * HOUR, -YEAR] {
            let clocks = Clocks::at(START);
            let clock = clocks.clock(0);
            let (mut log, mut unguarded) = (Log::new(), Log::new());
            for step in 0..1000 {
                clocks.pass(SECOND / 10);
                match step {
                    500 => clocks.jump(jump),
                    503 => clocks.jump(-jump),
                    _ => {}
                }
                // A client's id uses real time; the server's uses its clock, up to a minute ago.
                let client_ms = (clocks.real_us() / 1000) as u64;
                let server_ms = clock.now_ms().saturating_sub(60_000);
                let time_ms = log.seal(clock.now_ms());
                assert!(within_window(client_ms, time_ms), "{jump}, {step}: {client_ms} at {time_ms}");
                assert!(within_window(server_ms, time_ms), "{jump}, {step}: {server_ms} at {time_ms}");
                let state = clock.check();
                assert_eq!(state.distrusted, (500..503).contains(&step), "{jump}, {step}");
                assert_eq!(state.problem().is_some(), state.distrusted);
                assert_eq!(state.jumps, u64::from(step >= 500), "{jump}, {step}");
                // Without the bound, a forward jump lasts.
                let unguarded_ms = unguarded.seal((clocks.wall_us() / 1000) as u64);
                assert_eq!(within_window(client_ms, unguarded_ms), jump < 0 || step < 500, "{jump}, {step}");
            }
        }
    }

    #[test]
    fn a_lasting_difference_is_followed_at_a_bounded_rate() {
        let clocks = Clocks::at(START);
        let clock = clocks.clock(0);
        clocks.jump(HOUR);
        let mut before = clock.now_us() as i64;
        let mut caught_up_after = None;
        for second in 1..3600 {
            clocks.pass(SECOND);
            let now = clock.now_us() as i64;
            assert!((SECOND..=RISE_MAX * SECOND).contains(&(now - before)), "{second}: {}", now - before);
            before = now;
            if caught_up_after.is_none() && !clock.check().distrusted {
                caught_up_after = Some(second);
            }
        }
        let caught_up_after = caught_up_after.expect("the wall clock is trusted again");
        assert!((1200..1220).contains(&caught_up_after), "{caught_up_after}");
        assert_eq!(clock.now_us() as i64, clocks.wall_us());
    }

    #[test]
    fn time_waits_for_a_clock_that_was_set_back() {
        let clocks = Clocks::at(START);
        let clock = clocks.clock(0);
        clocks.jump(-HOUR);
        let mut before = clock.now_us();
        for _ in 0..3700 {
            clocks.pass(SECOND);
            let now = clock.now_us();
            assert!(now >= before, "time fell");
            before = now;
        }
        assert_eq!(clock.now_us() as i64, clocks.wall_us());
        assert!(!clock.check().distrusted);
    }

    #[test]
    fn a_start_amid_a_jump_takes_the_time_that_is_there_afterwards() {
        for jump in [HOUR * 2, 24 * HOUR, YEAR] {
            let clocks = Clocks::at(START);
            let log_time_ms = ((START - SECOND) / 1000) as u64;
            clocks.jump(jump);
            let clock = clocks.clock(log_time_ms);
            assert_eq!(clock.now_us() as i64, clocks.real_us(), "{jump}");
        }
    }

    #[test]
    fn a_log_ahead_of_the_clock_keeps_its_time_and_the_servers_ids_valid() {
        let clocks = Clocks::at(START);
        let log_time_ms = ((START + 24 * HOUR) / 1000) as u64;
        let clock = clocks.clock(log_time_ms);
        let mut log = Log::new();
        log.seal(log_time_ms);
        for _ in 0..100 {
            clocks.pass(SECOND);
            let id_ms = clock.now_ms();
            assert!(within_window(id_ms, log.seal(clock.now_ms())));
        }
        let state = clock.check();
        assert!(state.distrusted && state.problem().is_some_and(|text| text.contains("is behind the node's time")));
        // It did not rise after the first seconds, so the difference shrinks.
        assert!(clock.now_ms() - log_time_ms <= (HOLD_MS + 1000) as u64);
    }
}
