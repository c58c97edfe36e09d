//! Socket filters.

use std::io;

use forebay_stack::filter::Instruction;

use super::UdpSocket;
use crate::error;

impl UdpSocket {
    /// Has a program of classic BPF look at each datagram that is for this socket, in place of any
    /// before (`SO_ATTACH_FILTER`). The program sees a datagram from the UDP header on, and returns
    /// how many bytes to keep, header included: 0 drops it. What has arrived already stays.
    ///
    /// [`filter::parse`](crate::filter::parse) reads what `tcpdump -ddd` prints.
    ///
    /// ```
    /// use forebay::filter::{Instruction, code::*};
    /// use forebay::{Stack, UdpSocket};
    ///
    /// let stack = Stack::builder().build()?;
    /// let _worker = stack.spawn_workers()?;
    /// let socket = UdpSocket::bind(&stack, "127.0.0.1:7")?;
    /// // Only what begins with '!', and of that 4 bytes.
    /// socket.attach_filter(&[
    ///     Instruction::stmt(LD | B | ABS, 8),
    ///     Instruction::jump(JMP | JEQ | K, u32::from(b'!'), 0, 1),
    ///     Instruction::stmt(RET | K, 8 + 4),
    ///     Instruction::stmt(RET | K, 0),
    /// ])?;
    /// socket.send_to(b"a whisper", "127.0.0.1:7")?;
    /// socket.send_to(b"!shouting", "127.0.0.1:7")?;
    /// let mut buf = [0; 64];
    /// assert_eq!(socket.recv(&mut buf)?, 4);
    /// assert_eq!(&buf[..4], b"!sho");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] if the program could go wrong, with what and where;
    /// [`io::ErrorKind::PermissionDenied`] if the filter is [locked](Self::lock_filter).
    pub fn attach_filter(&self, program: &[Instruction]) -> io::Result<()> {
        self.inner()
            .udp_attach_filter(self.shared.id, program)
            .map_err(error::filter)
    }

    /// Takes the program away (`SO_DETACH_FILTER`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is none, [`io::ErrorKind::PermissionDenied`] if it is
    /// [locked](Self::lock_filter).
    pub fn detach_filter(&self) -> io::Result<()> {
        self.inner()
            .udp_detach_filter(self.shared.id)
            .map_err(error::filter)
    }

    /// Has a program pick the member of this socket's `SO_REUSEPORT` group that gets a datagram
    /// (`SO_ATTACH_REUSEPORT_CBPF`). It sees the payload and returns the member's place, counted from
    /// 0 in the order in which they were bound; connected members are not counted. Anything else
    /// leaves the choice to the flow's hash. Of several programs in a group, that of the member
    /// bound first counts.
    ///
    /// # Errors
    ///
    /// Those of [`attach_filter`](Self::attach_filter); [`io::ErrorKind::InvalidInput`] for a socket
    /// that is in no group.
    pub fn attach_reuse_port_program(&self, program: &[Instruction]) -> io::Result<()> {
        self.inner()
            .udp_attach_group_program(self.shared.id, program)
            .map_err(error::filter)
    }

    /// Takes that program away (`SO_DETACH_REUSEPORT_BPF`).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotFound`] if there is none.
    pub fn detach_reuse_port_program(&self) -> io::Result<()> {
        self.inner()
            .udp_detach_group_program(self.shared.id)
            .map_err(error::filter)
    }

    /// Keeps the filter, or that there is none, as it is for as long as the socket lives
    /// (`SO_LOCK_FILTER`): before the socket is handed to who should not change it.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn lock_filter(&self) -> io::Result<()> {
        self.inner()
            .udp_lock_filter(self.shared.id)
            .map_err(error::not_open)
    }
}
