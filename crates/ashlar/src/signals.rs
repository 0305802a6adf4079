//! The word to end: SIGTERM, or an interrupt from the keyboard.

use std::io;
use tokio::signal::unix::{SignalKind, signal};

/// Completes at the first such signal. They are caught from now on, not only once this is awaited.
pub fn end_asked() -> io::Result<impl Future<Output = ()> + Send> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
            _ = interrupt.recv() => tracing::info!("interrupted: ending"),
        }
    })
}
