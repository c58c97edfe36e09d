//! TCP connections without packets, out of thin air.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// An established connection of the kernel's, of which the peer knows nothing.
///
/// `TCP_REPAIR` (tcp(7)) was made for processes that move to another machine: `connect(2)` in repair
/// mode establishes a connection at once. The socket stays in that mode, in which closing it sends
/// nothing, either.
///
/// # Errors
///
/// `EPERM` without `CAP_NET_ADMIN`, `ENOPROTOOPT` if the kernel cannot do that, `EMFILE` when the
/// process has no descriptor left, `EADDRNOTAVAIL` if `local` is no address of this host or the same
/// connection is there already, `ENETUNREACH` if no route leads to `peer`.
pub fn connection(local: SocketAddr, peer: SocketAddr) -> io::Result<OwnedFd> {
    let family = match local {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    begin_repair(socket.as_fd())?;
    rustix::net::bind(&socket, &local)?;
    rustix::net::connect(&socket, &peer)?;
    Ok(socket)
}

fn begin_repair(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the value's address and length are those of an integer that outlives the call, which
    // only reads it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_REPAIR,
            (&raw const on).cast(),
            size_of_val(&on) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
