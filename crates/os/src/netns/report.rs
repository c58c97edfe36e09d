//! What the new process tells its parent before it executes the command: the queues of its TUN
//! device as it opens them, or which step failed and how.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

use super::child::Refusal;
use crate::name::InterfaceName;
use crate::tun::{self, Operation};

/// The device's name, and a queue of it.
pub(super) type NamedQueue = (InterfaceName, OwnedFd);

/// A step that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Failure {
    /// Its position in the list of steps.
    pub(super) step: usize,
    pub(super) errno: Errno,
    /// What exactly failed about the TUN device, if it was that.
    operation: Option<Operation>,
}

impl Failure {
    pub(super) fn new(step: usize, refusal: Refusal) -> Self {
        let (errno, operation) = match refusal {
            Refusal::Kernel(errno) => (errno, None),
            Refusal::Tun(failure) => (failure.errno, Some(failure.operation)),
        };
        Self {
            step,
            errno,
            operation,
        }
    }

    /// The failure as one of the TUN device.
    pub(super) fn tun(&self) -> Option<tun::Failure> {
        let operation = self.operation?;
        let errno = self.errno;
        Some(tun::Failure { operation, errno })
    }

    fn encode(self) -> [u8; MESSAGE] {
        let mut message = [0; MESSAGE];
        let operation = self.operation.map_or(NO_OPERATION, |it| it as u32);
        message[0..4].copy_from_slice(&(self.step as u32).to_ne_bytes());
        message[4..8].copy_from_slice(&self.errno.raw_os_error().to_ne_bytes());
        message[8..12].copy_from_slice(&operation.to_ne_bytes());
        message
    }

    fn parse(message: [u8; MESSAGE]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = message;
        let operation = u32::from_ne_bytes([i, j, k, l]);
        let is_it = |candidate: &Operation| *candidate as u32 == operation;
        Self {
            step: u32::from_ne_bytes([a, b, c, d]) as usize,
            errno: Errno::from_raw_os_error(i32::from_ne_bytes([e, f, g, h])),
            operation: Operation::ALL.into_iter().find(is_it),
        }
    }
}

/// Bytes of a message: a name as the kernel holds it, or an encoded failure.
const MESSAGE: usize = 16;

const NO_OPERATION: u32 = u32::MAX;

/// Two connected sockets, ours and theirs, that keep messages apart.
pub(super) fn channel() -> io::Result<(OwnedFd, OwnedFd)> {
    let (domain, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(rustix::net::socketpair(
        domain,
        kind,
        SocketFlags::CLOEXEC,
        None,
    )?)
}

/// Hands a queue to the parent. Allocates nothing.
pub(super) fn send_queue(
    socket: BorrowedFd<'_>,
    name: InterfaceName,
    queue: &tun::Queue,
) -> Result<(), Errno> {
    let queue = [queue.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&queue));
    send(socket, name.to_kernel(), &mut control)
}

/// Tells the parent what failed. Allocates nothing.
pub(super) fn send_failure(socket: BorrowedFd<'_>, failure: Failure) -> Result<(), Errno> {
    let mut control = SendAncillaryBuffer::default();
    send(socket, failure.encode(), &mut control)
}

/// The parent reads only when all is said; so waiting for room would be waiting for ever.
fn send(
    socket: BorrowedFd<'_>,
    message: [u8; MESSAGE],
    control: &mut SendAncillaryBuffer<'_, '_, '_>,
) -> Result<(), Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(&message)], control, flags)?;
    Ok(())
}

/// All that a new process had to say.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) queues: Vec<NamedQueue>,
    pub(super) failure: Option<Failure>,
}

/// Reads what is there, without waiting for more: somebody else's child, forked at the same time
/// and not yet executing, may hold the other end open.
pub(super) fn receive(socket: BorrowedFd<'_>) -> io::Result<Received> {
    let mut received = Received::default();
    while let Some((message, queue)) = receive_one(socket)? {
        match queue {
            Some(queue) => {
                let name = InterfaceName::from_kernel(message);
                received.queues.push((name, queue));
            }
            None => received.failure = Some(Failure::parse(message)),
        }
    }
    Ok(received)
}

fn receive_one(socket: BorrowedFd<'_>) -> io::Result<Option<([u8; MESSAGE], Option<OwnedFd>)>> {
    let mut message = [0; MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut into = [IoSliceMut::new(&mut message)];
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match rustix::net::recvmsg(socket, &mut into, &mut control, flags) {
        Ok(read) if read.bytes == 0 => return Ok(None),
        // There was a queue, but this process has no descriptor left for it.
        Ok(read) if read.flags.contains(ReturnFlags::CTRUNC) => return Err(Errno::MFILE.into()),
        Ok(_) => {}
        Err(Errno::AGAIN) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    }
    let queue = control.drain().find_map(|part| match part {
        RecvAncillaryMessage::ScmRights(mut queues) => queues.next(),
        _ => None,
    });
    Ok(Some((message, queue)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_arrives_as_it_was_sent() {
        let (ours, theirs) = channel().expect("socketpair");
        for operation in Operation::ALL.into_iter().map(Some).chain([None]) {
            let failure = Failure {
                step: 3,
                errno: Errno::PERM,
                operation,
            };
            send_failure(theirs.as_fd(), failure).expect("send");
            let received = receive(ours.as_fd()).expect("receive").failure;
            let received = received.expect("a failure");
            assert_eq!(received.step, 3);
            assert_eq!(received.errno, Errno::PERM);
            assert_eq!(received.operation, operation);
        }
    }

    #[test]
    fn silence_is_an_answer() {
        let (ours, theirs) = channel().expect("socketpair");
        assert!(receive(ours.as_fd()).expect("receive").queues.is_empty());
        drop(theirs);
        assert!(receive(ours.as_fd()).expect("receive").failure.is_none());
    }
}
