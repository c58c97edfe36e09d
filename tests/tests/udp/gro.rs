//! Many datagrams, one read (`UDP_GRO`).

use forebay_stack::counters::Counter;
use forebay_stack::drop::DropReason;
use forebay_stack::filter::Instruction;
use forebay_stack::packet::{Gso, GsoKind, PacketQueue};
use forebay_tests::{Net, everywhere, packets};
use proptest::prelude::*;

use super::*;

const PORT: u16 = 53;
const PEER_PORT: u16 = 1_000;

/// Datagrams of the peer's as hosts send them today: with DF set.
fn from_peer(net: &Net, to: (IpAddr, u16), payload: &[u8]) -> Vec<u8> {
    let packet = packets::udp(net.peer, to.0, PEER_PORT, to.1, payload);
    match net.is_v4() {
        true => packets::with_fragment_field(packet, 0x4000),
        false => packet,
    }
}

/// `count` datagrams of 100 bytes that differ, and a last one of 30.
fn train(net: &Net, to: (IpAddr, u16), count: u8) -> Vec<Vec<u8>> {
    let full = (0..count).map(|nth| from_peer(net, to, &[nth; 100]));
    full.chain([from_peer(net, to, &[0xff; 30])]).collect()
}

fn train_payload(count: u8) -> Vec<u8> {
    let full = (0..count).flat_map(|nth| [nth; 100]);
    full.chain([0xff; 30]).collect()
}

fn asking(rig: &Rig, net: &Net) -> SocketId {
    let id = rig.bind(net.own(PORT));
    rig.stack.udp_set_gro(id, true).expect("open");
    id
}

