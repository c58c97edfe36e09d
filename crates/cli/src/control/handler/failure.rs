//! The stack's errors, with Linux's errno and what to do.

use forebay::control::InterfaceError;
use forebay::fib::{LookupError, RouteError, RuleError, UnknownName};
use forebay::sysctl::SysctlError;

use crate::control::protocol::{Errno, Failure};

impl From<SysctlError> for Failure {
    fn from(error: SysctlError) -> Self {
        let errno = match error {
            SysctlError::NotFound(_) => Errno::NoEnt,
            SysctlError::Invalid { .. } => Errno::Inval,
            SysctlError::ReadOnly(_) => Errno::Access,
        };
        Failure::new(errno, error)
    }
}

impl From<InterfaceError> for Failure {
    fn from(error: InterfaceError) -> Self {
        let errno = match error {
            InterfaceError::NameTaken(_) | InterfaceError::AddressExists(_) => Errno::Exist,
            InterfaceError::NotFound => Errno::NoDev,
            InterfaceError::AddressNotFound(_) => Errno::AddrNotAvail,
            InterfaceError::BadName(_)
            | InterfaceError::BadMtu(_)
            | InterfaceError::BadAddress(_)
            | InterfaceError::BadPrefix(_)
            | InterfaceError::MtuTooSmallForIpv6(_) => Errno::Inval,
        };
        Failure::new(errno, error)
    }
}

impl From<RouteError> for Failure {
    fn from(error: RouteError) -> Self {
        let (errno, advice) = match error {
            RouteError::Exists => (
                Errno::Exist,
                "`replace` puts yours in its place, another metric beside it",
            ),
            RouteError::NotFound => (Errno::Srch, "`forebay route show table all` lists them"),
            RouteError::NoDevice => (Errno::NoDev, "name one with `dev`"),
            RouteError::GatewayUnreachable => {
                (Errno::NetUnreach, "add one, or say `onlink` with `dev`")
            }
            RouteError::InvalidMtu => (Errno::Inval, "give 68 to 65535, or 0 for the interface's"),
            RouteError::InvalidPrefSrc => (Errno::Inval, "`forebay addr` lists those that are"),
            RouteError::KindWithGateway | RouteError::InvalidScope | RouteError::InvalidGateway => {
                return Failure {
                    errno: Errno::Inval,
                    message: error.to_string(),
                };
            }
        };
        // These texts begin with the errno's already.
        Failure {
            errno,
            message: format!("{error}; {advice}"),
        }
    }
}

impl From<RuleError> for Failure {
    fn from(error: RuleError) -> Self {
        let (errno, advice) = match error {
            RuleError::Exists => (Errno::Exist, "give yours another priority"),
            RuleError::NotFound => (Errno::NoEnt, "`forebay rule` lists them"),
        };
        Failure {
            errno,
            message: format!("{error}; {advice}"),
        }
    }
}

impl From<LookupError> for Failure {
    fn from(error: LookupError) -> Self {
        let (errno, what) = match error {
            LookupError::NoRoute => (Errno::NetUnreach, "no route matches, or a rule refuses"),
            LookupError::Blackhole => (Errno::Inval, "a blackhole route or rule"),
            LookupError::Unreachable => (Errno::HostUnreach, "an unreachable route"),
            LookupError::Prohibit => (Errno::Access, "a prohibit route or rule"),
        };
        Failure::new(errno, what)
    }
}

impl From<UnknownName> for Failure {
    fn from(error: UnknownName) -> Self {
        Failure::new(Errno::Inval, error)
    }
}
