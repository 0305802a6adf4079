//! A handle on a simulated file.
//!
//! Promises: as the real one: asserted alignment, errors that stick to the handle. Refuses to know: how content is kept.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::state::State;
use crate::counters::Counters;
use crate::disk::{Caching, DiskFile, Open, assert_direct};

#[derive(Debug)]
pub(super) struct SimFile {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) id: u64,
    pub(super) how: Open,
    pub(super) caching: Caching,
    pub(super) failed: AtomicBool,
    pub(super) counters: Arc<Counters>,
}

impl SimFile {
    /// Runs a mutation; an error sticks if `is_final` says so of its kind.
    fn mutate(
        &self,
        is_final: impl Fn(ErrorKind) -> bool,
        call: impl FnOnce(&mut State) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.how == Open::Read {
            return Err(ErrorKind::PermissionDenied.into());
        }
        self.refuse_if_failed()?;
        let result = call(&mut self.state.lock());
        if result.as_ref().is_err_and(|error| is_final(error.kind())) {
            self.failed.store(true, Ordering::Release);
        }
        result
    }

    fn refuse_if_failed(&self) -> io::Result<()> {
        match self.failed.load(Ordering::Acquire) {
            true => Err(io::Error::other("an earlier write or sync of this file failed")),
            false => Ok(()),
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        assert_direct(self.caching, buf, offset);
        let result = self.state.lock().read(self.id, buf, offset);
        self.counters.read(&result);
        result
    }

    fn read_at_cached(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        assert_direct(self.caching, buf, offset);
        // Cached or not, by the seed: callers must be right either way.
        if self.caching == Caching::Direct || self.state.lock().random.coin() {
            return Ok(None);
        }
        self.read_at(buf, offset).map(Some)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        assert_direct(self.caching, buf, offset);
        let result = self.mutate(|_| true, |state| state.mutate(|state| state.write(self.id, offset, buf)));
        self.counters.write(buf.len(), &result);
        result
    }

    fn sync_data(&self) -> io::Result<()> {
        self.refuse_if_failed()?;
        self.counters.sync();
        let result = self.state.lock().mutate_durably(|state| state.sync(self.id));
        if result.is_err() {
            self.failed.store(true, Ordering::Release);
        }
        result
    }

    fn len(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.check_power()?;
        Ok(state.file(self.id).live.len())
    }

    fn allocate(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        let is_final = |kind| kind != ErrorKind::StorageFull;
        self.mutate(is_final, |state| state.mutate(|state| state.allocate(self.id, offset, len)))
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 {
            return Ok(());
        }
        self.mutate(
            |_| true,
            |state| {
                state.mutate(|state| {
                    state.punch(self.id, offset, len);
                    Ok(())
                })
            },
        )
    }

    fn allocated_bytes(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        state.check_power()?;
        Ok(state.file(self.id).live.occupied_pages() * super::image::PAGE_BYTES)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.state.lock().close_handle(self.id);
    }
}
