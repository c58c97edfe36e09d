//! A stack that meets packets of strangers, and says what became of each.

mod verdict;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::fib::{Address, Fib, Prefix, Route, RouteKind, Rule, RuleAction, TableId};
use forebay_stack::packet::IpVersion;
use forebay_stack::socket::SocketId;
use forebay_stack::wire::{Ipv4Header, Ipv6Header, ipv4, protocol};
use zerocopy::FromBytes;

use crate::packets::{self, Parsed};
use crate::{Rig, V4, V6};

pub use verdict::{Told, UnknownVerdict, Verdict};

/// What the stack is to the packets that it meets. They all come in by tun0, and answers to their
/// senders leave there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Everybody's destination lies behind tun1.
    Router,
    /// Everybody is this host (`local 0.0.0.0/0` and `local ::/0` for what comes in), as a
    /// transparent proxy has it. UDP sockets wait at [`PORTS`].
    Host,
}

impl Role {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Router, Self::Host];
}

/// Where the host's sockets wait, each for both families.
pub const PORTS: [u16; 4] = [7_437, 13_000, 51_850, 51_851];

/// A [`Rig`] in a [`Role`].
///
/// Its own addresses are out of the way of documentation's and captures' usual ones. ICMP is not
/// rate-limited: each packet shall get its answer, whatever came before.
#[derive(Debug)]
pub struct Lab {
    /// The rig itself.
    pub rig: Rig,
    sockets: Vec<SocketId>,
}

impl Lab {
    /// A stack in a role.
    pub fn new(role: Role) -> Self {
        let rig = Rig::new();
        move_out_of_the_way(&rig);
        rig.set("net.ipv4.icmp_ratelimit", 0);
        rig.set("net.ipv6.icmp.ratelimit", 0);
        let kind = match role {
            Role::Router => RouteKind::Unicast,
            Role::Host => RouteKind::Local,
        };
        lead::<Ipv4Addr>(&rig, rig.stack.fib4(), kind);
        lead::<Ipv6Addr>(&rig, rig.stack.fib6(), kind);
        let sockets = match role {
            Role::Router => Vec::new(),
            Role::Host => PORTS.map(|port| listen(&rig, port)).to_vec(),
        };
        Self { rig, sockets }
    }

    /// What becomes of a packet that comes in by tun0.
    pub fn meet(&mut self, packet: &[u8]) -> Verdict {
        self.watch(packet, |rig| rig.inject("tun0", packet))
    }

    /// What becomes of a packet when `happen` lets it happen, be it that it comes in with metadata
    /// or that its time runs out.
    pub fn watch(&mut self, packet: &[u8], happen: impl FnOnce(&mut Rig)) -> Verdict {
        let before = self.rig.counters();
        happen(&mut self.rig);
        let after = self.rig.counters();

        let drops: Vec<(DropReason, u64)> = after
            .drops()
            .map(|(reason, count)| (reason, count - before.dropped(reason)))
            .filter(|(_, count)| *count > 0)
            .collect();
        let waiting = |snapshot: &forebay_stack::counters::Snapshot| {
            let asked = [Counter::IpReasmReqds, Counter::Ip6ReasmReqds];
            let done = [Counter::IpReasmOKs, Counter::Ip6ReasmOKs];
            let sum = |counters: [Counter; 2]| -> u64 {
                counters.iter().map(|counter| snapshot.get(*counter)).sum()
            };
            sum(asked) - sum(done)
        };
        let answers = self.rig.output("tun0");
        let sent_on = self.rig.output("tun1");
        let received = self.received();

        match (&drops[..], &answers[..], &sent_on[..], &received[..]) {
            ([], [], [one], []) => {
                assert_eq!(*one, one_hop_older(packet), "of {packet:02x?}");
                Verdict::Forwarded(1)
            }
            ([], [], [_, ..], []) => {
                for part in &sent_on {
                    packets::parse(part);
                }
                Verdict::Forwarded(sent_on.len())
            }
            ([], [], [], [len]) => Verdict::Delivered(*len),
            ([], [answer], [], []) => Verdict::Answered(told(packet, answer)),
            ([], [], [], []) if waiting(&after) > waiting(&before) => Verdict::Held,
            ([], [], [], []) => Verdict::Consumed,
            ([(reason, count)], [], [], []) => Verdict::Dropped(*reason, *count),
            ([(reason, count)], [answer], [], []) => {
                Verdict::Rejected(*reason, *count, told(packet, answer))
            }
            what => panic!("{packet:02x?} came to {what:02x?}"),
        }
    }

    /// Whatever waits for more has waited long enough. `packet` is who an answer would be for.
    pub fn time_out(&mut self, packet: &[u8]) -> Option<Verdict> {
        let verdict = self.watch(packet, |rig| rig.advance(Duration::from_secs(61)));
        (verdict != Verdict::Consumed).then_some(verdict)
    }

