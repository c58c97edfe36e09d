//! Where descriptors lie that are only to be kept open.
//!
//! A process may have so many descriptors, often no more than some thousands, and may not always raise
//! that limit. But those that are on the way in a Unix socket (`SCM_RIGHTS`, unix(7)) are nobody's, and
//! for who has `CAP_SYS_ADMIN` there is no limit to them.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Descriptors that a message has room for (`SCM_MAX_FD`).
pub(super) const FULL: usize = 253;

/// Descriptors in the queues of sockets; dropping it closes them.
pub(super) struct Shelf {
    boards: Vec<(OwnedFd, OwnedFd)>,
}

impl Shelf {
    pub(super) fn new() -> Self {
        Self { boards: Vec::new() }
    }

    /// Keeps what up to [`FULL`] descriptors are for open.
    ///
    /// # Errors
    ///
    /// `ETOOMANYREFS` where the limit of open files holds for these, too.
    pub(super) fn put(&mut self, descriptors: &[OwnedFd]) -> io::Result<()> {
        let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        if let Some((board, _)) = self.boards.last() {
            match send(board, &descriptors) {
                // Its queue is full.
                Err(Errno::AGAIN) => {}
                sent => return Ok(sent?),
            }
        }
        let flags = SocketFlags::CLOEXEC;
        // Datagram sockets have queues of a few messages only.
        let board = rustix::net::socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        send(&board.0, &descriptors)?;
        self.boards.push(board);
        Ok(())
    }
}

fn send(socket: &OwnedFd, descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FULL))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(descriptors));
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&[0])], &mut control, flags)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::pipe::pipe;

    use super::*;

    #[test]
    fn what_lies_there_stays_open_until_it_is_dropped() {
        let (reader, writer) = pipe().expect("a pipe");
        let mut shelf = Shelf::new();
        // More than the queue of one socket takes, and fewer than anybody may have on the way.
        for _ in 0..600 {
            shelf.put(std::slice::from_ref(&writer)).expect("put");
        }
        assert!(shelf.boards.len() > 1, "one was enough");
        drop(writer);
        rustix::io::ioctl_fionbio(&reader, true).expect("ioctl");
        let read = || rustix::io::read(&reader, &mut [0; 1]);
        assert_eq!(
            read(),
            Err(Errno::AGAIN),
            "nobody writes, but somebody could"
        );
        drop(shelf);
        assert_eq!(read(), Ok(0));
    }
}
