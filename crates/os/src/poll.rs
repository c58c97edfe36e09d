//! Sleeping until a descriptor can be read or time is up.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

/// Sleeps until one of `fds` can be read (or is broken: reading it then tells), or `timeout` has
/// passed; without a timeout as long as it takes.
///
/// Returns the positions in `fds` of those that are ready, in ascending order. None are ready
/// after the timeout, and also when a signal was handled: callers look at the clock themselves.
///
/// The timeout is in nanoseconds, as with `ppoll(2)`; the kernel's timer slack (50 µs unless set
/// otherwise) may be added to it.
///
/// # Errors
///
/// What `ppoll(2)` says: more descriptors than `RLIMIT_NOFILE`, or no memory left.
pub fn wait(fds: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<Vec<usize>> {
    let mut polled: Vec<PollFd<'_>> = fds
        .iter()
        .map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
        .collect();
    // A timeout too long for the kernel is none.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match rustix::event::poll(&mut polled, timeout.as_ref()) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Vec::new()),
        Err(errno) => return Err(errno.into()),
    }
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    let ready = polled.iter().enumerate().filter(|(_, fd)| is_ready(fd));
    Ok(ready.map(|(position, _)| position).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::time::Instant;

    #[test]
    fn tells_which_are_ready() {
        let (first, _first_writer) = io::pipe().expect("pipe");
        let (second, mut second_writer) = io::pipe().expect("pipe");
        let (third, third_writer) = io::pipe().expect("pipe");
        let fds = [first.as_fd(), second.as_fd(), third.as_fd()];

        let start = Instant::now();
        let timeout = Duration::from_micros(1_500);
        assert!(wait(&fds, Some(timeout)).expect("poll").is_empty());
        assert!(start.elapsed() >= timeout);

        second_writer.write_all(b"x").expect("write");
        drop(third_writer); // end of file is something to be read, too
        assert_eq!(wait(&fds, None).expect("poll"), [1, 2]);
        assert_eq!(wait(&fds, Some(Duration::MAX)).expect("poll"), [1, 2]);
    }
}
