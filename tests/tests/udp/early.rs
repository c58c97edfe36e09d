//! The early look: when it hits, and that nobody can tell.

use forebay_stack::counters::Counter;
use forebay_tests::packets;
use proptest::prelude::*;

use super::*;

fn hits(rig: &Rig) -> (u64, u64) {
    (
        rig.count(Counter::ForebayEarlyDemuxHits),
        rig.count(Counter::ForebayEarlyDemuxStale),
    )
}

#[test]
fn the_first_packet_routes_and_the_next_ones_hit() {
    for (own, peer) in pairs() {
        let mut rig = Rig::new();
        let any = bound(&rig, own, 54);
        datagram(&mut rig, peer, own, (1000, 54), b"unconnected");
        assert_eq!(hits(&rig), (0, 0));
        let id = connected(&rig, own, 53, peer, 1000);
        for _ in 0..3 {
            datagram(&mut rig, peer, own, (1000, 53), b"x");
        }
        assert_eq!(hits(&rig), (2, 1));
        // In one batch, none has been delivered when the others are looked for.
        rig.set("net.ipv4.icmp_ratelimit", 500);
        rig.inject_all("tun0", vec![packets::udp(peer, own, 1000, 53, b"y"); 3]);
        assert_eq!(hits(&rig), (2, 4));
        assert_eq!(drain(&rig, id).len(), 6);
        assert_eq!(drain(&rig, any).len(), 1);
    }
}

/// Sockets and packets over a few addresses and ports, so that they meet.
#[derive(Debug, Clone)]
enum Step {
    Bind(u8, u16),
    Connect(usize, u8, u16),
    Disconnect(usize),
    Device(usize, u8),
    Close(usize),
    Packets(bool, Vec<(u8, u16, u8, u16)>),
    RpFilter(bool),
}

const OWN: [&str; 5] = ["10.0.0.1", "10.1.0.1", "0.0.0.0", "fd00::1", "::"];
const PEERS: [&str; 4] = ["10.0.0.2", "10.1.0.2", "fd00::2", "fd01::2"];
const TARGETS: [&str; 5] = ["10.0.0.1", "10.1.0.1", "10.0.0.255", "fd00::1", "fd01::1"];

fn step() -> impl Strategy<Value = Step> {
    let packet = (0_u8..4, 1_u16..4, 0_u8..5, 1_u16..4);
    prop_oneof![
        2 => (0_u8..5, 1_u16..4).prop_map(|(addr, port)| Step::Bind(addr, port)),
        3 => (0_usize..8, 0_u8..4, 1_u16..4).prop_map(|(socket, addr, port)| Step::Connect(socket, addr, port)),
        1 => (0_usize..8).prop_map(Step::Disconnect),
        1 => (0_usize..8, 0_u8..4).prop_map(|(socket, device)| Step::Device(socket, device)),
        1 => (0_usize..8).prop_map(Step::Close),
        1 => any::<bool>().prop_map(Step::RpFilter),
        6 => (any::<bool>(), prop::collection::vec(packet, 1..6)).prop_map(|(tun1, packets)| Step::Packets(tun1, packets)),
    ]
}

/// Everything that can be seen of a run.
fn run(early_demux: bool, steps: &[Step]) -> impl PartialEq + std::fmt::Debug {
    let mut rig = Rig::with_early_demux(early_demux);
    let mut sockets = Vec::new();
    let mut seen = Vec::new();
    let addr = |list: &[&str], index: u8| -> IpAddr {
        list[usize::from(index)].parse().expect("an address")
    };
    for (number, step) in steps.iter().enumerate() {
        let now = rig.now();
        match step {
            Step::Bind(own, port) => {
                let own = addr(&OWN, *own);
                let id = open(&rig, own);
                rig.stack.udp_set_reuse_addr(id, true).expect("open");
                rig.stack
                    .udp_bind(id, (own, *port).into())
                    .expect("they share");
                sockets.push(id);
            }
            Step::Connect(socket, peer, port) => {
                if let Some(id) = sockets.get(*socket) {
                    let _ = rig
                        .stack
                        .udp_connect(now, *id, (addr(&PEERS, *peer), *port).into());
                }
            }
            Step::Disconnect(socket) => {
                if let Some(id) = sockets.get(*socket) {
                    let _ = rig.stack.udp_disconnect(*id);
                }
            }
            Step::Device(socket, device) => {
                if let Some(id) = sockets.get(*socket) {
                    let device = Some(u32::from(*device)).filter(|device| *device > 1);
                    let _ = rig.stack.udp_set_device(*id, device);
                }
            }
            Step::Close(socket) => {
                if let Some(id) = sockets.get(*socket) {
                    let _ = rig.stack.udp_close(*id);
                }
            }
            Step::RpFilter(on) => rig.set("net.ipv4.conf.all.rp_filter", i64::from(*on)),
            Step::Packets(tun1, packets) => {
                let tagged = (0_u8..).zip(packets);
                let bytes: Vec<_> = tagged
                    .filter(|(_, (peer, _, target, _))| {
                        addr(&PEERS, *peer).is_ipv4() == addr(&TARGETS, *target).is_ipv4()
                    })
                    .map(|(tag, (peer, src_port, target, dst_port))| {
                        let (src, dst) = (addr(&PEERS, *peer), addr(&TARGETS, *target));
                        packets::udp(src, dst, *src_port, *dst_port, &[number as u8, tag])
                    })
                    .collect();
                rig.inject_all(if *tun1 { "tun1" } else { "tun0" }, bytes);
            }
        }
        for id in &sockets {
            let mut buf = [0; 2];
            while let Ok(Some(received)) = rig.stack.udp_recv(*id, &mut buf, false) {
                seen.push((*id, received, buf));
            }
        }
    }
    let output = [rig.output("tun0"), rig.output("tun1")];
    let is_ours = |counter: &Counter| !counter.name().starts_with("Forebay");
    let counters: Vec<_> = rig
        .counters()
        .counters()
        .filter(|(counter, _)| is_ours(counter))
        .collect();
    (seen, output, counters, rig.drops(), rig.buffers_in_use())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn on_and_off_are_the_same(steps in prop::collection::vec(step(), 1..60)) {
        prop_assert_eq!(run(true, &steps), run(false, &steps));
    }
}
