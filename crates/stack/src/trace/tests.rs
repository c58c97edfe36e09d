use core::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::*;
use crate::interface::InterfaceConfig;
use crate::packet::IpVersion;
use crate::stack::StackConfig;
use crate::wire::{Ipv4Header, UdpHeader, ipv4};
use zerocopy::IntoBytes;

const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

struct Rig {
    stack: Stack,
    core: Core,
    ifindex: u32,
}

impl Rig {
    fn new() -> Self {
        let stack = Stack::new(&StackConfig::default());
        let ifindex = stack.add_interface(InterfaceConfig::new("tun0")).unwrap();
        stack.add_address(ifindex, OWN.into(), 24).unwrap();
        let core = stack.core();
        Self {
            stack,
            core,
            ifindex,
        }
    }

    fn story(&mut self, bytes: &[u8]) -> Story {
        let mut packet = self.core.cache().alloc().unwrap();
        packet.put(bytes.len()).unwrap().copy_from_slice(bytes);
        let now = Instant::from_nanos(1);
        self.stack.trace(&mut self.core, now, self.ifindex, packet)
    }

    fn connect(&self) -> SocketId {
        let id = self.stack.udp_open(IpVersion::V4).unwrap();
        let local = SocketAddr::new(OWN.into(), 53);
        self.stack.udp_bind(id, local).unwrap();
        let peer = SocketAddr::new(PEER.into(), 4_000);
        self.stack
            .udp_connect(Instant::from_nanos(1), id, peer)
            .unwrap();
        id
    }
}

fn datagram(dst: Ipv4Addr) -> Vec<u8> {
    let header = Ipv4Header::new(PEER, dst, protocol::UDP, 64, 28);
    let udp = UdpHeader {
        src_port: 4_000.into(),
        dst_port: 53.into(),
        len: 8.into(),
        checksum: 0.into(),
    };
    let mut packet = [header.as_bytes(), udp.as_bytes()].concat();
    ipv4::fill_checksum(&mut packet);
    packet
}

#[test]
fn tells_what_early_demux_did_and_why_not() {
    let mut rig = Rig::new();
    let own = datagram(OWN);
    let mut broken = own.clone();
    broken[10] ^= 1;
    let mut fragment = own.clone();
    fragment[6] = 0x20;
    ipv4::fill_checksum(&mut fragment);
    let not_tried = |why| EarlyDemux::NotTried(why);

    let before = rig.story(&own).early_demux;
    assert_eq!(before, not_tried(NotTried::NoConnectedSocket));
    let id = rig.connect();
    for (packet, expected) in [
        (&broken, not_tried(NotTried::Decided)),
        (&datagram(ELSEWHERE), not_tried(NotTried::NotOwn)),
        (&fragment, not_tried(NotTried::NoPorts)),
        (&own, EarlyDemux::Stale(id)),
        (&own, EarlyDemux::Hit(id)),
    ] {
        assert_eq!(rig.story(packet).early_demux, expected, "{packet:02x?}");
    }
    for name in ["net.ipv4.udp_early_demux", "net.ipv4.ip_early_demux"] {
        rig.stack.set_sysctl(name, "0").unwrap();
        let found = rig.story(&own).early_demux;
        assert_eq!(found, not_tried(NotTried::KnobOff(name)));
        let transit = rig.story(&datagram(ELSEWHERE)).early_demux;
        assert_eq!(transit, not_tried(NotTried::NotOwn));
    }
}

#[test]
fn tells_what_was_parsed_decided_and_counted() {
    let mut rig = Rig::new();
    let story = rig.story(&datagram(OWN));
    let validated = story.validated.unwrap();
    assert_eq!(validated.ports, Some((4_000, 53)));
    assert_eq!(validated.destination, Destination::Own);
    assert_eq!(validated.verdict, Verdict::Undecided);
    let routed = story.routed.unwrap();
    assert_eq!((routed.verdict, routed.has_route), (Verdict::Deliver, true));
    assert_eq!(story.drops, [(DropReason::UdpNoSocket, 1)]);
    assert!(story.counters.contains(&(Counter::UdpNoPorts, 1)));

    rig.stack.set_interface_up(rig.ifindex, false).unwrap();
    let story = rig.story(&datagram(OWN));
    assert_eq!((story.validated, story.routed), (None, None));
    assert_eq!(story.drops, [(DropReason::DevDown, 1)]);
}

#[test]
fn summaries_read_whatever_there_is() {
    let whole = datagram(OWN);
    let summary = Summary::of(&whole).unwrap();
    assert_eq!(summary.src, IpAddr::from(PEER));
    assert_eq!(summary.transport, Transport::Ports(4_000, 53));
    for len in 0..whole.len() {
        let summary = Summary::of(&whole[..len]);
        assert_eq!(summary.is_some(), len >= Ipv4Header::LEN, "{len}");
        assert!(summary.is_none_or(|summary| summary.transport == Transport::Other));
    }
    let v6 = [
        &[0x60, 0, 0, 0, 0, 4, 58, 3][..],
        &[7; 32],
        &[128, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    let summary = Summary::of(&v6).unwrap();
    assert_eq!(
        (summary.ttl, summary.transport),
        (3, Transport::Icmp(128, 0))
    );
    assert_eq!(Summary::of(&[0x50; 60]), None);
}
