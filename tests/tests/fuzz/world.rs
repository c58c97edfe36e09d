//! A stack, and what can happen to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use forebay_stack::StackConfig;
use forebay_stack::fib::{
    Address, Fib, Prefix, Route, RouteKind, RouteMatch, Rule, RuleAction, RuleMatch, TableId,
};
use forebay_stack::interface::InterfaceConfig;
use forebay_stack::packet::{ChecksumState, IpVersion, PacketQueue};
use forebay_stack::socket::SocketId;
use forebay_stack::wire::checksum::checksum;
use forebay_stack::wire::{Ipv4Header, Ipv6Header};
use forebay_tests::Rig;
use zerocopy::FromBytes;

use crate::dice::Dice;
use crate::groups;
use crate::programs;
use crate::shapes::{self, Arrival};

const SOCKETS: usize = 12;
const TABLES: [TableId; 3] = [TableId::MAIN, TableId(100), TableId(101)];

pub(crate) struct World {
    rig: Rig,
    sockets: Vec<SocketId>,
    knobs: Vec<String>,
    /// Whether devices tell the truth about their packets.
    truthful: bool,
}

impl World {
    /// A router, or a host to which everything is local.
    pub(crate) fn new(dice: &Dice) -> Self {
        // The smaller pools run out.
        let buffers = dice.pick(&[256, 1_024, 8_192]);
        let rig = Rig::with(&StackConfig {
            buffers,
            reserve: buffers / 4,
            seed: [dice.u64(), dice.u64()],
            ..StackConfig::default()
        });
        let tun1 = rig.ifindex("tun1");
        let kind = dice.pick(&[RouteKind::Unicast, RouteKind::Local]);
        default_route(rig.stack.fib4(), kind, tun1);
        default_route(rig.stack.fib6(), kind, tun1);
        let knobs = rig
            .stack
            .sysctls()
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        Self {
            rig,
            sockets: Vec::new(),
            knobs,
            truthful: !dice.once_in(4),
        }
    }

    pub(crate) fn happen(&mut self, dice: &Dice) {
        match dice.below(40) {
            0..=17 => self.receive(dice),
            18..=29 => self.socket(dice),
            30..=32 => self.pass_time(dice),
            33..=35 => self.turn_knob(dice),
            36 => self.change_links(dice),
            37 => change_routes::<Ipv4Addr>(self.rig.stack.fib4(), dice, false),
            38 => change_routes::<Ipv6Addr>(self.rig.stack.fib6(), dice, true),
            _ => self.change_addresses(dice),
        }
        if dice.once_in(4) {
            self.drain();
        }
    }

    /// Everything is closed, sent and timed out: no buffer may be missing.
    pub(crate) fn end(mut self) {
        for id in self.sockets.drain(..) {
            self.rig.stack.udp_close(id).expect("an open socket");
        }
        self.rig.set("net.ipv4.ipfrag_time", 1);
        self.rig.set("net.ipv6.ip6frag_time", 1);
        // Longer than any time to wait that a knob can have been set to.
        self.rig.advance(Duration::from_secs(1 << 32));
        self.drain();
        assert_eq!(
            self.rig.buffers_in_use(),
            0,
            "buffers that did not come home"
        );
        assert_eq!(
            self.rig.stack.socket_memory(),
            0,
            "bytes charged to no socket"
        );
    }

    fn receive(&mut self, dice: &Dice) {
        let mut queue = PacketQueue::new();
        for _ in 0..=dice.len(80) {
            for arrival in shapes::arrivals(dice, self.truthful) {
                let Arrival {
                    bytes, per_buffer, ..
                } = &arrival;
                // Without a buffer the device loses it.
                if let Some(mut packet) = self.rig.try_packet(bytes, *per_buffer) {
                    arrival.describe(&mut packet);
                    queue.push(packet);
                }
            }
        }
        let interface = dice.pick(&["tun0", "tun0", "tun1"]);
        self.rig.receive(interface, &mut queue);
    }

