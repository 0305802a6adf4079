//! Waiting for time to pass.
//!
//! Promises: nothing fires early by the clock of the one who waits. Real timers are tokio's; simulated ones fire when nothing else
//! can run, in the order of their times. Refuses to know: what is waited for, wall time.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use crate::tasks::{DomainId, Scheduler};

/// Longer waits end after a year all the same: no sum of times overflows.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// The source of timers. Cheap to clone.
#[derive(Clone, Debug)]
pub enum Timers {
    /// Those of the tokio runtime that polls the future.
    Runtime,
    /// Virtual time of one domain of a simulation.
    Simulated(Arc<Scheduler>, DomainId),
}

impl Timers {
    /// Done once `how_long` has passed since this call.
    pub fn sleep(&self, how_long: Duration) -> impl Future<Output = ()> + Send + use<> {
        let how_long = how_long.min(LONGEST);
        let alarm = match self {
            Timers::Runtime => Alarm::Runtime(Instant::now() + how_long),
            Timers::Simulated(scheduler, domain) => Alarm::Simulated(SimSleep::new(scheduler, *domain, how_long)),
        };
        async move {
            match alarm {
                Alarm::Runtime(at) => sleep_until(at).await,
                Alarm::Simulated(sleep) => sleep.await,
            }
        }
    }

    /// Waits for the future, at most `how_long` from this call; `None` says that it was too late, and the future is dropped.
    pub fn timeout<F>(&self, how_long: Duration, future: F) -> impl Future<Output = Option<F::Output>> + Send + use<F>
    where
        F: Future + Send,
    {
        let sleep = self.sleep(how_long);
        async move {
            let (mut future, mut sleep) = (pin!(future), pin!(sleep));
            poll_fn(|context| match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
            })
            .await
        }
    }
}

enum Alarm {
    Runtime(Instant),
    Simulated(SimSleep),
}

struct SimSleep {
    scheduler: Arc<Scheduler>,
    domain: DomainId,
    /// In the domain's monotonic time. `None`: the domain was killed before, so that time never comes.
    at: Option<Duration>,
    /// The number of the timer, once it is set.
    timer: Option<u64>,
}

impl SimSleep {
    fn new(scheduler: &Arc<Scheduler>, domain: DomainId, how_long: Duration) -> SimSleep {
        let at = scheduler.local_time(domain).map(|now| now + how_long);
        SimSleep { scheduler: scheduler.clone(), domain, at, timer: None }
    }

    fn forget(&mut self) {
        if let (Some(at), Some(number)) = (self.at, self.timer.take()) {
            self.scheduler.take_timer(self.domain, at, number);
        }
    }
}

impl Future for SimSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.forget();
        let (Some(at), Some(now)) = (self.at, self.scheduler.local_time(self.domain)) else { return Poll::Pending };
        if now >= at {
            return Poll::Ready(());
        }
        self.timer = Some(self.scheduler.set_timer(self.domain, at, context.waker()));
        Poll::Pending
    }
}

impl Drop for SimSleep {
    fn drop(&mut self) {
        self.forget();
    }
}
