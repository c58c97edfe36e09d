//! The stack's errors as [`io::Error`]s of the kinds people know.

use std::io;

use forebay_stack::control::InterfaceError;

pub(crate) fn interface(error: InterfaceError) -> io::Error {
    let kind = match &error {
        InterfaceError::NameTaken(_) | InterfaceError::AddressExists(_) => {
            io::ErrorKind::AlreadyExists
        }
        InterfaceError::NotFound => io::ErrorKind::NotFound,
        InterfaceError::AddressNotFound(_) => io::ErrorKind::AddrNotAvailable,
        InterfaceError::BadName(_)
        | InterfaceError::BadMtu(_)
        | InterfaceError::BadAddress(_)
        | InterfaceError::BadPrefix(_)
        | InterfaceError::MtuTooSmallForIpv6(_) => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}
