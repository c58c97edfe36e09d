//! The knobs: name, default, range and meaning in one table. Everything else derives from it.
//!
//! The names are Linux's, so are defaults and ranges; what Linux has no knob for is under
//! `net.forebay`. A stack has its own set; a snapshot is
//! immutable, the packet path reads it under its guard, and a write is in force when it returns.

use core::fmt::Write as _;

/// What a knob is.
#[derive(Debug)]
pub struct Definition {
    /// Linux's name; per-interface knobs have `*` in the interface's place.
    pub name: &'static str,
    /// Value of a new stack.
    pub default: i64,
    /// Smallest value accepted.
    pub min: i64,
    /// Largest value accepted.
    pub max: i64,
    /// What it does, in one line, with units.
    pub doc: &'static str,
}

macro_rules! knobs {
    ($(#[doc = $what:literal])+ $enum:ident, $table:ident;
     $($knob:ident = $name:literal, $default:expr, $min:expr => $max:expr, $doc:literal;)+) => {
        $(#[doc = $what])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $enum {
            $(#[doc = concat!("`", $name, "`: ", $doc)] $knob,)+
        }

        static $table: &[(&$enum, Definition)] = &[
            $((&$enum::$knob, Definition {
                name: $name, default: $default, min: $min, max: $max, doc: $doc,
            }),)+
        ];
    };
}

const U8: i64 = u8::MAX as i64;
const INT: i64 = i32::MAX as i64;

knobs! {
    /// Knobs of the whole stack.
    Knob, KNOBS;
    IpEarlyDemux = "net.ipv4.ip_early_demux", 1, 0 => U8,
        "look for an established socket before routing, for both families; 0 wins over the two below";
    TcpEarlyDemux = "net.ipv4.tcp_early_demux", 1, 0 => U8, "early demux for TCP, both families";
    UdpEarlyDemux = "net.ipv4.udp_early_demux", 1, 0 => U8, "early demux for UDP, both families";
    IpDefaultTtl = "net.ipv4.ip_default_ttl", 64, 1 => U8, "TTL of packets sent";
    IpNoPmtuDisc = "net.ipv4.ip_no_pmtu_disc", 0, 0 => 3,
        "0: sockets discover path MTUs unless they say otherwise; 1: they don't, and a router that wants less gets route.min_pmtu; 2, 3: nor is it heard what routers want";
    MinPmtu = "net.ipv4.route.min_pmtu", 552, 68 => INT,
        "bytes: if a router wants less on a path, packets go in this size and may be fragmented on the way";
    MtuExpires = "net.ipv4.route.mtu_expires", 600, 0 => INT,
        "seconds that an IPv4 path's MTU is remembered";
    Ip6MtuExpires = "net.ipv6.route.mtu_expires", 600, 0 => INT,
        "seconds that an IPv6 path's MTU is remembered";
    IpNonlocalBind = "net.ipv4.ip_nonlocal_bind", 0, 0 => 1,
        "let sockets bind to addresses that are not ours";
    IcmpEchoIgnoreAll = "net.ipv4.icmp_echo_ignore_all", 0, 0 => 1, "answer no ICMP echo";
    IcmpEchoIgnoreBroadcasts = "net.ipv4.icmp_echo_ignore_broadcasts", 1, 0 => 1,
        "answer no ICMP echo sent to a broadcast or multicast address";
    IcmpErrorsUseInboundIfaddr = "net.ipv4.icmp_errors_use_inbound_ifaddr", 0, 0 => 1,
        "send ICMP errors from the address of the interface that the packet came in by";
    IcmpRatelimit = "net.ipv4.icmp_ratelimit", 1_000, 0 => INT,
        "milliseconds between ICMP messages of the types in icmp_ratemask to one destination; 0: no limit";
    IcmpRatemask = "net.ipv4.icmp_ratemask", 6_168, 0 => INT,
        "bit n limits ICMP type n; the default limits unreachable, source quench, time exceeded, parameter problem";
    IcmpMsgsPerSec = "net.ipv4.icmp_msgs_per_sec", 10_000, 0 => INT,
        "limited ICMP messages a second to all destinations together, both families; 0: none";
    IcmpMsgsBurst = "net.ipv4.icmp_msgs_burst", 10_000, 0 => INT,
        "how many of them may leave at once";
    IgmpLinkLocalMcastReports = "net.ipv4.igmp_link_local_mcast_reports", 1, 0 => 1,
        "report groups of 224.0.0.0/24, too";
    IgmpMaxMemberships = "net.ipv4.igmp_max_memberships", 20, 0 => INT,
        "IPv4 groups that a socket may join";
    IgmpMaxMsf = "net.ipv4.igmp_max_msf", 10, 0 => INT,
        "sources that a socket may name for an IPv4 group";
    IgmpQrv = "net.ipv4.igmp_qrv", 2, 1 => U8,
        "how often a change of groups is reported, unless a querier says otherwise";
    IpfragTime = "net.ipv4.ipfrag_time", 30, 0 => INT, "seconds to wait for the rest of a datagram";
    IpfragHighThresh = "net.ipv4.ipfrag_high_thresh", 4_194_304, 0 => i64::MAX,
        "bytes of memory for IPv4 fragments; never more than a sixteenth of the packet pool";
    IpLocalPortRange = "net.ipv4.ip_local_port_range", port_range(32_768, 60_999),
        port_range(1, 1) => port_range(65_535, 65_535), "first and last ephemeral port, both families";
    Ip6fragTime = "net.ipv6.ip6frag_time", 60, 0 => INT, "seconds to wait for the rest of a packet";
    Ip6fragHighThresh = "net.ipv6.ip6frag_high_thresh", 4_194_304, 0 => i64::MAX,
        "bytes of memory for IPv6 fragments; never more than a sixteenth of the packet pool";
    Icmp6Ratelimit = "net.ipv6.icmp.ratelimit", 1_000, 0 => INT,
        "milliseconds between ICMPv6 errors to one destination; 0: no limit";
    Icmp6EchoIgnoreAll = "net.ipv6.icmp.echo_ignore_all", 0, 0 => 1, "answer no ICMPv6 echo";
    Icmp6EchoIgnoreMulticast = "net.ipv6.icmp.echo_ignore_multicast", 0, 0 => 1,
        "answer no ICMPv6 echo sent to a group";
    Bindv6only = "net.ipv6.bindv6only", 0, 0 => 1,
        "IPv6 sockets take no IPv4 traffic unless they ask for it";
    MldMaxMsf = "net.ipv6.mld_max_msf", 64, 0 => INT,
        "sources that a socket may name for an IPv6 group";
    MldQrv = "net.ipv6.mld_qrv", 2, 1 => U8,
        "how often a change of IPv6 groups is reported, unless a querier says otherwise";
    MaxHbhOptsNumber = "net.ipv6.max_hbh_opts_number", 8, 0 => INT,
        "most options in a hop-by-hop header, padding aside (RFC 8504 section 5.3)";
    MaxDstOptsNumber = "net.ipv6.max_dst_opts_number", 8, 0 => INT,
        "most options in a destination-options header, padding aside";
    DevWeight = "net.core.dev_weight", 64, 1 => 64, "packets that go through the stages together";
    NetdevBudget = "net.core.netdev_budget", 300, 1 => INT,
        "packets that a worker takes from all its queues before it looks at anything else";
    NetdevMaxBacklog = "net.core.netdev_max_backlog", 1_000, 0 => INT,
        "packets that other cores may leave to a worker before it has come to them";
    RpsSockFlowEntries = "net.core.rps_sock_flow_entries", 0, 0 => 1 << 29,
        "flows of which it is known where they are read, rounded up to a power of two; 0: of none";
    BusyRead = "net.core.busy_read", 0, 0 => INT,
        "microseconds that a read looks for datagrams itself before it sleeps, unless its socket says otherwise (SO_BUSY_POLL)";
    BusyPoll = "net.core.busy_poll", 0, 0 => INT,
        "microseconds that a poller looks for datagrams itself before it sleeps";
    RmemDefault = "net.core.rmem_default", 212_992, 2_304 => INT,
        "bytes a socket's receive queue may charge";
    RmemMax = "net.core.rmem_max", 212_992, 2_304 => INT, "largest SO_RCVBUF a socket may ask for";
    UdpMem = "net.ipv4.udp_mem", triple([5_544, 5_544, 6_336]), 0 => i64::MAX,
        "pages of 4096 bytes that queues of all UDP sockets may hold: each gets more up to the first, those below udp_rmem_min up to the third; starts from what the packet pool has for sockets, and is never more";
    UdpRmemMin = "net.ipv4.udp_rmem_min", 4_096, 1 => INT,
        "bytes that a socket's queue may hold while all together hold more than udp_mem's first";
    PrefetchRmem = "net.forebay.prefetch_rmem", 1, 0 => 1,
        "fetch the line with a UDP socket's receive memory as soon as early demux has found it, both families";
}

knobs! {
    /// Knobs that each interface has, and `all` and `default` beside.
    ConfKnob, CONF_KNOBS;
    V4Forwarding = "net.ipv4.conf.*.forwarding", 0, 0 => INT,
        "forward IPv4 packets that come in here; net.ipv4.ip_forward sets all at once";
    RpFilter = "net.ipv4.conf.*.rp_filter", 0, 0 => 2,
        "check that the route back to an IPv4 source leads to the interface it came by: 1 strict, 2 loose; the larger of `all` and the interface's counts";
    AcceptLocal = "net.ipv4.conf.*.accept_local", 0, 0 => 1,
        "accept packets from our own addresses; `all` or the interface's";
    SendRedirects = "net.ipv4.conf.*.send_redirects", 1, 0 => 1,
        "tell a neighbour of a better first hop; `all` or the interface's";
    BcForwarding = "net.ipv4.conf.*.bc_forwarding", 0, 0 => 1,
        "forward directed broadcasts (RFC 2644); `all` and the interface's";
    RouteLocalnet = "net.ipv4.conf.*.route_localnet", 0, 0 => 1,
        "do not treat 127/8 as martian; `all` or the interface's";
    ForceIgmpVersion = "net.ipv4.conf.*.force_igmp_version", 0, 0 => 3,
        "IGMP version to speak, whatever queriers speak; 0: theirs, or 3. `all` goes before the interface's";
    Igmpv2UnsolicitedReportInterval = "net.ipv4.conf.*.igmpv2_unsolicited_report_interval", 10_000, 0 => INT,
        "milliseconds within which a joined group is reported again, in IGMPv1 and v2";
    Igmpv3UnsolicitedReportInterval = "net.ipv4.conf.*.igmpv3_unsolicited_report_interval", 1_000, 0 => INT,
        "milliseconds within which a change of groups is reported again, in IGMPv3";
    ForceMldVersion = "net.ipv6.conf.*.force_mld_version", 0, 0 => 2,
        "MLD version to speak, whatever queriers speak; 0: theirs, or 2. `all` goes before the interface's";
    Mldv1UnsolicitedReportInterval = "net.ipv6.conf.*.mldv1_unsolicited_report_interval", 10_000, 0 => INT,
        "milliseconds within which a joined group is reported again, in MLDv1";
    Mldv2UnsolicitedReportInterval = "net.ipv6.conf.*.mldv2_unsolicited_report_interval", 1_000, 0 => INT,
        "milliseconds within which a change of groups is reported again, in MLDv2";
    V6Forwarding = "net.ipv6.conf.*.forwarding", 0, 0 => INT,
        "forward IPv6 packets; as in Linux it is `all` that decides";
    DisableIpv6 = "net.ipv6.conf.*.disable_ipv6", 0, 0 => 1, "drop IPv6 packets";
    HopLimit = "net.ipv6.conf.*.hop_limit", 64, 1 => U8, "hop limit of IPv6 packets sent";
}

/// Packs a port range into a knob's value.
pub const fn port_range(first: u16, last: u16) -> i64 {
    ((first as i64) << 16) | last as i64
}

/// Bits of each of three numbers in one value.
const TRIPLE_BITS: u32 = 21;

/// Packs three numbers below 2^21 into a knob's value; larger ones become the largest.
const fn triple([a, b, c]: [u32; 3]) -> i64 {
    const fn fit(number: u32) -> i64 {
        let max = (1 << TRIPLE_BITS) - 1;
        if number < max {
            number as i64
        } else {
            max as i64
        }
    }
    fit(a) << (2 * TRIPLE_BITS) | fit(b) << TRIPLE_BITS | fit(c)
}

const fn unpack_triple(value: i64) -> [u32; 3] {
    let mask = (1 << TRIPLE_BITS) - 1;
    [
        (value >> (2 * TRIPLE_BITS) & mask) as u32,
        (value >> TRIPLE_BITS & mask) as u32,
        (value & mask) as u32,
    ]
}

type Conf = [i64; CONF_KNOBS.len()];

/// Why a knob could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SysctlError {
    /// ENOENT.
    #[error("no knob is called {0:?}; `forebay sysctl -a` lists them")]
    NotFound(String),
    /// EINVAL.
    #[error("{name} takes {expected}, not {value:?}")]
    Invalid {
        /// The knob.
        name: String,
        /// What was written.
        value: String,
        /// What would have been right.
        expected: String,
    },
}

/// The values of all knobs: one immutable snapshot.
#[derive(Debug, Clone)]
pub struct Sysctls {
    values: [i64; KNOBS.len()],
    all: Conf,
    default: Conf,
    /// By interface index; `None` where there is no such interface.
    interfaces: Vec<Option<(String, Conf)>>,
}

impl Default for Sysctls {
    fn default() -> Self {
        let mut conf = [0; CONF_KNOBS.len()];
        for (value, (_, definition)) in conf.iter_mut().zip(CONF_KNOBS) {
            *value = definition.default;
        }
        let mut values = [0; KNOBS.len()];
        for (value, (_, definition)) in values.iter_mut().zip(KNOBS) {
            *value = definition.default;
        }
        Self {
            values,
            all: conf,
            default: conf,
            interfaces: Vec::new(),
        }
    }
}

impl Sysctls {
    /// A knob's value.
    pub fn get(&self, knob: Knob) -> i64 {
        self.values[knob as usize]
    }

    /// Whether a knob is not 0.
    pub fn is_on(&self, knob: Knob) -> bool {
        self.get(knob) != 0
    }

    /// The ephemeral ports, first and last.
    pub fn local_port_range(&self) -> (u16, u16) {
        unpack_ports(self.get(Knob::IpLocalPortRange))
    }

    /// `net.ipv4.udp_mem`: min, pressure and max, in pages.
    pub(crate) fn udp_mem(&self) -> [u32; 3] {
        unpack_triple(self.get(Knob::UdpMem))
    }

    /// Sets what `net.ipv4.udp_mem` starts from.
    pub(crate) fn set_udp_mem(&mut self, pages: [u32; 3]) {
        self.values[Knob::UdpMem as usize] = triple(pages);
    }

    /// What is written under `all`.
    pub fn conf_all(&self, knob: ConfKnob) -> i64 {
        self.all[knob as usize]
    }

    /// The interface's own value; `default`'s for an unknown interface.
    pub fn conf(&self, ifindex: u32, knob: ConfKnob) -> i64 {
        let conf = self
            .interfaces
            .get(ifindex as usize)
            .and_then(Option::as_ref);
        conf.map_or(&self.default, |(_, conf)| conf)[knob as usize]
    }

    /// Linux's `IN_DEV_MAXCONF`: the larger of `all` and the interface's.
    pub fn conf_max(&self, ifindex: u32, knob: ConfKnob) -> i64 {
        self.conf_all(knob).max(self.conf(ifindex, knob))
    }

    /// Linux's `IN_DEV_ORCONF`: `all` or the interface's.
    pub fn conf_or(&self, ifindex: u32, knob: ConfKnob) -> bool {
        self.conf_all(knob) != 0 || self.conf(ifindex, knob) != 0
    }

    /// Linux's `IN_DEV_ANDCONF`: `all` and the interface's.
    pub fn conf_and(&self, ifindex: u32, knob: ConfKnob) -> bool {
        self.conf_all(knob) != 0 && self.conf(ifindex, knob) != 0
    }

    /// Gives a new interface the values of `default`.
    pub(crate) fn add_interface(&mut self, ifindex: u32, name: &str) {
        let index = ifindex as usize;
        if self.interfaces.len() <= index {
            self.interfaces.resize(index + 1, None);
        }
        self.interfaces[index] = Some((name.to_owned(), self.default));
    }

    /// Forgets an interface's values.
    pub(crate) fn remove_interface(&mut self, ifindex: u32) {
        if let Some(conf) = self.interfaces.get_mut(ifindex as usize) {
            *conf = None;
        }
    }

    /// Reads a knob by name, as sysctl(8) prints it.
    ///
    /// # Errors
    ///
    /// [`SysctlError::NotFound`].
    pub fn read(&self, name: &str) -> Result<String, SysctlError> {
        let place = self.find(name)?;
        Ok(place.print(*self.value(&place)))
    }

    /// Writes a knob by name, on a copy that is then published.
    ///
    /// # Errors
    ///
    /// [`SysctlError`], with nothing changed.
    pub fn write(&mut self, name: &str, text: &str) -> Result<(), SysctlError> {
        let place = self.find(name)?;
        let value = place.parse(text).ok_or_else(|| SysctlError::Invalid {
            name: canonical(name),
            value: text.to_owned(),
            expected: place.expected(),
        })?;
        match place {
            Place::Conf(Scope::All, knob @ (ConfKnob::V4Forwarding | ConfKnob::V6Forwarding)) => {
                self.set_forwarding_everywhere(knob, value);
            }
            Place::Conf(Scope::Interface(index), knob) => {
                if let Some(Some((_, conf))) = self.interfaces.get_mut(index) {
                    conf[knob as usize] = value;
                }
            }
            Place::Conf(Scope::All, knob) => self.all[knob as usize] = value,
            Place::Conf(Scope::Default, knob) => self.default[knob as usize] = value,
            Place::Stack(knob) => self.values[knob as usize] = value,
        }
        Ok(())
    }

    /// Every knob with its value, sorted by name.
    pub fn list(&self) -> Vec<(String, String)> {
        let mut list = vec![(
            "net.ipv4.ip_forward".to_owned(),
            self.conf_all(ConfKnob::V4Forwarding).to_string(),
        )];
        for (knob, definition) in KNOBS {
            let place = Place::Stack(**knob);
            list.push((definition.name.to_owned(), place.print(self.get(**knob))));
        }
        for (knob, definition) in CONF_KNOBS {
            let name = |scope: &str| definition.name.replace('*', scope);
            list.push((name("all"), self.conf_all(**knob).to_string()));
            list.push((name("default"), self.default[**knob as usize].to_string()));
            for (interface, conf) in self.interfaces.iter().flatten() {
                list.push((name(interface), conf[**knob as usize].to_string()));
            }
        }
        list.sort();
        list
    }

    /// Linux's `inet_forward_change`: a host becomes a router, or stops being one, as a whole.
    fn set_forwarding_everywhere(&mut self, knob: ConfKnob, value: i64) {
        self.all[knob as usize] = value;
        self.default[knob as usize] = value;
        for (_, conf) in self.interfaces.iter_mut().flatten() {
            conf[knob as usize] = value;
        }
    }

    fn find(&self, name: &str) -> Result<Place, SysctlError> {
        let name = canonical(name);
        if name == "net.ipv4.ip_forward" {
            return Ok(Place::Conf(Scope::All, ConfKnob::V4Forwarding));
        }
        if let Some(knob) = knob_called(&name) {
            return Ok(Place::Stack(knob));
        }
        for (knob, definition) in CONF_KNOBS {
            let Some((front, back)) = definition.name.split_once('*') else {
                continue;
            };
            let scope = name
                .strip_prefix(front)
                .and_then(|rest| rest.strip_suffix(back));
            if let Some(scope) = scope.and_then(|scope| self.scope(scope)) {
                return Ok(Place::Conf(scope, **knob));
            }
        }
        Err(SysctlError::NotFound(name))
    }

    fn scope(&self, name: &str) -> Option<Scope> {
        match name {
            "all" => Some(Scope::All),
            "default" => Some(Scope::Default),
            _ => {
                let is_it = |conf: &Option<(String, Conf)>| {
                    conf.as_ref()
                        .is_some_and(|(interface, _)| interface == name)
                };
                self.interfaces.iter().position(is_it).map(Scope::Interface)
            }
        }
    }

    fn value(&self, place: &Place) -> &i64 {
        match place {
            Place::Stack(knob) => &self.values[*knob as usize],
            Place::Conf(Scope::All, knob) => &self.all[*knob as usize],
            Place::Conf(Scope::Default, knob) => &self.default[*knob as usize],
            Place::Conf(Scope::Interface(index), knob) => {
                let conf = self.interfaces.get(*index).and_then(Option::as_ref);
                &conf.map_or(&self.default, |(_, conf)| conf)[*knob as usize]
            }
        }
    }
}

/// Where a name leads.
enum Place {
    Stack(Knob),
    Conf(Scope, ConfKnob),
}

/// How a value is written.
enum Format {
    Number,
    PortRange,
    Triple,
}

enum Scope {
    All,
    Default,
    Interface(usize),
}

impl Place {
    fn definition(&self) -> &'static Definition {
        match self {
            Self::Stack(knob) => &KNOBS[*knob as usize].1,
            Self::Conf(_, knob) => &CONF_KNOBS[*knob as usize].1,
        }
    }

    /// What is kept of a number that was written.
    fn round(&self, value: i64) -> i64 {
        match self {
            // No more than 2^29, so there is a power of two.
            Self::Stack(Knob::RpsSockFlowEntries) if value > 0 => {
                value.unsigned_abs().next_power_of_two().cast_signed()
            }
            _ => value,
        }
    }

    fn format(&self) -> Format {
        match self {
            Self::Stack(Knob::IpLocalPortRange) => Format::PortRange,
            Self::Stack(Knob::UdpMem) => Format::Triple,
            _ => Format::Number,
        }
    }

    fn parse(&self, text: &str) -> Option<i64> {
        match self.format() {
            Format::PortRange => {
                let mut ports = text.split_whitespace().map(str::parse::<u16>);
                let (first, last) = (ports.next()?.ok()?, ports.next()?.ok()?);
                let is_range = first >= 1 && first <= last && ports.next().is_none();
                is_range.then(|| port_range(first, last))
            }
            Format::Triple => {
                let words: Vec<&str> = text.split_whitespace().collect();
                let [a, b, c] = <[&str; 3]>::try_from(words).ok()?;
                let numbers = [a.parse().ok()?, b.parse().ok()?, c.parse().ok()?];
                let fit = numbers.iter().all(|number| number >> TRIPLE_BITS == 0);
                fit.then(|| triple(numbers))
            }
            Format::Number => {
                let Definition { min, max, .. } = *self.definition();
                text.trim()
                    .parse()
                    .ok()
                    .filter(|value| (min..=max).contains(value))
                    .map(|value| self.round(value))
            }
        }
    }

    fn print(&self, value: i64) -> String {
        match self.format() {
            Format::PortRange => {
                let (first, last) = unpack_ports(value);
                format!("{first}\t{last}")
            }
            Format::Triple => {
                let [a, b, c] = unpack_triple(value);
                format!("{a}\t{b}\t{c}")
            }
            Format::Number => value.to_string(),
        }
    }

    fn expected(&self) -> String {
        match self.format() {
            Format::PortRange => {
                return "two ports, the first not above the last (\"32768 60999\")".to_owned();
            }
            Format::Triple => {
                return "three numbers of pages, each below 2097152 (\"5544 5544 6336\")"
                    .to_owned();
            }
            Format::Number => {}
        }
        let Definition { min, max, .. } = *self.definition();
        let mut text = format!("a number from {min}");
        let _ = match max {
            i64::MAX => write!(text, " up"),
            _ => write!(text, " to {max}"),
        };
        text
    }
}

