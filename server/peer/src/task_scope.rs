//! The tasks that hyper starts for one connection. They end with it: otherwise hyper's task would keep its socket until
//! the peer closes it.

use std::sync::Arc;

use hyper::rt::Executor;
use parking_lot::Mutex;
use tokio::task::JoinSet;

/// Starts tasks for one connection; a clone starts them in the same scope.
#[derive(Clone)]
pub(crate) struct TaskScope(Arc<Mutex<Option<JoinSet<()>>>>);

/// Ends the tasks of its scope when dropped.
pub(crate) struct ScopeGuard(TaskScope);

impl TaskScope {
    pub(crate) fn new() -> (TaskScope, ScopeGuard) {
        let scope = TaskScope(Arc::new(Mutex::new(Some(JoinSet::new()))));
        (scope.clone(), ScopeGuard(scope))
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for TaskScope {
    fn execute(&self, future: F) {
        if let Some(tasks) = &mut *self.0.lock() {
            while tasks.try_join_next().is_some() {}
            tasks.spawn(future);
        }
    }
}

impl Drop for ScopeGuard {
    fn drop(&mut self) {
        // Drop the tasks outside of the lock: they hold clones of the scope.
        let tasks = self.0.0.lock().take();
        drop(tasks);
    }
}