    fn socket(&mut self, dice: &Dice) {
        if self.sockets.is_empty() || (self.sockets.len() < SOCKETS && dice.once_in(4)) {
            let version = dice.pick(&[IpVersion::V4, IpVersion::V6]);
            let id = self.rig.stack.udp_open(version).expect("a socket");
            self.sockets.push(id);
        }
        let at = dice.below(self.sockets.len());
        let id = self.sockets[at];
        let now = self.rig.now();
        let stack = &self.rig.stack;
        let is_v6 = dice.coin();
        let somebody = SocketAddr::new(shapes::address(dice, is_v6), shapes::port(dice));
        match dice.below(32) {
            27.. => groups::change(stack, id, dice),
            23 => ignore(stack.udp_detach_filter(id)),
            24 => {
                ignore(stack.udp_set_reuse_port(id, true));
                ignore(stack.udp_attach_group_program(id, &programs::program(dice)));
            }
            25..=26 => ignore(stack.udp_attach_filter(id, &programs::program(dice))),
            20..=22 => {
                let [here, there] = shapes::flow(dice);
                ignore(stack.udp_set_reuse_addr(id, true));
                ignore(stack.udp_bind(id, here));
                ignore(stack.udp_connect(now, id, there));
            }
            0..=2 => ignore(stack.udp_bind(id, somebody)),
            3 => ignore(stack.udp_bind_any(id)),
            4..=6 => ignore(stack.udp_connect(now, id, somebody)),
            7 => ignore(stack.udp_disconnect(id)),
            8 => {
                self.sockets.swap_remove(at);
                stack.udp_close(id).expect("an open socket");
            }
            9 => ignore(stack.udp_take_error(id)),
            10 => {
                let on = dice.coin();
                ignore(stack.udp_set_broadcast(id, on));
                ignore(stack.udp_set_reuse_addr(id, dice.coin()));
                ignore(stack.udp_set_transparent(id, dice.coin()));
                ignore(stack.udp_set_v6only(id, dice.once_in(4)));
            }
            11 => {
                ignore(stack.udp_set_rcvbuf(id, dice.pick(&[0, 5_000, 200_000, u32::MAX])));
                ignore(stack.udp_set_ttl(id, dice.pick(&[None, Some(1), Some(64)])));
                ignore(stack.udp_set_tos(id, dice.u8()));
                ignore(stack.udp_set_gro(id, dice.coin()));
                let size = dice.pick(&[0, 0, 1, 500, 1_400, u16::MAX]);
                ignore(stack.udp_set_segment(id, size));
                let device = dice.pick(&[None, None, Some(self.rig.ifindex("tun0"))]);
                ignore(stack.udp_set_device(id, device));
            }
            12..=15 => {
                let len = dice.len(if dice.once_in(10) { 66_000 } else { 4_000 });
                let payload = vec![7; len];
                let to = dice.coin().then_some(somebody);
                let is_v6 = somebody.is_ipv6();
                let from = SocketAddr::new(shapes::address(dice, is_v6), shapes::port(dice));
                let from = dice.once_in(4).then_some(from);
                ignore(stack.udp_send_from(now, id, &payload, to, from));
                self.rig.poll();
            }
            _ => {
                let mut buf = vec![0; dice.len(5_000)];
                for _ in 0..dice.below(20) {
                    ignore(stack.udp_recv(id, &mut buf, dice.once_in(4)));
                }
            }
        }
    }

    fn pass_time(&mut self, dice: &Dice) {
        let millis = dice.pick(&[1, 50, 1_000, 31_000, 61_000]);
        self.rig.advance(Duration::from_millis(millis));
    }

    fn turn_knob(&mut self, dice: &Dice) {
        let name = dice.pick(&self.knobs);
        let value = match dice.below(6) {
            0 => i64::from(dice.u8()),
            1 => dice.pick(&[1_280, 65_536, 300_000, i64::from(i32::MAX), i64::MAX]),
            2 => -1,
            _ => dice.pick(&[0, 1, 1, 2]),
        };
        ignore(self.rig.stack.set_sysctl(&name, &value.to_string()));
    }

    fn change_links(&mut self, dice: &Dice) {
        let stack = &self.rig.stack;
        let ifindex = self.rig.ifindex(dice.pick(&["tun0", "tun1"]));
        match dice.below(6) {
            0 => ignore(stack.set_interface_up(ifindex, dice.once_in(3))),
            1..=2 => ignore(stack.set_interface_up(ifindex, true)),
            3 => ignore(stack.set_mtu(ifindex, dice.pick(&[68, 576, 1_279, 1_280, 9_000, 65_535]))),
            4 => ignore(stack.set_mtu(ifindex, 1_500)),
            _ => match stack.interface_named("tun2") {
                Some(interface) => stack
                    .remove_interface(interface.index)
                    .expect("an interface"),
                None => ignore(stack.add_interface(InterfaceConfig::new("tun2"))),
            },
        }
    }

    fn change_addresses(&mut self, dice: &Dice) {
        let is_v6 = dice.coin();
        let addr = shapes::address(dice, is_v6);
        let ifindex = self.rig.ifindex(dice.pick(&["tun0", "tun1"]));
        let len = dice.pick(&[24, 24, 8, 30, 31, 32, 64, 128, 0]);
        let stack = &self.rig.stack;
        match dice.coin() {
            true => ignore(stack.add_address(ifindex, addr, len)),
            false => ignore(stack.remove_address(ifindex, addr, len)),
        }
    }