/// The definitions of all knobs, for documentation and completion.
pub fn definitions() -> impl Iterator<Item = &'static Definition> {
    let stack = KNOBS.iter().map(|(_, definition)| definition);
    stack.chain(CONF_KNOBS.iter().map(|(_, definition)| definition))
}

/// The knob of the whole stack that has this name.
pub(crate) fn knob_called(name: &str) -> Option<Knob> {
    let name = canonical(name);
    let known = KNOBS.iter().find(|(_, definition)| definition.name == name);
    known.map(|(knob, _)| **knob)
}

/// sysctl(8) takes slashes as well as dots; with slashes, an interface's name may hold dots.
fn canonical(name: &str) -> String {
    let slashes = name
        .find(['.', '/'])
        .is_some_and(|at| name[at..].starts_with('/'));
    if slashes {
        name.replace('/', ".")
    } else {
        name.to_owned()
    }
}

fn unpack_ports(value: i64) -> (u16, u16) {
    let [.., a, b, c, d] = value.to_be_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_enum_and_names_are_unique() {
        assert!(
            KNOBS
                .iter()
                .enumerate()
                .all(|(index, (knob, _))| **knob as usize == index)
        );
        assert!(
            CONF_KNOBS
                .iter()
                .enumerate()
                .all(|(index, (knob, _))| **knob as usize == index)
        );
        let mut names: Vec<_> = definitions().map(|definition| definition.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), KNOBS.len() + CONF_KNOBS.len());
    }

    #[test]
    fn one_byte_knobs_refuse_what_does_not_fit() {
        for name in [
            "net.ipv4.ip_early_demux",
            "net.ipv4.tcp_early_demux",
            "net.ipv4.udp_early_demux",
        ] {
            let mut sysctls = Sysctls::default();
            for good in ["0", "2", "255"] {
                sysctls.write(name, good).unwrap();
                assert_eq!(sysctls.read(name).unwrap(), good);
            }
            for bad in ["-1", "256", "", "on", "1 1", "0x1"] {
                assert!(
                    matches!(sysctls.write(name, bad), Err(SysctlError::Invalid { .. })),
                    "{bad}"
                );
                assert_eq!(sysctls.read(name).unwrap(), "255");
            }
        }
    }

    #[test]
    fn ip_forward_sets_every_interface() {
        let mut sysctls = Sysctls::default();
        sysctls.add_interface(2, "tun0");
        sysctls.write("net.ipv4.ip_forward", "1").unwrap();
        assert_eq!(sysctls.conf(2, ConfKnob::V4Forwarding), 1);
        assert_eq!(sysctls.read("net.ipv4.conf.all.forwarding").unwrap(), "1");
        sysctls.write("net/ipv4/conf/tun0/forwarding", "0").unwrap();
        assert_eq!(sysctls.conf(2, ConfKnob::V4Forwarding), 0);
        assert_eq!(sysctls.read("net.ipv4.ip_forward").unwrap(), "1");
    }

    #[test]
    fn an_interface_starts_with_the_defaults_of_its_time() {
        let mut sysctls = Sysctls::default();
        sysctls
            .write("net.ipv4.conf.default.rp_filter", "2")
            .unwrap();
        sysctls.add_interface(1, "eth0.5");
        sysctls
            .write("net.ipv4.conf.default.rp_filter", "0")
            .unwrap();
        assert_eq!(sysctls.read("net/ipv4/conf/eth0.5/rp_filter").unwrap(), "2");
        assert_eq!(sysctls.conf_max(1, ConfKnob::RpFilter), 2);
        sysctls.remove_interface(1);
        assert_eq!(sysctls.conf_max(1, ConfKnob::RpFilter), 0);
    }

    #[test]
    fn udp_mem_is_three_numbers() {
        let mut sysctls = Sysctls::default();
        let name = "net.ipv4.udp_mem";
        assert_eq!(sysctls.read(name).unwrap(), "5544\t5544\t6336");
        for good in [[0, 0, 0], [1, 2, 2_097_151], [9, 8, 7]] {
            let text = good.map(|number: u32| number.to_string()).join(" ");
            sysctls.write(name, &text).unwrap();
            assert_eq!(sysctls.udp_mem(), good);
        }
        for bad in ["1 2", "1 2 3 4", "1 2 2097152", "-1 2 3", "a b c"] {
            assert!(sysctls.write(name, bad).is_err(), "{bad}");
            assert_eq!(sysctls.udp_mem(), [9, 8, 7]);
        }
    }

    #[test]
    fn a_port_range_is_two_ports_in_order() {
        let mut sysctls = Sysctls::default();
        let name = "net.ipv4.ip_local_port_range";
        assert_eq!(sysctls.read(name).unwrap(), "32768\t60999");
        sysctls.write(name, "1024 2048").unwrap();
        assert_eq!(sysctls.local_port_range(), (1024, 2048));
        for bad in ["0 5", "9 8", "5", "1 65536", "1 2 3"] {
            assert!(sysctls.write(name, bad).is_err(), "{bad}");
        }
    }
}
