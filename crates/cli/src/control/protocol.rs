//! What commands and a stack say to each other: JSON, one message a line.
//!
//! A command sends [`Call`]s, and the stack answers each with one [`Answer`] or, where a list is
//! long, with several of which all but the last say that there is `more`.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

mod activity;

pub(crate) use activity::{Activity, CoreActivity, QueueActivity, StageActivity};

/// Goes up whenever an older command would misunderstand.
pub(crate) const VERSION: u32 = 1;

/// The longest line that a stack reads, in bytes.
pub(crate) const MAX_CALL: usize = 64 * 1024;

/// The longest line that a command reads, in bytes.
pub(crate) const MAX_ANSWER: usize = 4 * 1024 * 1024;

/// How many entries of a list go into one answer.
pub(crate) const ENTRIES_PER_ANSWER: usize = 1_000;

/// What every message has, whatever its version.
#[derive(Debug, Deserialize)]
pub(crate) struct Versioned {
    pub(crate) version: u32,
}

/// A command's line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Call {
    pub(crate) version: u32,
    pub(crate) request: Request,
}

/// A stack's line.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    pub(crate) version: u32,
    /// The reply goes on in the next line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) more: bool,
    pub(crate) reply: Reply,
}

/// What a command wants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request {
    Sysctls,
    Sysctl {
        name: String,
    },
    SetSysctl {
        name: String,
        value: String,
    },
    Links,
    SetLink {
        dev: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up: Option<bool>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mtu: Option<u32>,
    },
    AddAddress {
        dev: String,
        address: Network,
    },
    DeleteAddress {
        dev: String,
        address: Network,
    },
    Routes {
        family: Family,
        /// All tables if none is named.
        table: Option<u32>,
    },
    AddRoute {
        route: Route,
        conflict: Conflict,
    },
    DeleteRoute(RouteSelector),
    LookUp(Lookup),
    Rules {
        family: Family,
    },
    AddRule(RuleSelector),
    DeleteRule(RuleSelector),
    Counters,
    UdpSockets,
    Groups,
    /// From then on the stack measures what its stages take, until the connection ends.
    Activity,
}

/// What a stack replies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Done,
    Failed(Failure),
    Value(String),
    Sysctls(Vec<(String, String)>),
    Links(Vec<Link>),
    Routes(Vec<Route>),
    Path(Path),
    Rules(Vec<Rule>),
    Counters(Counters),
    UdpSockets(Vec<UdpSocket>),
    Groups(Vec<Group>),
    Activity(Activity),
}

impl Reply {
    /// The reply in pieces that fit into a line each.
    pub(crate) fn into_pieces(self) -> Vec<Self> {
        match self {
            Self::Routes(routes) => pieces(routes, Self::Routes),
            Self::UdpSockets(sockets) => pieces(sockets, Self::UdpSockets),
            Self::Groups(groups) => pieces(groups, Self::Groups),
            short => vec![short],
        }
    }

    /// Puts a piece behind those that came before it; gives it back if it doesn't belong there.
    pub(crate) fn append(&mut self, piece: Self) -> Result<(), Self> {
        match (self, piece) {
            (Self::Routes(routes), Self::Routes(next)) => routes.extend(next),
            (Self::UdpSockets(sockets), Self::UdpSockets(next)) => sockets.extend(next),
            (Self::Groups(groups), Self::Groups(next)) => groups.extend(next),
            (_, stranger) => return Err(stranger),
        }
        Ok(())
    }
}

fn pieces<T>(entries: Vec<T>, reply: impl Fn(Vec<T>) -> Reply) -> Vec<Reply> {
    let mut entries = entries.into_iter().peekable();
    let mut pieces = Vec::new();
    while pieces.is_empty() || entries.peek().is_some() {
        pieces.push(reply(entries.by_ref().take(ENTRIES_PER_ANSWER).collect()));
    }
    pieces
}

/// Why a stack did not do what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Failure {
    pub(crate) errno: Errno,
    /// For people; starts with the errno's usual text.
    pub(crate) message: String,
}

impl Failure {
    /// The errno's usual text, what is wrong, and what to do.
    pub(crate) fn new(errno: Errno, what: impl std::fmt::Display) -> Self {
        Self {
            errno,
            message: format!("{}: {what}", errno.text()),
        }
    }
}

/// The errors that Linux would return, by name, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Errno {
    #[serde(rename = "ENOENT")]
    NoEnt,
    #[serde(rename = "ESRCH")]
    Srch,
    #[serde(rename = "EAGAIN")]
    Again,
    #[serde(rename = "EACCES")]
    Access,
    #[serde(rename = "EEXIST")]
    Exist,
    #[serde(rename = "ENODEV")]
    NoDev,
    #[serde(rename = "EINVAL")]
    Inval,
    #[serde(rename = "EMSGSIZE")]
    MsgSize,
    #[serde(rename = "EPROTONOSUPPORT")]
    ProtoNoSupport,
    #[serde(rename = "EADDRNOTAVAIL")]
    AddrNotAvail,
    #[serde(rename = "ENETUNREACH")]
    NetUnreach,
    #[serde(rename = "EHOSTUNREACH")]
    HostUnreach,
}