    /// Takes what is to be sent, and looks whether it is fit for a wire.
    fn drain(&mut self) {
        for interface in ["tun0", "tun1", "tun2"] {
            if self.rig.stack.interface_named(interface).is_none() {
                continue;
            }
            for (packet, meta) in self.rig.output_with_meta(interface) {
                // A checksum goes where the device said that it belongs.
                if self.truthful {
                    check_output(&packet);
                }
                assert!(
                    meta.gso.is_none(),
                    "a device without segmentation: {meta:?}"
                );
                let is_left_to_device = matches!(meta.checksum, ChecksumState::Partial { .. });
                assert!(!is_left_to_device, "a device without checksums: {meta:?}");
            }
        }
    }
}

/// For what may be refused: no answer is a wrong one.
fn ignore<T>(_: T) {}

fn check_output(packet: &[u8]) {
    let version = packet.first().map(|first| first >> 4);
    let (len, header_sum) = match version {
        Some(4) => {
            let (ip, _) = Ipv4Header::ref_from_prefix(packet).expect("a header");
            let header = packet.get(..ip.header_len()).expect("a whole header");
            (usize::from(ip.total_len.get()), checksum(header))
        }
        Some(6) => {
            let (ip, _) = Ipv6Header::ref_from_prefix(packet).expect("a header");
            (Ipv6Header::LEN + usize::from(ip.payload_len.get()), 0)
        }
        _ => panic!("not a packet: {packet:02x?}"),
    };
    assert_eq!(len, packet.len(), "its length says so: {packet:02x?}");
    assert_eq!(header_sum, 0, "its checksum is right: {packet:02x?}");
}

fn default_route<A: Address>(fib: &Fib<A>, kind: RouteKind, ifindex: u32) {
    let everybody = Prefix::new(A::UNSPECIFIED, 0).expect("a prefix");
    fib.add(TableId::MAIN, Route::new(kind, everybody).dev(ifindex))
        .expect("a new route");
}

fn change_routes<A: Address>(fib: &Fib<A>, dice: &Dice, is_v6: bool) {
    let Some(prefix) = prefix(dice, is_v6) else {
        return;
    };
    let table = dice.pick(&TABLES);
    match dice.below(8) {
        0..=3 => {
            let kind = dice.pick(&[
                RouteKind::Unicast,
                RouteKind::Unicast,
                RouteKind::Local,
                RouteKind::Broadcast,
                RouteKind::Multicast,
                RouteKind::Blackhole,
                RouteKind::Unreachable,
                RouteKind::Prohibit,
            ]);
            let mut route = Route::new(kind, prefix);
            route.metric = dice.pick(&[0, 0, 10, u32::MAX]);
            route.mtu = dice.pick(&[None, None, Some(68), Some(1_280), Some(70_000)]);
            if dice.coin() {
                route = route.dev(dice.pick(&[1, 2, 3, 4]));
            }
            if dice.once_in(3)
                && let Some(gateway) = of_family(shapes::address(dice, is_v6))
            {
                route = route.via(gateway);
                route.onlink = dice.coin();
            }
            if dice.once_in(6) {
                route.pref_src = of_family(shapes::address(dice, is_v6));
            }
            ignore(match dice.coin() {
                true => fib.add(table, route),
                false => fib.replace(table, route),
            });
        }
        4 | 5 => ignore(fib.delete(table, &RouteMatch::prefix(prefix))),
        6 => {
            let action = match dice.below(8) {
                0 => dice.pick(&[
                    RuleAction::Blackhole,
                    RuleAction::Unreachable,
                    RuleAction::Prohibit,
                ]),
                _ => RuleAction::Lookup(dice.pick(&TABLES)),
            };
            let rule = Rule {
                from: dice.once_in(3).then_some(prefix),
                iif: dice.coin().then(|| dice.pick(&[1, 2, 3])),
                ..Rule::all(dice.below(400) as u32, action)
            };
            ignore(fib.add_rule(rule));
        }
        _ => {
            let rules = fib.rules();
            // The three that are there from the start stay, or nothing would be routed any more.
            let own: Vec<u32> = rules
                .iter()
                .map(|rule| rule.priority)
                .filter(|priority| (1..400).contains(priority))
                .collect();
            if !own.is_empty() {
                ignore(fib.delete_rule(&RuleMatch::priority(dice.pick(&own))));
            }
        }
    }
}

fn prefix<A: Address>(dice: &Dice, is_v6: bool) -> Option<Prefix<A>> {
    let addr = of_family::<A>(shapes::address(dice, is_v6))?;
    let len = dice.pick(&[0, 1, 8, 16, 24, 31, 32, 64, 127, 128]);
    Prefix::new(addr, len).ok()
}

fn of_family<A: Address>(addr: IpAddr) -> Option<A> {
    let bits = match addr {
        IpAddr::V4(addr) => u128::from(addr.to_bits()),
        IpAddr::V6(addr) => addr.to_bits(),
    };
    Some(A::from_u128(bits))
}
