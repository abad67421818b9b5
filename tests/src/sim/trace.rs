//! The trace of a run, to be read by people and compared by bytes.

use std::fmt::{self, Write};

/// The lines of a run. The digest covers all of them; they are kept only on request.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    lines: Option<Vec<String>>,
    /// FNV-1a of all lines.
    digest: u64,
    line: String,
}

impl Trace {
    /// Creates an empty trace.
    #[must_use]
    pub fn new(keep: bool) -> Trace {
        Trace { lines: keep.then(Vec::new), digest: 0xCBF2_9CE4_8422_2325, line: String::new() }
    }

    /// Adds a line, at a time in microseconds.
    pub fn note(&mut self, time_us: u64, what: fmt::Arguments<'_>) {
        self.line.clear();
        let _ = write!(self.line, "{:>10.3} ms  {what}", time_us as f64 / 1000.0);
        for byte in self.line.bytes() {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        }
        self.lines.iter_mut().for_each(|lines| lines.push(self.line.clone()));
    }

    /// Returns the digest of all lines.
    #[must_use]
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the lines, if they were kept.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }
}
