//! What measuring the kernel's UDP sockets needs beyond what others wrap: many datagrams in one call,
//! and a group of sockets that picks its members by core.

use std::fmt;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

/// Buffers that recvmmsg(2) fills.
pub struct RecvBatch<'a> {
    buffers: Vec<&'a mut [u8]>,
    pieces: Vec<libc::iovec>,
    messages: Vec<libc::mmsghdr>,
}

impl<'a> RecvBatch<'a> {
    /// Each buffer takes a datagram, or its beginning.
    pub fn new(buffers: impl IntoIterator<Item = &'a mut [u8]>) -> Self {
        Self {
            buffers: buffers.into_iter().collect(),
            pieces: Vec::new(),
            messages: Vec::new(),
        }
    }

    /// Receives as many datagrams as are there, at most `wanted`, and waits for the first if the
    /// socket blocks (`MSG_WAITFORONE`). Returns how many.
    ///
    /// # Errors
    ///
    /// Those of recvmmsg(2): `EAGAIN` if none is there or comes in time.
    pub fn recv(&mut self, socket: impl AsFd, wanted: usize) -> io::Result<usize> {
        self.pieces.clear();
        self.messages.clear();
        let buffers = self.buffers.iter_mut().take(wanted);
        self.pieces.extend(buffers.map(|buffer| libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        }));
        self.messages
            .extend(self.pieces.iter_mut().map(|piece| libc::mmsghdr {
                msg_hdr: libc::msghdr {
                    msg_iov: piece,
                    msg_iovlen: 1,
                    ..NOTHING
                },
                msg_len: 0,
            }));
        // SAFETY: as many messages are there as is said. Each has one piece, which is in a vector
        // that nobody touches meanwhile, and that is a buffer of ours, borrowed for writing. No
        // address is asked for, no control message, and no timeout.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                self.messages.as_mut_ptr(),
                self.messages.len() as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// What the last call received in this place; nothing if it did not get so far.
    pub fn datagram(&self, nth: usize) -> &[u8] {
        let (buffer, message) = (self.buffers.get(nth), self.messages.get(nth));
        let datagram = buffer.zip(message).and_then(|(buffer, message)| {
            let len = usize::try_from(message.msg_len).ok()?;
            buffer.get(..len)
        });
        datagram.unwrap_or_default()
    }
}

impl fmt::Debug for RecvBatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffers = self.buffers.len();
        f.debug_struct("RecvBatch")
            .field("buffers", &buffers)
            .finish_non_exhaustive()
    }
}

/// A message without address, pieces and control messages.
// SAFETY: integers may be zero, and pointers null.
const NOTHING: libc::msghdr = unsafe { mem::zeroed() };

/// Has a socket's `SO_REUSEPORT` group give each datagram to the member whose place is the number of
/// the processor that receives it (`SO_ATTACH_REUSEPORT_CBPF`); where there is no such member, to the
/// one that the flow's hash picks.
///
/// # Errors
///
/// `EINVAL` if the socket has not been told `SO_REUSEPORT`.
pub fn pick_member_by_cpu(socket: impl AsFd) -> io::Result<()> {
    let cpu = libc::SKF_AD_OFF.wrapping_add(libc::SKF_AD_CPU) as u32;
    let mut instructions = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, cpu),
        statement(libc::BPF_RET | BPF_A, 0),
    ];
    let program = libc::sock_fprog {
        len: instructions.len() as _,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: the value is a program, of that length, whose instructions are as many as it says;
    // the call copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

// linux/filter.h
const BPF_A: u32 = 0x10;

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};

    use super::*;

    #[test]
    fn a_batch_is_what_is_there() {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
        socket.set_nonblocking(true).expect("an option");
        let own = socket.local_addr().expect("an address");
        let mut buffers = [[0; 4]; 3];
        let mut batch = RecvBatch::new(buffers.iter_mut().map(|buffer| &mut buffer[..]));
        let empty = batch.recv(&socket, 3).expect_err("nothing is there");
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        for payload in ["a", "", "longer", "d"] {
            socket.send_to(payload.as_bytes(), own).expect("send");
        }
        assert_eq!(batch.recv(&socket, 2).expect("two"), 2);
        assert_eq!(
            (batch.datagram(0), batch.datagram(1)),
            (&b"a"[..], &b""[..])
        );
        assert_eq!(batch.recv(&socket, 9).expect("two more"), 2);
        assert_eq!(
            (batch.datagram(0), batch.datagram(1), batch.datagram(3)),
            (&b"long"[..], &b"d"[..], &b""[..])
        );
    }

    #[test]
    fn a_program_needs_a_group() {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).expect("a socket");
        let any = std::net::SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        sockopt::set_socket_reuseport(&socket, true).expect("an option");
        bind(&socket, &any).expect("bind");
        pick_member_by_cpu(&socket).expect("a group of one");
        let alone = UdpSocket::bind(any).expect("bind");
        let refused = pick_member_by_cpu(&alone).expect_err("no group");
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
