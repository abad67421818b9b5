//! HTTP/2 streams whose client does not read: hyper polls a body only when the frame before was taken, and the connection
//! itself is busy with the answers to pings. So each stream notes when its body handed out a frame, and is cut, it alone,
//! when the next one was not asked for in time. A body in HTTP/1 is bounded by the connection's writes
//! ([`crate::listener::connection`]).

use std::cell::Cell;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;
use tokio::time::{Instant, Sleep};

use crate::counters;

tokio::task_local! {
    /// Since when a frame of this stream's body waits, if one does.
    static WAITING_SINCE: Cell<Option<Instant>>;
}

/// Notes that the next frame of a body is asked for: the one before was taken.
pub(crate) fn polled() {
    // Outside of HTTP/2 nobody asks.
    let _ = WAITING_SINCE.try_with(|since| since.set(None));
}

/// Notes that a body handed out a frame.
pub(crate) fn handed_out() {
    let _ = WAITING_SINCE.try_with(|since| since.set(Some(Instant::now())));
}

/// Runs the streams of HTTP/2 connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamExecutor {
    /// How long a frame may wait.
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

/// Completes when a frame has waited for so long. To be polled after the stream: what that notes wakes nobody.
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

    /// Tells whether a stream whose frame waits for so long lasts.
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
