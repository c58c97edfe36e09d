//! Sockets that share a port in a group (`SO_REUSEPORT`).

use forebay_stack::filter::Instruction;
use forebay_stack::filter::code::*;
use forebay_stack::udp::FilterError;
use forebay_tests::{Net, Rig, everywhere, packets};

use super::*;

const PORT: u16 = 53;

fn member(rig: &Rig, net: &Net, addr: IpAddr) -> SocketId {
    let id = open(rig, net.own);
    rig.stack.udp_set_reuse_port(id, true).expect("open");
    rig.stack
        .udp_bind(id, SocketAddr::new(addr, PORT))
        .expect("a place in the group");
    id
}

/// 60 flows, and which member got which.
fn spread(rig: &mut Rig, net: &Net, members: &[SocketId]) -> Vec<Vec<u16>> {
    for port in 2_000..2_060 {
        rig.deliver(net.peer(port), net.own(PORT), &port.to_be_bytes());
    }
    let read = |id: &SocketId| {
        let payloads = rig.drain(*id);
        let ports = payloads
            .iter()
            .map(|port| u16::from_be_bytes([port[0], port[1]]));
        ports.collect()
    };
    members.iter().map(read).collect()
}

/// A connected member has its peer's datagrams and no others.
#[test]
fn flows_are_spread_over_the_members_that_are_not_connected() {
    everywhere(|mut rig, net| {
        for addr in [net.own, net.any] {
            let members: Vec<_> = (0..3).map(|_| member(&rig, &net, addr)).collect();
            let connected = member(&rig, &net, addr);
            rig.connect(connected, net.peer(1_000));
            for _ in 0..10 {
                rig.deliver(net.peer(1_000), net.own(PORT), b"the peer's");
            }
            assert_eq!(rig.drain(connected).len(), 10);
            let got = spread(&mut rig, &net, &members);
            assert_eq!(got.iter().map(Vec::len).sum::<usize>(), 60);
            assert!(got.iter().all(|ports| ports.len() > 5), "{got:?}");
            assert_eq!(
                spread(&mut rig, &net, &members),
                got,
                "a flow stays where it is"
            );
            assert!(!rig.has_received(connected));

            // When it closes, the group has its peer's.
            rig.close(connected);
            rig.deliver(net.peer(1_000), net.own(PORT), b"the group's");
            let taken: usize = members.iter().map(|id| rig.drain(*id).len()).sum();
            assert_eq!(taken, 1);

            rig.close(members[1]);
            let left = [members[0], members[2]];
            let got = spread(&mut rig, &net, &left);
            assert_eq!(got.iter().map(Vec::len).sum::<usize>(), 60);
            assert!(got.iter().all(|ports| ports.len() > 5), "{got:?}");
            left.iter().for_each(|id| rig.close(*id));
        }
        assert!(rig.is_silent());
    });
}

#[test]
fn groups_are_for_those_that_say_so() {
    everywhere(|rig, net| {
        let first = member(&rig, &net, net.own);
        let bind = |reuse_addr, reuse_port| {
            let id = open(&rig, net.own);
            rig.stack.udp_set_reuse_addr(id, reuse_addr).expect("open");
            rig.stack.udp_set_reuse_port(id, reuse_port).expect("open");
            let bound = rig.stack.udp_bind(id, net.own(PORT));
            rig.close(id);
            bound.is_ok()
        };
        assert!(!bind(false, false) && !bind(true, false));
        assert!(bind(false, true) && bind(true, true));
        rig.close(first);
        assert!(bind(false, false));
    });
}

/// A burst of many flows to a group comes out as one by one.
#[test]
fn the_size_of_a_batch_does_not_show_in_a_group() {
    everywhere(|mut rig, net| {
        let members: Vec<_> = (0..4).map(|_| member(&rig, &net, net.any)).collect();
        let one_by_one = spread(&mut rig, &net, &members);
        let burst = (2_000..2_060_u16)
            .map(|port| packets::udp(net.peer, net.own, port, PORT, &port.to_be_bytes()));
        rig.inject_all("tun0", burst);
        for (id, ports) in members.iter().zip(one_by_one) {
            let expected: Vec<_> = ports.iter().map(|port| port.to_be_bytes()).collect();
            assert_eq!(rig.drain(*id), expected);
        }
    });
}

/// A program that returns the first byte of the payload.
const BY_FIRST_BYTE: [Instruction; 2] = [
    Instruction::stmt(LD | B | ABS, 0),
    Instruction::stmt(RET | A, 0),
];

#[test]
fn a_program_picks_the_member() {
    everywhere(|mut rig, net| {
        let alone = open(&rig, net.own);
        let refused = rig.stack.udp_attach_group_program(alone, &BY_FIRST_BYTE);
        assert_eq!(refused, Err(FilterError::NoGroup));
        for addr in [net.own, net.any] {
            let members: Vec<_> = (0..3).map(|_| member(&rig, &net, addr)).collect();
            rig.stack
                .udp_attach_group_program(members[2], &BY_FIRST_BYTE)
                .expect("a program");
            let connected = member(&rig, &net, addr);
            rig.connect(connected, net.peer(1_000));
            for together in [false, true] {
                let datagrams = [0, 2, 1, 1, 0]
                    .map(|byte| packets::udp(net.peer, net.own, 2_000, PORT, &[byte]));
                match together {
                    true => rig.inject_all("tun0", datagrams),
                    false => datagrams.iter().for_each(|one| rig.inject("tun0", one)),
                }
                let got: Vec<_> = members.iter().map(|id| rig.drain(*id).concat()).collect();
                assert_eq!(got, [vec![0, 0], vec![1, 1], vec![2]]);
            }
            // What names no member, and what has no byte: by the flow.
            let before = spread(&mut rig, &net, &members);
            rig.stack
                .udp_detach_group_program(members[2])
                .expect("a program");
            assert_eq!(spread(&mut rig, &net, &members), before);
            let gone = rig.stack.udp_detach_group_program(members[2]);
            assert_eq!(gone, Err(FilterError::NotAttached));
            for id in members.into_iter().chain([connected]) {
                rig.close(id);
            }
        }
    });
}
