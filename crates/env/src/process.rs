//! What the process as a whole is allowed.
//!
//! Promises: asks the kernel, changes nothing of other processes. Refuses to know: what the descriptors are for.
#![allow(unsafe_code)]

use std::io;

/// Raises the limit of open files as far as it may be raised without privileges; answers the limit now.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the struct it is given.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: the call reads the struct it is given.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_limit_is_raised_to_what_is_allowed_and_stays_there() {
        let raised = super::raise_open_files().expect("an answer");
        assert!(raised > 0);
        assert_eq!(super::raise_open_files().expect("an answer"), raised);
    }
}
