//! Cuts HTTP/2 streams that their client does not read: hyper polls a body only after the previous frame was taken, and
//! the connection itself is kept busy by ping replies. So each stream records when its body handed out a frame, and
//! only this stream is cut when the next frame is not polled in time. A body in HTTP/1 is bounded by the connection's
//! writes ([`crate::listener::connection`]).

use std::cell::Cell;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};

use crate::counters;

tokio::task_local! {
    /// When the pending frame of this stream's body was handed out, if there is one.
    static WAITING_SINCE: Cell<Option<Instant>>;
}

/// Records that the next frame of a body is polled: the previous one was taken.
pub(crate) fn polled() {
    // Outside HTTP/2, the value is not used.
    let _ = WAITING_SINCE.try_with(|since| since.set(None));
}

/// Records that a body handed out a frame.
pub(crate) fn handed_out() {
    let _ = WAITING_SINCE.try_with(|since| since.set(Some(Instant::now())));
}

/// Runs the streams of HTTP/2 connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExecutor {
    /// Time limit for a pending frame.
    pub unread_timeout: Duration,
}

impl<S> Executor<S> for StreamExecutor
where
    S: Future + Send + 'static,
    S::Output: Send + 'static,
{
    fn execute(&self, stream: S) {
        let unread_timeout = self.unread_timeout;
        tokio::spawn(WAITING_SINCE.scope(Cell::default(), async move {
            tokio::select! {
                biased;
                _ = stream => {}
                // Dropping the stream resets it.
                () = unread_for(unread_timeout) => counters::unread(),
            }
        }));
    }
}

/// Completes when a frame has been pending for `timeout`. Poll it after the stream, whose records wake no task.
async fn unread_for(timeout: Duration) {
    let mut timer: Option<Pin<Box<Sleep>>> = None;
    std::future::poll_fn(|cx| {
        let Some(since) = WAITING_SINCE.with(Cell::get) else { return Poll::Pending };
        let until = since + timeout;
        let timer = timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(cx)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a stream survives when a frame is pending for `waits`.
    async fn lasts(unread_timeout: Duration, waits: Duration, takes_it: bool) -> bool {
        let (told, ended) = tokio::sync::oneshot::channel();
        StreamExecutor { unread_timeout }.execute(async move {
            handed_out();
            if takes_it {
                polled();
            }
            tokio::time::sleep(waits).await;
            let _ = told.send(());
        });
        ended.await.is_ok()
    }

    #[tokio::test]
    async fn a_stream_is_cut_when_a_frame_waits_too_long() {
        let (short, long, hour) = (Duration::from_millis(20), Duration::from_millis(200), Duration::from_secs(3600));
        assert!(!lasts(short, hour, false).await);
        assert!(lasts(short, long, true).await, "nothing waits");
        assert!(lasts(hour, long, false).await, "it may wait a while");
    }
}
