//! The clock that hyper limits the wait for a request's head with: one alarm for a connection, set anew when it rings too early.
//!
//! hyper asks for a timer for every head and drops it when the head has come. The runtime's own timers take a lock that all
//! connections share, twice a request; the alarm takes it once in the time that a head may take.
//!
//! Promises: rings at the deadline or after it, never before. Refuses to know: what is waited for.

use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::time::{self, Instant};

type Alarm = Arc<Mutex<Pin<Box<time::Sleep>>>>;

/// The timer of one connection, for one wait at a time.
pub struct HeadTimer(Alarm);

impl HeadTimer {
    /// Within a runtime.
    pub fn new() -> HeadTimer {
        HeadTimer(Arc::new(Mutex::new(Box::pin(time::sleep_until(Instant::now())))))
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: std::time::Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: std::time::Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Wait { deadline: deadline.into(), alarm: Arc::clone(&self.0) })
    }

    fn now(&self) -> std::time::Instant {
        Instant::now().into_std()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: std::time::Instant) {
        *sleep = self.sleep_until(new_deadline);
    }
}

/// One wait.
struct Wait {
    deadline: Instant,
    alarm: Alarm,
}

impl Sleep for Wait {}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut alarm = self.alarm.lock();
        loop {
            if alarm.deadline() > self.deadline {
                alarm.as_mut().reset(self.deadline);
            }
            // Set for an earlier wait, most likely: as long as it has not rung our time has not come either.
            ready!(alarm.as_mut().poll(context));
            if alarm.deadline() == self.deadline {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(self.deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::HeadTimer;
    use hyper::rt::Timer;
    use std::future::poll_fn;
    use std::pin::Pin;
    use std::task::Poll;
    use std::time::Duration;
    use tokio::time::{Instant, advance};

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_wait_ends_at_its_own_deadline_whatever_the_alarm_was_set_to_before() {
        let timer = HeadTimer::new();
        let began = Instant::now();
        for (wait, given_up_after) in
            [(15, Some(1)), (15, Some(9)), (15, Some(14)), (15, None), (3, None), (20, Some(2)), (4, None)]
        {
            let start = Instant::now();
            let mut sleep = timer.sleep(wait * SECOND);
            match given_up_after {
                Some(seconds) => {
                    for _ in 0..seconds {
                        let rings = poll_fn(|cx| Poll::Ready(Pin::new(&mut sleep).poll(cx).is_ready())).await;
                        assert!(!rings, "{wait} s after {:?}", began.elapsed());
                        advance(SECOND).await;
                    }
                }
                None => {
                    sleep.await;
                    let took = start.elapsed();
                    assert!(took >= wait * SECOND && took < (wait + 1) * SECOND, "{took:?} instead of {wait} s");
                }
            }
        }
    }
}