#[test]
fn what_comes_together_is_read_together() {
    everywhere(|mut rig, net| {
        let id = asking(&rig, &net);
        assert_eq!(rig.stack.udp_gro(id), Ok(true));
        for connected in [false, true, true] {
            if connected {
                rig.connect(id, net.peer(PEER_PORT));
            }
            rig.inject_all("tun0", train(&net, (net.own, PORT), 5));
            let info = rig.stack.udp_info(id).expect("open");
            assert_eq!(info.recv_q, 6 * 2_112, "every buffer is charged");
            let (received, bytes) = recv(&rig, id).expect("a datagram");
            assert_eq!(bytes, train_payload(5));
            assert_eq!(received.segment_size, Some(100));
            assert_eq!(received.from, net.peer(PEER_PORT));
            assert_eq!(received.local, net.own(PORT));
            assert_eq!(recv(&rig, id), None);
        }
        // Those that come one by one stay so.
        for packet in train(&net, (net.own, PORT), 2) {
            rig.inject("tun0", packet);
        }
        let lens: Vec<_> = drain(&rig, id).iter().map(Vec::len).collect();
        assert_eq!(lens, [100, 100, 30]);

        let count = |v4, v6| rig.count(net.pick(v4, v6));
        let came = count(Counter::IpInReceives, Counter::Ip6InReceives);
        let delivered = count(Counter::IpInDelivers, Counter::Ip6InDelivers);
        let joined = rig.count(Counter::ForebayGroJoined);
        assert_eq!((came, joined, delivered), (21, 15, 6));
        let read = count(Counter::UdpInDatagrams, Counter::Udp6InDatagrams);
        assert_eq!(read, 6);
        assert_eq!(rig.drops(), []);
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

#[test]
fn flows_that_mix_are_told_apart() {
    everywhere(|mut rig, net| {
        let (asks, other) = (asking(&rig, &net), rig.bind(net.own(PORT + 1)));
        let one = train(&net, (net.own, PORT), 3);
        let two = train(&net, (net.own, PORT + 1), 3);
        let transit = train(&net, (net.peer1, PORT), 3);
        let mixed = one.iter().zip(&two).zip(&transit);
        let mixed = mixed.flat_map(|((one, two), three)| [one, two, three]);
        rig.inject_all("tun0", mixed);
        assert_eq!(drain(&rig, asks), [train_payload(3)]);
        let lens: Vec<_> = drain(&rig, other).iter().map(Vec::len).collect();
        assert_eq!(lens, [100, 100, 100, 30]);
        // What goes on to others goes on as it came.
        assert_eq!(rig.output("tun1").len(), 4);
        assert_eq!(rig.count(Counter::ForebayGroJoined), 3);
        rig.close(asks);
        rig.close(other);
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn what_the_queue_has_no_room_for_counts_each_datagram_as_dropped() {
    everywhere(|mut rig, net| {
        let id = asking(&rig, &net);
        // Room for six buffers; the first finds the queue empty, whatever it takes.
        rig.stack.udp_set_rcvbuf(id, 3 * 2_112).expect("open");
        for _ in 0..2 {
            rig.inject_all("tun0", train(&net, (net.own, PORT), 5));
        }
        assert_eq!(drain(&rig, id), [train_payload(5)]);
        assert_eq!(rig.stack.udp_info(id).expect("open").drops, 6);
        // As Linux counts them.
        let errors = net.pick(Counter::UdpRcvbufErrors, Counter::Udp6RcvbufErrors);
        assert_eq!(rig.count(errors), 1);
        assert_eq!(rig.dropped(DropReason::SocketRcvbuff), 1);
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

#[test]
fn a_bad_datagram_is_dropped_alone() {
    everywhere(|mut rig, net| {
        let id = asking(&rig, &net);
        // Long enough to be verified no earlier than on reading.
        for bad in 0..4 {
            let mut packets: Vec<_> = (0..4_u8)
                .map(|nth| from_peer(&net, (net.own, PORT), &[nth; 200]))
                .collect();
            *packets[bad].last_mut().expect("a payload") ^= 1;
            rig.inject_all("tun0", packets);
            let read = drain(&rig, id).concat();
            let good = (0..4_u8).filter(|nth| usize::from(*nth) != bad);
            assert_eq!(read, good.flat_map(|nth| [nth; 200]).collect::<Vec<_>>());
        }
        assert_eq!(rig.dropped(DropReason::UdpCsum), 4);
        assert_eq!(rig.stack.udp_info(id).expect("open").drops, 4);
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

#[test]
fn broadcasts_reach_every_socket_one_by_one() {
    both(|mut rig| {
        let net = Net::V4;
        let ids = [
            asking(&rig, &net),
            rig.bind(net.any(PORT)),
            rig.bind(net.any(PORT)),
        ];
        rig.stack.udp_set_gro(ids[1], true).expect("open");
        let to = "10.0.0.255".parse().expect("an address");
        rig.inject_all("tun0", train(&net, (to, PORT), 3));
        assert_eq!(drain(&rig, ids[0]), Vec::<Vec<u8>>::new());
        for id in &ids[1..] {
            let lens: Vec<_> = drain(&rig, *id).iter().map(Vec::len).collect();
            assert_eq!(lens, [100, 100, 100, 30]);
        }
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

#[test]
fn filters_and_group_programs_judge_each_datagram() {
    // Keeps what is longer than 50 bytes, UDP header included.
    let longer = [
        Instruction {
            code: 0x80,
            jt: 0,
            jf: 0,
            k: 0,
        },
        Instruction {
            code: 0x25,
            jt: 0,
            jf: 1,
            k: 50,
        },
        Instruction {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: u32::MAX,
        },
        Instruction {
            code: 0x06,
            jt: 0,
            jf: 0,
            k: 0,
        },
    ];
    // The first byte of the payload.
    let by_byte = [
        Instruction {
            code: 0x30,
            jt: 0,
            jf: 0,
            k: 0,
        },
        Instruction {
            code: 0x16,
            jt: 0,
            jf: 0,
            k: 0,
        },
    ];
    everywhere(|mut rig, net| {
        let id = asking(&rig, &net);
        rig.stack.udp_attach_filter(id, &longer).expect("a program");
        rig.inject_all("tun0", train(&net, (net.own, PORT), 2));
        let lens: Vec<_> = drain(&rig, id).iter().map(Vec::len).collect();
        assert_eq!(lens, [100, 100]);
        rig.close(id);

        let members = [0, 1].map(|_| {
            let id = rig.open(net.own);
            rig.stack.udp_set_reuse_port(id, true).expect("open");
            rig.stack.udp_set_gro(id, true).expect("open");
            rig.stack.udp_bind(id, net.own(PORT)).expect("a group");
            id
        });
        let attached = rig.stack.udp_attach_group_program(members[0], &by_byte);
        attached.expect("a program");
        rig.inject_all("tun0", train(&net, (net.own, PORT), 2));
        assert_eq!(drain(&rig, members[0])[0], [0; 100]);
        assert_eq!(drain(&rig, members[1])[0], [1; 100]);
        for id in members {
            rig.close(id);
        }
        assert_eq!(rig.buffers_in_use(), 0);
    });
}

/// What a device hands in as several goes whole to who asked, whoever joined it.
#[test]
fn a_device_may_have_joined_them_before() {
    everywhere(|mut rig, net| {
        let (asks, other) = (asking(&rig, &net), rig.bind(net.own(PORT + 1)));
        for port in [PORT, PORT + 1] {
            let bytes = from_peer(&net, (net.own, port), &train_payload(5));
            let mut packet = rig.packet(&bytes);
            packet.gso = Some(Gso::new(100.try_into().expect("not 0"), GsoKind::Udp));
            let mut queue = PacketQueue::new();
            queue.push(packet);
            rig.receive("tun0", &mut queue);
        }
        let (received, bytes) = recv(&rig, asks).expect("a datagram");
        assert_eq!(
            (bytes, received.segment_size),
            (train_payload(5), Some(100))
        );
        assert_eq!(drain(&rig, other).len(), 6);
        // Neither counts as joined here.
        assert_eq!(rig.count(Counter::ForebayGroJoined), 0);
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

#[test]
fn what_waits_stays_as_it_is() {
    everywhere(|mut rig, net| {
        let id = asking(&rig, &net);
        rig.inject_all("tun0", train(&net, (net.own, PORT), 2));
        rig.stack.udp_set_gro(id, false).expect("open");
        rig.inject_all("tun0", train(&net, (net.own, PORT), 2));
        let lens: Vec<_> = drain(&rig, id).iter().map(Vec::len).collect();
        assert_eq!(lens, [230, 100, 100, 30]);
        rig.stack.udp_set_gro(id, true).expect("open");
        rig.inject_all("tun0", train(&net, (net.own, PORT), 2));
        rig.close(id);
        assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    });
}

/// What happens to a host with sockets of which some ask.
#[derive(Debug, Clone)]
enum Event {
    /// Datagrams come in together: to which port, of what length, with what TTL, whether damaged.
    Inject(Vec<(u16, usize, u8, bool)>),
    /// A socket asks, or asks no more.
    Ask(usize, bool),
    /// A socket connects to the peer, or is disconnected.
    Connect(usize, bool),
    /// A send of this host's own to a socket of its own.
    Send(u16, usize, u16),
    /// A socket is read.
    Read(usize),
}

const SOCKETS: usize = 3;

fn event() -> impl Strategy<Value = Event> {
    let len = prop_oneof![4 => Just(90_usize), 1 => 0..90_usize, 1 => 90..400_usize];
    let ttl = prop_oneof![9 => Just(64_u8), 1 => Just(63_u8)];
    let port = || PORT..PORT + SOCKETS as u16 + 1;
    let datagram = (port(), len, ttl, prop::bool::weighted(0.05));
    prop_oneof![
        6 => prop::collection::vec(datagram, 1..80).prop_map(Event::Inject),
        2 => (0..SOCKETS, any::<bool>()).prop_map(|(nth, on)| Event::Ask(nth, on)),
        2 => (0..SOCKETS, any::<bool>()).prop_map(|(nth, on)| Event::Connect(nth, on)),
        1 => (port(), 0..5_000_usize, 0..1_400_u16).prop_map(|(to, len, size)| Event::Send(to, len, size)),
        3 => (0..SOCKETS).prop_map(Event::Read),
    ]
}

/// What each socket has read, datagram by datagram, and how many were dropped for which reason.
type Outcome = (Vec<Vec<(SocketAddr, u8, Vec<u8>)>>, Vec<(DropReason, u64)>);

fn outcome(events: &[Event], net: &Net, early_demux: bool, weight: i64) -> Outcome {
    let mut rig = Rig::with_early_demux(early_demux);
    rig.set("net.core.dev_weight", weight);
    rig.set("net.core.rmem_max", 1 << 30);
    let ids: Vec<_> = (PORT..)
        .take(SOCKETS)
        .map(|port| rig.bind(net.own(port)))
        .collect();
    let sender = rig.bind(net.own(9));
    for id in &ids {
        rig.stack.udp_set_rcvbuf(*id, 1 << 28).expect("open");
    }
    let mut read = vec![Vec::new(); SOCKETS];
    for event in events {
        match *event {
            Event::Inject(ref datagrams) => {
                let packets = datagrams.iter().enumerate();
                let packets = packets.map(|(nth, (port, len, ttl, is_bad))| {
                    let packet = from_peer(net, (net.own, *port), &vec![nth as u8; *len]);
                    let mut packet = packets::with_ttl(packet, *ttl);
                    if let (true, Some(last)) = (*is_bad, packet.last_mut()) {
                        *last ^= 1;
                    }
                    packet
                });
                rig.inject_all("tun0", packets);
            }
            Event::Ask(nth, on) => rig.stack.udp_set_gro(ids[nth], on).expect("open"),
            Event::Connect(nth, true) => rig.connect(ids[nth], net.peer(PEER_PORT)),
            Event::Connect(nth, false) => rig.stack.udp_disconnect(ids[nth]).expect("open"),
            Event::Send(port, len, size) => {
                rig.stack.udp_set_segment(sender, size).expect("open");
                // Too many or too long ones are refused everywhere.
                let _ = rig
                    .stack
                    .udp_send(rig.now(), sender, &vec![7; len], Some(net.own(port)));
                rig.poll();
                let _ = rig.stack.udp_take_error(sender);
            }
            Event::Read(nth) => read[nth].extend(read_all(&rig, ids[nth])),
        }
    }
    for (nth, id) in ids.iter().enumerate() {
        read[nth].extend(read_all(&rig, *id));
        rig.close(*id);
    }
    rig.close(sender);
    // Nobody was at some of the ports.
    rig.output("tun0");
    assert_eq!((rig.stack.socket_memory(), rig.buffers_in_use()), (0, 0));
    (read, rig.drops())
}

fn read_all(rig: &Rig, id: SocketId) -> Vec<(SocketAddr, u8, Vec<u8>)> {
    let mut datagrams = Vec::new();
    let mut buf = vec![0; 65_536];
    while let Ok(Some(received)) = rig.stack.udp_recv(id, &mut buf, false) {
        let bytes = &buf[..received.len];
        let about = |part: &[u8]| (received.from, received.ttl, part.to_vec());
        match received.segment_size {
            Some(size) => datagrams.extend(bytes.chunks(size.into()).map(about)),
            None => datagrams.push(about(bytes)),
        }
    }
    datagrams
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Joined or not, it is the same datagrams in the same order.
    #[test]
    fn joining_shows_in_nothing_but_the_number_of_reads(
        events in prop::collection::vec(event(), 1..25),
        is_v6: bool,
    ) {
        let net = if is_v6 { Net::V6 } else { Net::V4 };
        let never: Vec<_> = events
            .iter()
            .filter(|event| !matches!(event, Event::Ask(..)))
            .cloned()
            .collect();
        let expected = outcome(&never, &net, false, 1);
        for (early_demux, weight) in [(true, 64), (false, 64), (true, 3), (true, 1)] {
            let found = outcome(&events, &net, early_demux, weight);
            prop_assert_eq!(&found, &expected, "early demux {}, batches of {}", early_demux, weight);
        }
    }
}