impl Errno {
    /// What perror(3) says.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::NoEnt => "No such file or directory",
            Self::Srch => "No such process",
            Self::Again => "Resource temporarily unavailable",
            Self::Access => "Permission denied",
            Self::Exist => "File exists",
            Self::NoDev => "No such device",
            Self::Inval => "Invalid argument",
            Self::MsgSize => "Message too long",
            Self::ProtoNoSupport => "Protocol not supported",
            Self::AddrNotAvail => "Cannot assign requested address",
            Self::NetUnreach => "Network is unreachable",
            Self::HostUnreach => "No route to host",
        }
    }
}

/// IPv4 or IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Family {
    Inet,
    Inet6,
}

impl Family {
    pub(crate) const fn of(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(_) => Self::Inet,
            IpAddr::V6(_) => Self::Inet6,
        }
    }
}

/// An address and a prefix length: an interface's address with its network, or a prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) addr: IpAddr,
    pub(crate) len: u8,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) mtu: u32,
    pub(crate) up: bool,
    pub(crate) loopback: bool,
    pub(crate) addresses: Vec<LinkAddress>,
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LinkAddress {
    pub(crate) network: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) broadcast: Option<IpAddr>,
}

/// A multicast group that an interface is in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) ifindex: u32,
    pub(crate) addr: IpAddr,
    pub(crate) users: u32,
    pub(crate) mode: SourceMode,
    pub(crate) sources: Vec<IpAddr>,
}

/// Whether sources are those wanted, or those not wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SourceMode {
    Include,
    Exclude,
}

/// What to do about a route to the same prefix with the same metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Conflict {
    Refuse,
    Append,
    Replace,
}

/// A route as it is listed or added. In words: iproute2's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Route {
    pub(crate) table: u32,
    pub(crate) kind: String,
    pub(crate) prefix: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) src: Option<IpAddr>,
    /// The family's usual one if none is named; always there in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metric: Option<u32>,
    /// The kind's usual one if none is named; always there in a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    pub(crate) protocol: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) onlink: bool,
}

/// Which route to delete: the first that agrees in all that is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RouteSelector {
    pub(crate) table: u32,
    pub(crate) prefix: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) src: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) metric: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) scope: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) protocol: Option<u8>,
}

/// A packet whose way is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lookup {
    pub(crate) to: IpAddr,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<IpAddr>,
    /// The interface that it came in by; none for a packet of the stack's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iif: Option<String>,
    /// The interface that it has to leave by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oif: Option<String>,
}

/// The way that a packet would take.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Path {
    pub(crate) kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) via: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) src: Option<IpAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mtu: Option<u32>,
    /// Seconds until a path's MTU is forgotten, which a router has told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires: Option<u64>,
}

/// A rule as it is listed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rule {
    pub(crate) priority: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iif: Option<String>,
    pub(crate) action: RuleAction,
}

/// What a rule does with packets that match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RuleAction {
    Lookup(u32),
    Blackhole,
    Unreachable,
    Prohibit,
}

/// A rule to add, or which one to delete: the first that agrees in all that is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleSelector {
    pub(crate) family: Family,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) from: Option<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) to: Option<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) iif: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) action: Option<RuleAction>,
}

/// What a stack has counted since it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Names one run of a stack: counters of another run are no history of this one's.
    pub(crate) run: String,
    /// SNMP counters, in the order in which nstat(8) prints them.
    pub(crate) snmp: Vec<(String, u64)>,
    /// Packets dropped, by reason.
    pub(crate) drops: Vec<Drops>,
}

/// How many packets were dropped for a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Drops {
    pub(crate) reason: String,
    pub(crate) packets: u64,
    /// The reason in a line for people.
    pub(crate) doc: String,
}

/// An open UDP socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UdpSocket {
    /// Address and port; an unspecified address stands for any.
    pub(crate) local: SocketAddr,
    /// The peer, if it is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) peer: Option<SocketAddr>,
    /// The interface that it is bound to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) dev: Option<String>,
    /// An IPv6 socket without IPv4 traffic.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) v6only: bool,
    /// Takes datagrams to addresses that are not the stack's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) transparent: bool,
    /// Bytes that wait to be read, with what they take in memory (`sk_rmem_alloc`).
    pub(crate) rmem: u64,
    /// How many bytes may wait (`sk_rcvbuf`).
    pub(crate) rcvbuf: u64,
    /// Datagrams dropped for want of room.
    pub(crate) drops: u64,
}
