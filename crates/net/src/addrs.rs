//! Addresses that callers give.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use forebay_stack::packet::IpVersion;

/// As std does: every address in turn, the last error if none works.
pub(crate) fn first_that_works<T>(
    addrs: impl ToSocketAddrs,
    mut f: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(
        io::ErrorKind::InvalidInput,
        "could not resolve to any addresses",
    );
    for addr in addrs.to_socket_addrs()? {
        match f(addr) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The family of a socket for such an address.
pub(crate) fn version_of(addr: IpAddr) -> IpVersion {
    match addr {
        IpAddr::V4(_) => IpVersion::V4,
        IpAddr::V6(_) => IpVersion::V6,
    }
}
