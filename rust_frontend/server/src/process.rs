//! What ties this process to its parent: the socket it inherits, the lifeline on stdin, the death signal.
//!
//! The only unsafe code of the program: calls into libc, each on plain integers or on memory of its own.

#![allow(unsafe_code)]

use std::io::{self, Read as _};
use std::net::TcpListener;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;

/// A socket of the parent's that listens.
pub(crate) enum Inherited {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Takes over an inherited socket that listens.
///
/// Must be called at most once for a descriptor, and before anything else could have opened it.
///
/// # Errors
/// The descriptor is not open, or no listening socket.
pub(crate) fn inherited_listener(fd: RawFd) -> io::Result<Inherited> {
    // SAFETY: F_SETFD takes an integer and touches no memory; on a descriptor that is not open it fails.
    if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is open, as the call above found. It was opened by the parent for this process, whose own
    // code opens nothing under a number that it was given, so that nobody else owns it.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    if option(fd, libc::SO_ACCEPTCONN)? == 0 {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the socket does not listen",
        ));
    }
    match option(fd, libc::SO_DOMAIN)? {
        libc::AF_UNIX => Ok(Inherited::Unix(UnixListener::from(owned))),
        _ => Ok(Inherited::Tcp(TcpListener::from(owned))),
    }
}

/// An integer that the system tells of a socket.
fn option(fd: RawFd, name: libc::c_int) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut size = libc::socklen_t::try_from(size_of::<libc::c_int>()).unwrap_or(0);
    // SAFETY: value and size outlive the call, and size is that of value.
    let result = unsafe {
        libc::getsockopt(
            fd,
            libc::SOL_SOCKET,
            name,
            (&raw mut value).cast(),
            &raw mut size,
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(value)
    }
}

/// Lets this process have as many connections open as the system allows it, rather than the 1,024 of old.
pub(crate) fn raise_file_limit() -> io::Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: limit outlives both calls.
    let result = unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit)
        } else {
            -1
        }
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Of turns on a core that a thread asks for which answers what is light; the least that the system grants.
const SHORT_TURN_NS: u64 = 100_000;
/// Priority of such a thread, where this process may give one.
const PREFERRED_NICE: i32 = -5;

/// Lets the calling thread have its turn soon when it wakes, however many others want one: by its priority where that is
/// allowed, and by asking for short turns, which any thread may (Linux 6.12; older ones take no notice).
pub(crate) fn wake_soon() {
    // SAFETY: getpriority takes integers and touches no memory.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let done = short_turns(PREFERRED_NICE.min(own)).or_else(|_| short_turns(own));
    if let Err(error) = done {
        tracing::debug!("the thread for light requests has no preference: {error}");
    }
}

/// Sets the priority of the calling thread, and that its turns are short.
fn short_turns(nice: i32) -> io::Result<()> {
    let size = u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0);
    let wanted = libc::sched_attr {
        size,
        sched_policy: 0, // SCHED_OTHER, as all threads
        sched_flags: 0,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: SHORT_TURN_NS,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the structure outlives the call and begins with its size; the system only reads it.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Ends this process with its parent: at once when stdin reaches its end, or when the parent's thread dies.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes an integer and touches no memory.
    if unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } < 0 {
        return Err(io::Error::last_os_error());
    }
    std::thread::Builder::new()
        .name("lifeline".to_owned())
        .spawn(hold_lifeline)?;
    Ok(())
}

/// Reads stdin until its end, which comes when the parent is gone, however it went.
fn hold_lifeline() {
    let mut stdin = io::stdin().lock();
    let mut ignored = [0; 64];
    loop {
        match stdin.read(&mut ignored) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
    }
    tracing::warn!("the parent is gone: leaving at once");
    std::process::exit(1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_may_ask_for_short_turns_whoever_runs_it() {
        let asked = std::thread::spawn(|| {
            // SAFETY: getpriority takes integers and touches no memory.
            let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
            short_turns(own)
        });
        asked.join().unwrap().unwrap();
    }
}
