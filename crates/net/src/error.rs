//! The stack's errors as [`io::Error`]s of the kinds people know.

use std::io;

use forebay_stack::control::InterfaceError;
use forebay_stack::socket::SocketError;
use forebay_stack::tcp::{ListenError, TcpConnectError, TcpError};
use forebay_stack::transmit::SendError;
use forebay_stack::udp::{
    BindError, ConnectError, FilterError, MembershipError, NotOpen, OptionError, RecvError,
    UdpSendError,
};

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

pub(crate) fn bind(error: BindError) -> io::Error {
    let kind = match error {
        BindError::NotOpen(_) | BindError::AlreadyBound | BindError::OnlyIpv6 => {
            io::ErrorKind::InvalidInput
        }
        BindError::FamilyNotSupported => io::ErrorKind::Unsupported,
        BindError::InUse => io::ErrorKind::AddrInUse,
        BindError::NotAvailable => io::ErrorKind::AddrNotAvailable,
    };
    io::Error::new(kind, error)
}

pub(crate) fn connect(error: ConnectError) -> io::Error {
    match error {
        ConnectError::NotOpen(error) => not_open(error),
        ConnectError::FamilyNotSupported => io::Error::new(io::ErrorKind::Unsupported, error),
        ConnectError::NoPort => io::Error::new(io::ErrorKind::AddrInUse, error),
        ConnectError::Network(error) => network(error),
    }
}

pub(crate) fn send(error: UdpSendError) -> io::Error {
    match error {
        UdpSendError::NotOpen(error) => not_open(error),
        UdpSendError::DestinationRequired => io::Error::new(io::ErrorKind::NotConnected, error),
        UdpSendError::FamilyNotSupported => io::Error::new(io::ErrorKind::Unsupported, error),
        UdpSendError::NoPort => io::Error::new(io::ErrorKind::AddrInUse, error),
        UdpSendError::Pending(error) => pending(error),
        UdpSendError::Network(error) => network(error),
    }
}

pub(crate) fn receive(error: RecvError) -> io::Error {
    match error {
        RecvError::NotOpen(error) => not_open(error),
        RecvError::Pending(error) => pending(error),
    }
}

pub(crate) fn tcp(error: TcpError) -> io::Error {
    let kind = match error {
        TcpError::NotOpen(_) | TcpError::InvalidArgument => io::ErrorKind::InvalidInput,
        TcpError::NotConnected => io::ErrorKind::NotConnected,
        TcpError::ConnectionRefused => io::ErrorKind::ConnectionRefused,
        TcpError::ConnectionReset => io::ErrorKind::ConnectionReset,
        TcpError::ConnectionAborted => io::ErrorKind::ConnectionAborted,
        TcpError::TimedOut => io::ErrorKind::TimedOut,
        TcpError::BrokenPipe => io::ErrorKind::BrokenPipe,
        TcpError::Network(error) => return pending(error),
    };
    io::Error::new(kind, error)
}

pub(crate) fn listen(error: ListenError) -> io::Error {
    match error {
        ListenError::Bind(error) => bind(error),
        ListenError::Connected => io::Error::new(io::ErrorKind::InvalidInput, error),
    }
}

pub(crate) fn tcp_connect(error: TcpConnectError) -> io::Error {
    let kind = match error {
        TcpConnectError::NotOpen(error) => return not_open(error),
        TcpConnectError::Network(error) => return network(error),
        TcpConnectError::FamilyNotSupported => io::ErrorKind::Unsupported,
        TcpConnectError::NoPort | TcpConnectError::InUse => io::ErrorKind::AddrNotAvailable,
        TcpConnectError::IsConnected
        | TcpConnectError::AlreadyConnecting
        | TcpConnectError::InvalidArgument => io::ErrorKind::InvalidInput,
    };
    io::Error::new(kind, error)
}

pub(crate) fn option(error: OptionError) -> io::Error {
    let kind = match error {
        OptionError::NotOpen(_) | OptionError::InvalidArgument => io::ErrorKind::InvalidInput,
        OptionError::NoDevice => io::ErrorKind::NotFound,
        OptionError::TooMany => io::ErrorKind::OutOfMemory,
        OptionError::Network(error) => return network(error),
    };
    io::Error::new(kind, error)
}

pub(crate) fn filter(error: FilterError) -> io::Error {
    let kind = match error {
        FilterError::NotOpen(_) | FilterError::Program(_) | FilterError::NoGroup => {
            io::ErrorKind::InvalidInput
        }
        FilterError::Locked => io::ErrorKind::PermissionDenied,
        FilterError::NotAttached => io::ErrorKind::NotFound,
        FilterError::TooMany => io::ErrorKind::OutOfMemory,
    };
    io::Error::new(kind, error)
}

pub(crate) fn membership(error: MembershipError) -> io::Error {
    let kind = match error {
        MembershipError::NotOpen(_)
        | MembershipError::NotAGroup(_)
        | MembershipError::FamilyNotSupported
        | MembershipError::OtherMode => io::ErrorKind::InvalidInput,
        MembershipError::NoDevice => io::ErrorKind::NotFound,
        MembershipError::AlreadyMember => io::ErrorKind::AddrInUse,
        MembershipError::NotMember
        | MembershipError::SourceListed
        | MembershipError::SourceNotListed => io::ErrorKind::AddrNotAvailable,
        MembershipError::TooMany => io::ErrorKind::OutOfMemory,
    };
    io::Error::new(kind, error)
}

pub(crate) fn not_open(error: NotOpen) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

pub(crate) fn no_device(name: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::NotFound,
        format!("no interface is called {name:?}"),
    )
}

/// What the network said about an earlier datagram.
pub(crate) fn pending(error: SocketError) -> io::Error {
    let kind = match error {
        SocketError::ConnectionRefused => io::ErrorKind::ConnectionRefused,
        SocketError::HostUnreachable | SocketError::HostProhibited => {
            io::ErrorKind::HostUnreachable
        }
        SocketError::NetworkUnreachable | SocketError::NetworkProhibited => {
            io::ErrorKind::NetworkUnreachable
        }
        SocketError::PermissionDenied => io::ErrorKind::PermissionDenied,
        SocketError::MessageTooLong => io::ErrorKind::InvalidInput,
        SocketError::ProtocolError | SocketError::ProtocolUnavailable => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}

fn network(error: SendError) -> io::Error {
    let kind = match error {
        SendError::NetworkUnreachable => io::ErrorKind::NetworkUnreachable,
        SendError::HostUnreachable => io::ErrorKind::HostUnreachable,
        SendError::AccessDenied => io::ErrorKind::PermissionDenied,
        SendError::InvalidArgument | SendError::MessageTooLong => io::ErrorKind::InvalidInput,
        SendError::NoBuffers => io::ErrorKind::OutOfMemory,
        SendError::AddressNotAvailable => io::ErrorKind::AddrNotAvailable,
        SendError::NetworkDown => io::ErrorKind::NetworkDown,
    };
    io::Error::new(kind, error)
}
