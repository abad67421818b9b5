//! The optional interface `traces` of a LogAdaptor: the trace context of each record of a batch.
//!
//! A host that supports the interface calls `begin` before `encode`. Other hosts only call `encode`; the batch then has no
//! traces.

use core::cell::RefCell;
use core::mem;

pub use crate::bindings::traces::exports::tribunal::plugin_traces::traces::Traceparents;

/// The `traceparent`s of a batch's records.
#[derive(Clone, Debug)]
pub struct Traces(Traceparents);

impl Traces {
    /// Returns the `traceparent` (W3C Trace Context) of record `record`, if it has one.
    #[must_use]
    pub fn of(&self, record: usize) -> Option<&str> {
        let end = |record: usize| self.0.ends.get(record).map(|&end| end as usize);
        let start = if record == 0 { Some(0) } else { end(record - 1) }?;
        let text = core::str::from_utf8(self.0.bytes.get(start..end(record)?)?).ok()?;
        (!text.is_empty()).then_some(text)
    }
}

impl From<Traceparents> for Traces {
    fn from(columns: Traceparents) -> Self {
        Traces(columns)
    }
}

impl Default for Traces {
    fn default() -> Self {
        Traces(Traceparents { ends: Default::default(), bytes: Default::default() })
    }
}

/// Holds the argument of `begin` for `encode`. Used by `export_adaptor!`.
#[derive(Debug, Default)]
pub struct Begun(RefCell<Option<Traces>>);

// SAFETY: a plugin runs on a single thread; on other targets the macros define no `static` of this type.
#[cfg(target_arch = "wasm32")]
unsafe impl Sync for Begun {}

impl Begun {
    /// Creates an empty value.
    #[must_use]
    pub const fn new() -> Self {
        Begun(RefCell::new(None))
    }

    /// Sets the traces of the next batch.
    pub fn tell(&self, traces: Traces) {
        *self.0.borrow_mut() = Some(traces);
    }

    /// Takes the traces of the next batch.
    #[must_use]
    pub fn take(&self) -> Traces {
        mem::take(&mut *self.0.borrow_mut()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(texts: &[&str]) -> Traces {
        let mut columns = Traceparents { ends: Default::default(), bytes: Default::default() };
        for text in texts {
            columns.bytes.extend_from_slice(text.as_bytes());
            columns.ends.push(columns.bytes.len() as u32);
        }
        Traces::from(columns)
    }

    #[test]
    fn each_record_has_its_own_trace_or_none() {
        let told = traces(&["", "00-a-b-01", "", "00-c-d-01"]);
        let all: [Option<&str>; 5] = core::array::from_fn(|record| told.of(record));
        assert_eq!(all, [None, Some("00-a-b-01"), None, Some("00-c-d-01"), None]);
    }

    #[test]
    fn traces_are_taken_once() {
        let begun = Begun::new();
        begun.tell(traces(&["00-a-b-01"]));
        assert_eq!(begun.take().of(0), Some("00-a-b-01"));
        assert_eq!(begun.take().of(0), None, "the next batch has its own traces");
    }

    #[test]
    fn inconsistent_columns_give_no_traces() {
        let broken = Traces::from(Traceparents { ends: [9, 3].into(), bytes: (*b"abc").into() });
        assert_eq!((broken.of(0), broken.of(1)), (None, None));
    }
}
