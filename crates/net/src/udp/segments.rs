//! Many datagrams in one call and as one packet: cut as late as can be on the way out, joined on the
//! way in.

use std::io;

use super::UdpSocket;
use crate::error;

/// Segmentation offload, UDP's GSO and GRO.
///
/// ```
/// use std::io::IoSliceMut;
///
/// use forebay::{Stack, UdpSocket};
///
/// let stack = Stack::builder().build()?;
/// let _worker = stack.spawn_workers()?;
/// let receiver = UdpSocket::bind(&stack, "127.0.0.1:7")?;
/// receiver.set_udp_gro(true)?;
/// let sender = UdpSocket::bind(&stack, "127.0.0.1:0")?;
/// sender.set_udp_segment(1_200)?;
/// // Three datagrams of 1,200 bytes and one of 400.
/// sender.send_to(&[0; 4_000], "127.0.0.1:7")?;
///
/// let mut buf = [0; 65_536];
/// let received = receiver.recv_vectored(&mut [IoSliceMut::new(&mut buf)])?;
/// // A datagram that came alone has no segment size.
/// let size = received.segment_size.map_or(received.len, usize::from);
/// assert_eq!((received.len, size), (4_000, 1_200));
/// assert_eq!(buf[..received.len].chunks(size).count(), 4);
/// # Ok::<(), std::io::Error>(())
/// ```
impl UdpSocket {
    /// Has what is sent cut into datagrams of so many bytes of payload, the last one shorter, 128 at
    /// most (`UDP_SEGMENT`); 0, as at first, sends it as it is. For one send,
    /// [`Message::segment_size`](crate::Message::segment_size) says it.
    ///
    /// Each must fit the path's MTU, whatever [`set_mtu_discover`](Self::set_mtu_discover) says: a
    /// send whose datagrams would not, or would be too many, fails with
    /// [`io::ErrorKind::InvalidInput`].
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_udp_segment(&self, bytes: u16) -> io::Result<()> {
        let set = self.inner().udp_set_segment(self.id(), bytes);
        set.map_err(error::option)
    }

    /// Payload bytes of each datagram that a send is cut into; 0 if it is not.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn udp_segment(&self) -> io::Result<u16> {
        let bytes = self.inner().udp_segment(self.id());
        bytes.map_err(error::not_open)
    }

    /// Takes datagrams of one flow together that came together (`UDP_GRO`): a read returns several of
    /// one size, the last one perhaps shorter, and
    /// [`Received::segment_size`](crate::Received::segment_size). What does not fit the buffer is lost,
    /// so it should hold 65,535 bytes.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_udp_gro(&self, on: bool) -> io::Result<()> {
        let set = self.inner().udp_set_gro(self.id(), on);
        set.map_err(error::not_open)
    }

    /// Whether datagrams may come together.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn udp_gro(&self) -> io::Result<bool> {
        let on = self.inner().udp_gro(self.id());
        on.map_err(error::not_open)
    }
}
