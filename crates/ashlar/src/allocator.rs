//! The process's allocator: mimalloc.
//!
//! Promises: what Rust asks for is aligned as asked. Refuses to know: who asks.
//!
//! The crate `mimalloc` asks for every block by size and alignment, which for most sizes above 1 KiB takes a block that is
//! larger and looks for the aligned place in it, although every block is aligned well enough: 24 times a PUT, 250 instructions
//! each and more when it is freed. Here only those alignments are asked for that are not given anyway.
#![allow(unsafe_code)]

use libmimalloc_sys as mi;
use std::alloc::{GlobalAlloc, Layout};

/// Alignment that every block has anyway (`MI_MAX_ALIGN_SIZE`), one smaller than that at least its size's.
const ALIGNED_ANYWAY: usize = 16;

/// mimalloc.
pub struct Allocator;

/// Whether any block for this layout is aligned as it asks.
fn given(layout: Layout) -> bool {
    layout.align() <= ALIGNED_ANYWAY && layout.align() <= layout.size()
}

// SAFETY: mimalloc's blocks are of the size asked for and nobody else's until they are freed. `mi_malloc` aligns them to 16 bytes,
// those below 16 bytes to 8; `given` asks for no more than that. The others are aligned as told.
unsafe impl GlobalAlloc for Allocator {
    // SAFETY: the caller keeps to what `GlobalAlloc::alloc` asks of it.
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: any size and any power of two may be asked for.
        unsafe {
            if given(layout) {
                return mi::mi_malloc(layout.size()).cast();
            }
            mi::mi_malloc_aligned(layout.size(), layout.align()).cast()
        }
    }

    // SAFETY: the caller keeps to what `GlobalAlloc::alloc_zeroed` asks of it.
    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        unsafe {
            if given(layout) {
                return mi::mi_zalloc(layout.size()).cast();
            }
            mi::mi_zalloc_aligned(layout.size(), layout.align()).cast()
        }
    }

    // SAFETY: the caller keeps to what `GlobalAlloc::dealloc` asks of it.
    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the caller gives back what it got here.
        unsafe { mi::mi_free(block.cast()) }
    }

    // SAFETY: the caller keeps to what `GlobalAlloc::realloc` asks of it.
    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above, both.
        unsafe {
            if layout.align() <= ALIGNED_ANYWAY && layout.align() <= size {
                return mi::mi_realloc(block.cast(), size).cast();
            }
            mi::mi_realloc_aligned(block.cast(), size, layout.align()).cast()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_aligned_as_asked_however_it_came_about() {
        for align in [1, 2, 4, 8, 16, 32, 64, 128, 4096] {
            for size in (1..200).chain([1000, 1024, 1025, 4096, 4500, 70_000, 3 << 20]) {
                let layout = Layout::from_size_align(size, align).expect("a layout");
                // SAFETY: blocks are used within their size and given back once, with the layout they have.
                unsafe {
                    let zeroed = Allocator.alloc_zeroed(layout);
                    assert_eq!(std::slice::from_raw_parts(zeroed, size), vec![0; size]);
                    let block = Allocator.alloc(layout);
                    block.write_bytes(7, size);
                    let grown = Allocator.realloc(block, layout, 2 * size + 1);
                    assert!([zeroed, block, grown].iter().all(|at| at.addr() % align == 0), "{size} bytes to {align}");
                    assert_eq!(std::slice::from_raw_parts(grown, size), vec![7; size]);
                    Allocator.dealloc(zeroed, layout);
                    Allocator.dealloc(grown, Layout::from_size_align(2 * size + 1, align).expect("a layout"));
                }
            }
        }
    }
}
