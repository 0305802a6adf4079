//! The content of one simulated file: sparse pages.
//!
//! Promises: reads of holes and reserved pages give zeros; copies share pages until one is written.
//! Refuses to know: what is durable.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Granularity of holes and of space, in bytes.
pub(super) const PAGE_BYTES: u64 = 4096;

type Data = Arc<[u8; PAGE_BYTES as usize]>;

#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    len: u64,
    /// Occupied pages; `None` is reserved and reads as zeros.
    pages: BTreeMap<u64, Option<Data>>,
}

impl Image {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn occupied_pages(&self) -> u64 {
        self.pages.len() as u64
    }

    pub(super) fn is_hole(&self, page: u64) -> bool {
        !self.pages.contains_key(&page)
    }

    /// Fills `buf` as far as the file goes.
    pub(super) fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let available = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..available];
        buf.fill(0);
        for span in spans(offset, available as u64) {
            if let Some(Some(data)) = self.pages.get(&span.page) {
                buf[span.at..span.at + span.len].copy_from_slice(&data[span.within..span.within + span.len]);
            }
        }
        available
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for span in spans(offset, bytes.len() as u64) {
            let page = self.pages.entry(span.page).or_default();
            let data = page.get_or_insert_with(|| Arc::new([0; PAGE_BYTES as usize]));
            Arc::make_mut(data)[span.within..span.within + span.len]
                .copy_from_slice(&bytes[span.at..span.at + span.len]);
        }
        self.grow(offset + bytes.len() as u64);
    }

    /// Occupies the pages of the range and grows to its end; the content stays.
    pub(super) fn reserve(&mut self, offset: u64, len: u64) {
        for span in spans(offset, len) {
            self.pages.entry(span.page).or_default();
        }
        self.grow(offset + len);
    }

    /// Frees whole pages of the range and zeroes the rest of it; the length stays.
    pub(super) fn punch(&mut self, offset: u64, len: u64) {
        for span in spans(offset, len) {
            if span.len as u64 == PAGE_BYTES {
                self.pages.remove(&span.page);
            } else if let Some(Some(data)) = self.pages.get_mut(&span.page) {
                Arc::make_mut(data)[span.within..span.within + span.len].fill(0);
            }
        }
    }

    pub(super) fn grow(&mut self, len: u64) {
        self.len = self.len.max(len);
    }

    /// Cuts the file; what was behind the cut reads as zeros if it grows again.
    pub(super) fn truncate(&mut self, len: u64) {
        if len < self.len {
            self.punch(len, self.len - len);
            self.pages.retain(|page, _| page * PAGE_BYTES < len);
            self.len = len;
        }
    }

    /// Pages of the range that a write there would newly occupy.
    pub(super) fn holes_in(&self, offset: u64, len: u64) -> u64 {
        spans(offset, len).filter(|span| self.is_hole(span.page)).count() as u64
    }
}

/// The part of a range that lies in one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) page: u64,
    /// Where it starts in the page.
    pub(super) within: usize,
    /// Where it starts in the range.
    pub(super) at: usize,
    pub(super) len: usize,
}

/// A range of bytes cut at page boundaries.
pub(super) fn spans(offset: u64, len: u64) -> impl Iterator<Item = Span> {
    let end = offset + len;
    let mut next = offset;
    std::iter::from_fn(move || {
        if next >= end {
            return None;
        }
        let page = next / PAGE_BYTES;
        let stop = end.min((page + 1) * PAGE_BYTES);
        let span = Span {
            page,
            within: (next % PAGE_BYTES) as usize,
            at: (next - offset) as usize,
            len: (stop - next) as usize,
        };
        next = stop;
        Some(span)
    })
}