    /// Nobody wants anything any more: the pool must be full again.
    ///
    /// # Panics
    ///
    /// If it is not.
    pub fn close(mut self) {
        self.rig.advance(Duration::from_secs(61));
        for id in self.sockets.drain(..) {
            self.rig.stack.udp_close(id).expect("an open socket");
        }
        for interface in ["tun0", "tun1"] {
            self.rig.output(interface);
        }
        let lost = self.rig.buffers_in_use();
        assert_eq!(lost, 0, "buffers that did not come home");
    }

    /// Bytes of each datagram that a socket has got.
    fn received(&self) -> Vec<usize> {
        let mut buf = [0; 65_535];
        let mut lens = Vec::new();
        for id in &self.sockets {
            while let Ok(Some(datagram)) = self.rig.stack.udp_recv(*id, &mut buf, false) {
                lens.push(datagram.len);
            }
        }
        lens
    }
}

fn move_out_of_the_way(rig: &Rig) {
    let v6 = |group| Ipv6Addr::new(0x2001, 0xdb8, group, 0, 0, 0, 0xfeed, 0xbeef);
    let places = [
        (
            "tun0",
            V4::OWN,
            Ipv4Addr::new(203, 0, 113, 1),
            V6::OWN,
            v6(0xf0eb),
        ),
        (
            "tun1",
            V4::OWN1,
            Ipv4Addr::new(198, 18, 0, 1),
            V6::OWN1,
            v6(0xf0ec),
        ),
    ];
    for (name, old4, new4, old6, new6) in places {
        let ifindex = rig.ifindex(name);
        for (old, new, len) in [
            (IpAddr::from(old4), IpAddr::from(new4), 24),
            (old6.into(), new6.into(), 64),
        ] {
            rig.stack
                .remove_address(ifindex, old, len)
                .expect("an address of the rig");
            rig.stack
                .add_address(ifindex, new, len)
                .expect("a new address");
        }
    }
}

/// Whatever comes in by tun0 goes where a route of this kind says; whatever else is sent, leaves by
/// tun0.
fn lead<A: Address>(rig: &Rig, fib: &Fib<A>, kind: RouteKind) {
    let everybody = Prefix::new(A::UNSPECIFIED, 0).expect("a prefix");
    let incoming = TableId(100);
    let (tun0, tun1) = (rig.ifindex("tun0"), rig.ifindex("tun1"));
    fib.add(
        TableId::MAIN,
        Route::new(RouteKind::Unicast, everybody).dev(tun0),
    )
    .expect("a new route");
    fib.add(incoming, Route::new(kind, everybody).dev(tun1))
        .expect("a new route");
    let rule = Rule {
        iif: Some(tun0),
        ..Rule::all(100, RuleAction::Lookup(incoming))
    };
    fib.add_rule(rule).expect("a new rule");
}

fn listen(rig: &Rig, port: u16) -> SocketId {
    let id = rig.stack.udp_open(IpVersion::V6).expect("a socket");
    let anywhere = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    rig.stack.udp_bind(id, anywhere).expect("a free port");
    id
}

/// The packet as a router passes it on: without what padded its frame, and one hop older.
fn one_hop_older(packet: &[u8]) -> Vec<u8> {
    if let Ok((ip, _)) = Ipv4Header::ref_from_prefix(packet)
        && ip.version() == 4
    {
        let mut older = packet[..usize::from(ip.total_len.get())].to_vec();
        older[8] -= 1;
        ipv4::fill_checksum(&mut older);
        return older;
    }
    let (ip, _) = Ipv6Header::ref_from_prefix(packet).expect("an IPv6 header");
    let mut older = packet[..Ipv6Header::LEN + usize::from(ip.payload_len.get())].to_vec();
    older[7] -= 1;
    older
}

/// What an answer says, once it is known to be a right one: whole, to the sender, and an ICMP error
/// with the packet in it.
fn told(packet: &[u8], answer: &[u8]) -> Told {
    let answer = packets::parse(answer);
    assert_eq!(answer.dst, source(packet), "the sender gets the answer");
    match answer.protocol {
        protocol::TCP => {
            assert_eq!(answer.payload[13] & 0x04, 0x04, "a reset");
            Told::Reset
        }
        protocol::ICMP | protocol::ICMPV6 => {
            let (kind, code) = answer.icmp();
            if is_error(&answer) {
                // A packet in fragments is quoted as it was put together, or as its first fragment.
                let addresses = if answer.dst.is_ipv4() { 12..20 } else { 8..40 };
                let quote = &answer.payload[8..];
                assert_eq!(quote[addresses.clone()], packet[addresses], "the quote");
            }
            Told::Icmp(kind, code)
        }
        _ => panic!("an answer of protocol {}", answer.protocol),
    }
}

fn is_error(answer: &Parsed) -> bool {
    let (kind, _) = answer.icmp();
    match answer.dst {
        IpAddr::V4(_) => matches!(kind, 3 | 11 | 12),
        IpAddr::V6(_) => kind < 128,
    }
}

fn source(packet: &[u8]) -> IpAddr {
    match packet[0] >> 4 {
        4 => <[u8; 4]>::try_from(&packet[12..16])
            .expect("4 bytes")
            .into(),
        _ => <[u8; 16]>::try_from(&packet[8..24])
            .expect("16 bytes")
            .into(),
    }
}
