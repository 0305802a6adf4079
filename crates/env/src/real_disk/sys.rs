//! The system calls that std does not offer: everything relative to an open directory, space management, reads from cache only.
//!
//! Promises: each function is one call (retried when interrupted) with the error of the kernel. Refuses to know: policy.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use libc::{c_int, off_t};

use crate::disk::{Open, Space};

const FILE_MODE: libc::mode_t = 0o600;
const DIR_MODE: libc::mode_t = 0o700;

/// Opens the directory `name` in `dir`; a symbolic link is refused.
pub(super) fn open_dir(dir: &File, name: &OsStr) -> io::Result<File> {
    open_at(dir, name, libc::O_RDONLY | libc::O_DIRECTORY)
}

/// Opens the file `name` in `dir`; a symbolic link is refused, and a pipe put there does not block the open.
pub(super) fn open_file(dir: &File, name: &OsStr, how: Open) -> io::Result<File> {
    let flags = match how {
        Open::Read => libc::O_RDONLY,
        Open::ReadWrite => libc::O_RDWR,
        Open::CreateNew => libc::O_RDWR | libc::O_CREAT | libc::O_EXCL,
    };
    open_at(dir, name, flags | libc::O_NONBLOCK)
}

fn open_at(dir: &File, name: &OsStr, flags: c_int) -> io::Result<File> {
    let name = c_name(name)?;
    let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `name` is a NUL-terminated string and `dir` an open descriptor; both outlive the call.
    let fd = retry(|| unsafe { libc::openat(dir.as_raw_fd(), name.as_ptr(), flags, FILE_MODE) })?;
    // SAFETY: the call gave a fresh descriptor that nothing else owns.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Turns the page cache off for the file; `false` where its file system has no such mode.
pub(super) fn set_direct(file: &File) -> io::Result<bool> {
    let fd = file.as_raw_fd();
    // SAFETY: a query and a change of flags of an open descriptor; no memory is passed.
    let flags = retry(|| unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
    // SAFETY: as above.
    match retry(|| unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_DIRECT) }) {
        Ok(_) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

pub(super) fn make_dir(dir: &File, name: &OsStr) -> io::Result<()> {
    let name = c_name(name)?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    retry(|| unsafe { libc::mkdirat(dir.as_raw_fd(), name.as_ptr(), DIR_MODE) }).map(drop)
}

pub(super) fn rename(from_dir: &File, from: &OsStr, to_dir: &File, to: &OsStr) -> io::Result<()> {
    let (from, to) = (c_name(from)?, c_name(to)?);
    let (from_fd, to_fd) = (from_dir.as_raw_fd(), to_dir.as_raw_fd());
    // SAFETY: both names are NUL-terminated strings that outlive the call.
    retry(|| unsafe { libc::renameat(from_fd, from.as_ptr(), to_fd, to.as_ptr()) }).map(drop)
}

pub(super) fn unlink(dir: &File, name: &OsStr) -> io::Result<()> {
    let name = c_name(name)?;
    // SAFETY: `name` is a NUL-terminated string that outlives the call.
    retry(|| unsafe { libc::unlinkat(dir.as_raw_fd(), name.as_ptr(), 0) }).map(drop)
}

/// The names in a directory, in no order, without `.` and `..`. A name that is not UTF-8 is not ours: it is an error.
pub(super) fn names(dir: File) -> io::Result<Vec<String>> {
    let fd = dir.into_raw_fd();
    // SAFETY: `fd` is an open directory; on success the stream owns it.
    let stream = unsafe { libc::fdopendir(fd) };
    if stream.is_null() {
        let error = io::Error::last_os_error();
        // SAFETY: the stream did not take the descriptor over, so it is ours to close.
        drop(unsafe { OwnedFd::from_raw_fd(fd) });
        return Err(error);
    }
    let stream = DirStream(stream);
    let mut names = Vec::new();
    while let Some(name) = stream.next()? {
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

struct DirStream(*mut libc::DIR);

impl DirStream {
    fn next(&self) -> io::Result<Option<String>> {
        // A null answer means both the end and an error; only errno tells.
        // SAFETY: the location of this thread's errno is always valid.
        unsafe { *libc::__errno_location() = 0 };
        // SAFETY: the stream is open and used by this thread only.
        let entry = unsafe { libc::readdir64(self.0) };
        if entry.is_null() {
            let error = io::Error::last_os_error();
            return if error.raw_os_error() == Some(0) { Ok(None) } else { Err(error) };
        }
        // SAFETY: a non-null entry holds a NUL-terminated name and stays valid until the next call on the stream.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
        let name =
            name.to_str().map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a file name that is not UTF-8"))?;
        Ok(Some(name.to_owned()))
    }
}

impl Drop for DirStream {
    fn drop(&mut self) {
        // SAFETY: opened in `names`, closed once.
        unsafe { libc::closedir(self.0) };
    }
}

pub(super) fn space(dir: &File) -> io::Result<Space> {
    // SAFETY: statvfs is plain numbers, for which zeros are valid.
    let mut stat: libc::statvfs64 = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` is valid for writing during the call.
    retry(|| unsafe { libc::fstatvfs64(dir.as_raw_fd(), &raw mut stat) })?;
    let fragment = stat.f_frsize;
    Ok(Space { total_bytes: stat.f_blocks * fragment, free_bytes: stat.f_bavail * fragment })
}

/// Drops the file's clean pages from the page cache.
pub(super) fn drop_cached(file: &File) -> io::Result<()> {
    // SAFETY: advice about an open descriptor; no memory is passed. Unlike its kin this call returns the error itself.
    match unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}

/// Reserves blocks and grows the file.
pub(super) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, 0, offset, len)
}

/// Gives blocks back, keeping the length.
pub(super) fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    fallocate(file, libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, offset, len)
}

fn fallocate(file: &File, mode: c_int, offset: u64, len: u64) -> io::Result<()> {
    let (offset, len) = (signed(offset)?, signed(len)?);
    // SAFETY: an operation on an open descriptor; no memory is passed.
    retry(|| unsafe { libc::fallocate64(file.as_raw_fd(), mode, offset, len) }).map(drop)
}

/// Reads what the page cache holds; `None` where the call would wait or the file system cannot tell.
pub(super) fn read_cached(file: &File, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
    let vector = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    let offset = signed(offset)?;
    loop {
        // SAFETY: the vector names `buf`, which is borrowed mutably for the whole call.
        let count = unsafe { libc::preadv2(file.as_raw_fd(), &raw const vector, 1, offset, libc::RWF_NOWAIT) };
        if let Ok(count) = usize::try_from(count) {
            return Ok(Some(count));
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::ENOSYS) => return Ok(None),
            _ => return Err(error),
        }
    }
}

fn c_name(name: &OsStr) -> io::Result<CString> {
    CString::new(name.as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn signed(value: u64) -> io::Result<off_t> {
    off_t::try_from(value).map_err(|_| io::ErrorKind::InvalidInput.into())
}

fn retry(mut call: impl FnMut() -> c_int) -> io::Result<c_int> {
    loop {
        let result = call();
        if result >= 0 {
            return Ok(result);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
