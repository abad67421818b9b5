//! Values that exist once per tokio runtime that uses a client. The tasks of a runtime make progress only while it
//! runs: a runtime that has paused or ended must not block the other ones, so they share neither connections nor
//! queues.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Handle, Id};

/// Number of runtimes that are kept. The value of an older one is created again if it returns.
const RUNTIMES_MAX: usize = 64;

pub(crate) struct PerRuntime<T> {
    /// The oldest is first.
    values: Mutex<VecDeque<(Id, T)>>,
}

impl<T: Clone> PerRuntime<T> {
    pub(crate) fn new() -> Self {
        PerRuntime { values: Mutex::default() }
    }

    /// Returns the value of the current runtime, which `create` creates if there is none yet.
    ///
    /// # Panics
    /// Outside a runtime, as everything that uses the network does.
    pub(crate) fn get(&self, create: impl FnOnce() -> T) -> T {
        let runtime = Handle::current().id();
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = values.iter().find(|(known, _)| *known == runtime) {
            return value.clone();
        }
        if values.len() == RUNTIMES_MAX {
            values.pop_front();
        }
        let value = create();
        values.push_back((runtime, value.clone()));
        value
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::runtime::{Builder, Runtime};

    use super::*;

    #[test]
    fn each_runtime_has_a_value_of_its_own_and_a_bounded_number_is_kept() {
        let (values, created) = (PerRuntime::new(), AtomicUsize::new(0));
        let runtime = || Builder::new_current_thread().build().expect("a runtime");
        let get = |runtime: &Runtime| {
            let _entered = runtime.enter();
            values.get(|| created.fetch_add(1, Ordering::Relaxed))
        };
        let (one, other) = (runtime(), runtime());
        assert_eq!([get(&one), get(&other), get(&one), get(&other)], [0, 1, 0, 1]);
        for _ in 0..RUNTIMES_MAX {
            get(&runtime());
        }
        assert_eq!(values.values.lock().expect("no panic").len(), RUNTIMES_MAX);
        assert_eq!(get(&one), RUNTIMES_MAX + 2, "the oldest is created again");
    }
}
