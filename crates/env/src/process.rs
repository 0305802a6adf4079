//! The process as a whole: what it is allowed, and the processes it starts.
//!
//! Promises: no process is touched but this one and its own children. Refuses to know: what descriptors and children are for.
#![allow(unsafe_code)]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

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

/// Starts a process that the kernel kills when the thread that calls this ends: call it from one that lives as long as the
/// process, such as the main thread.
pub fn spawn_tied(command: &mut Command) -> io::Result<Child> {
    let parent = std::process::id();
    // SAFETY: between fork and exec only two system calls are made, and nothing is allocated.
    let tied = unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // A parent that died before that is not noticed by the kernel.
            if libc::getppid().unsigned_abs() == parent { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        })
    };
    tied.spawn()
}

/// Asks a child to end (SIGTERM). It must not have been waited for yet, or its id may be another's by now.
pub fn terminate(child: &Child) -> io::Result<()> {
    let pid = libc::pid_t::try_from(child.id()).map_err(io::Error::other)?;
    // SAFETY: the call takes numbers only.
    if unsafe { libc::kill(pid, libc::SIGTERM) } == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    #[test]
    fn a_child_ends_when_it_is_asked() {
        let mut child = super::spawn_tied(Command::new("sleep").arg("600")).expect("started");
        super::terminate(&child).expect("asked");
        assert_eq!(child.wait().expect("ended").signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn a_tied_child_dies_with_the_thread_that_started_it() {
        let start = || super::spawn_tied(Command::new("sleep").arg("600"));
        let mut child = std::thread::scope(|scope| scope.spawn(start).join()).expect("joined").expect("started");
        assert_eq!(child.wait().expect("ended").signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed_and_stays_there() {
        let raised = super::raise_open_files().expect("an answer");
        assert!(raised > 0);
        assert_eq!(super::raise_open_files().expect("an answer"), raised);
    }
}
