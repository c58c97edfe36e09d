//! The frames that the kernel is to forward, or one of its sockets to receive, and the program that
//! makes each another one.
//!
//! A destination that is that of the packet before, in the same list, spares the kernel the lookup,
//! and early demux as well: it takes the route of the predecessor for a hint. So the program draws a
//! destination and a source port for each frame. All checksums stay right while it does: what it
//! adds to the sum in one place it takes away in another, by the inverse of the same bits (RFC 1071).

use forebay::bpf::Register::{R0, R1, R2, R3, R6, R7};
use forebay::bpf::{Helper, Instruction, Register, Verdict, Width};

use crate::bench::net::Family;
use crate::bench::packet::{self, Flow, Protocol, ip_header_len};

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

const UDP_HEADER: usize = 8;

/// Behind the start of the transport header: payload, in either protocol.
const BALANCE: usize = 20;

/// A frame, and what of it is written anew for each packet.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    bytes: Vec<u8>,
    /// Where two bytes are written, and which.
    writes: Vec<(usize, Value)>,
}

/// Two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// What they were at first: forwarding changes them, and the kernel uses frames again.
    Restored,
    /// Half of 32 random bits.
    Random(Half),
    /// The same half, inverted.
    Inverse(Half),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Low,
    High,
}

impl Frame {
    /// From a peer's to 65,536 destinations in a prefix that is for benchmarks (RFC 2544, RFC 5180),
    /// by an interface with this hardware address.
    pub(super) fn transit(family: Family, protocol: Protocol, interface: [u8; 6]) -> Self {
        let dst = match family {
            Family::V4 => 0xc612_0000,
            Family::V6 => 0x2001_0002 << 96,
        };
        // What the program draws is zero here, and so is what balances it.
        let flow = Flow {
            src: family.peer(),
            src_port: 0,
            dst,
            dst_port: 53,
        };
        let packet = packet::build(family, protocol, &flow, 0);
        Self {
            bytes: in_ethernet(family, &packet, interface),
            writes: writes(family),
        }
    }

    /// A datagram of a flow that ends at the interface with this hardware address; if `is_drawn`,
    /// each from another port. Nothing that the kernel does on the way to a socket changes it.
    pub(super) fn datagram(
        family: Family,
        flow: &Flow,
        payload: usize,
        is_drawn: bool,
        interface: [u8; 6],
    ) -> Self {
        let transport = ip_header_len(family);
        let mut packet = vec![0; transport + UDP_HEADER + payload];
        packet::write(&mut packet, family, Protocol::Udp, flow, 0);
        let transport = ETHERNET + transport;
        Self {
            bytes: in_ethernet(family, &packet, interface),
            writes: match is_drawn {
                true => vec![
                    (transport, Value::Random(Half::Low)),
                    (transport + BALANCE, Value::Inverse(Half::Low)),
                ],
                false => Vec::new(),
            },
        }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// A program that makes another packet of the frame, and says what becomes of it.
    pub(super) fn program(&self, verdict: Verdict) -> Vec<Instruction> {
        // Helpers leave these two alone.
        const FRAME: Register = R6;
        const END: Register = R7;
        let mut work = draw();
        let write = |&(at, value): &(usize, Value)| self.write(FRAME, at, value);
        work.extend(self.writes.iter().map(write));
        work.extend(leave_with(verdict));

        let mut program = vec![
            // struct xdp_md: where the frame begins, and where it ends.
            Instruction::load(Width::Word, FRAME, R1, 0),
            Instruction::load(Width::Word, END, R1, 4),
            // The verifier wants to see that nothing is written beyond the end.
            Instruction::copy(R2, FRAME),
            Instruction::add(R2, self.bytes.len() as i32),
            Instruction::skip_if_greater(R2, END, work.len() as i16),
        ];
        program.extend(work);
        program.extend(leave_with(Verdict::Aborted));
        program
    }

    fn write(&self, frame: Register, at: usize, value: Value) -> Instruction {
        let offset = at as i16;
        match value {
            Value::Restored => {
                let bytes = [self.bytes[at], self.bytes[at + 1]];
                let value = u16::from_ne_bytes(bytes);
                Instruction::store(Width::Half, frame, offset, value.into())
            }
            value => Instruction::store_from(Width::Half, frame, offset, drawn(value)),
        }
    }
}

fn in_ethernet(family: Family, packet: &[u8], interface: [u8; 6]) -> Vec<u8> {
    let ethertype: u16 = match family {
        Family::V4 => 0x0800,
        Family::V6 => 0x86dd,
    };
    let sender = [2, 0, 0, 0, 0, 0xff];
    let mut frame = [interface, sender].concat();
    frame.extend(ethertype.to_be_bytes());
    frame.extend(packet);
    frame
}

/// Draws the bits, and puts each half of them and its inverse where [`drawn`] says.
fn draw() -> Vec<Instruction> {
    vec![
        Instruction::call(Helper::Random),
        Instruction::copy(R1, R0),
        Instruction::shift_right(R1, 16),
        Instruction::copy(R2, R0),
        Instruction::xor(R2, -1),
        Instruction::copy(R3, R1),
        Instruction::xor(R3, -1),
    ]
}

/// The register whose lower half has it.
fn drawn(value: Value) -> Register {
    match value {
        Value::Random(Half::Low) | Value::Restored => R0,
        Value::Random(Half::High) => R1,
        Value::Inverse(Half::Low) => R2,
        Value::Inverse(Half::High) => R3,
    }
}

fn leave_with(verdict: Verdict) -> [Instruction; 2] {
    [Instruction::set(R0, verdict as i32), Instruction::exit()]
}

/// What is written where, in a frame of this family.
fn writes(family: Family) -> Vec<(usize, Value)> {
    use Half::{High, Low};
    use Value::{Inverse, Random, Restored};
    let ip = ETHERNET;
    let transport = ip + ip_header_len(family);
    // The hardware address that it was sent to is the next router's by now.
    let mut writes = vec![(0, Restored), (2, Restored), (4, Restored)];
    writes.extend(match family {
        Family::V4 => vec![
            // The header's checksum covers the destination, and the identification balances that.
            (ip + 4, Inverse(Low)),
            (ip + 8, Restored),
            (ip + 10, Restored),
            (ip + 18, Random(Low)),
        ],
        Family::V6 => vec![(ip + 6, Restored), (ip + 38, Random(Low))],
    });
    writes.extend([
        (transport, Random(High)),
        (transport + BALANCE, Inverse(Low)),
        (transport + BALANCE + 2, Inverse(High)),
    ]);
    writes
}

#[cfg(test)]
mod tests {
    use forebay::core::wire::checksum::{Checksum, checksum};

    use super::*;

    const INTERFACE: [u8; 6] = [2, 0, 0, 0, 0, 1];

    /// What the program does to a frame if it draws these bits.
    fn run(frame: &Frame, bytes: &mut [u8], random: u32) {
        for &(at, value) in &frame.writes {
            let half = |half| match half {
                Half::Low => random as u16,
                Half::High => (random >> 16) as u16,
            };
            let value = match value {
                Value::Restored => [frame.bytes[at], frame.bytes[at + 1]],
                Value::Random(which) => half(which).to_ne_bytes(),
                Value::Inverse(which) => (!half(which)).to_ne_bytes(),
            };
            bytes[at..at + 2].copy_from_slice(&value);
        }
    }

    fn has_right_checksums(family: Family, protocol: Protocol, ip: &[u8]) -> bool {
        let (header, transport) = ip.split_at(ip_header_len(family));
        let addresses = match family {
            Family::V4 => &header[12..],
            Family::V6 => &header[8..],
        };
        let mut sum = Checksum::new();
        sum.add_bytes(addresses);
        sum.add_u16(match protocol {
            Protocol::Udp => 17,
            Protocol::Tcp => 6,
        });
        sum.add_u16(transport.len() as u16);
        sum.add_bytes(transport);
        sum.is_valid() && (family == Family::V6 || checksum(header) == 0)
    }

    #[test]
    fn every_packet_is_another_and_all_are_right() {
        for family in [Family::V4, Family::V6] {
            for protocol in [Protocol::Udp, Protocol::Tcp] {
                let frame = Frame::transit(family, protocol, INTERFACE);
                let ip = &frame.bytes()[ETHERNET..];
                assert!(has_right_checksums(family, protocol, ip), "{ip:x?}");
                let (mut last, mut bytes) = (frame.bytes.clone(), frame.bytes.clone());
                for random in [0, u32::MAX, 0x1234_5678, 0xffff_0000, 0x0000_ffff, 1 << 15] {
                    // What a router does to it, and the neighbour's hardware address.
                    bytes[..6].fill(9);
                    crate::bench::floor::rewrite(family, &mut bytes[ETHERNET..]);
                    run(&frame, &mut bytes, random);
                    let ip = &bytes[ETHERNET..];
                    assert!(
                        has_right_checksums(family, protocol, ip),
                        "{random:x} {ip:x?}"
                    );
                    assert_eq!(bytes[..ETHERNET], frame.bytes[..ETHERNET]);
                    assert_ne!(bytes, last);
                    last.clone_from(&bytes);
                }
            }
        }
    }

    #[test]
    fn datagrams_of_strangers_differ_by_their_port() {
        for family in [Family::V4, Family::V6] {
            let flow = Flow {
                src: family.peer(),
                src_port: 0,
                dst: family.own(),
                dst_port: 1_024,
            };
            let frame = Frame::datagram(family, &flow, 18, true, INTERFACE);
            let mut bytes = frame.bytes.clone();
            for random in [0, u32::MAX, 0x1234_5678] {
                run(&frame, &mut bytes, random);
                let ip = &bytes[ETHERNET..];
                assert!(
                    has_right_checksums(family, Protocol::Udp, ip),
                    "{random:x} {ip:x?}"
                );
                let port = &ip[ip_header_len(family)..][..2];
                assert_eq!(port, (random as u16).to_ne_bytes());
            }
            let same = Frame::datagram(family, &flow, 18, false, INTERFACE);
            assert_eq!(same.bytes, frame.bytes);
            assert_eq!(same.writes, []);
        }
    }

    #[test]
    fn the_program_leaves_at_its_end_or_behind_its_work() {
        let frame = Frame::transit(Family::V4, Protocol::Udp, INTERFACE);
        let program = frame.program(Verdict::Pass);
        let (before, rest) = program.split_at(5);
        let (work, end) = rest.split_at(rest.len() - 2);
        assert_eq!(end, leave_with(Verdict::Aborted));
        assert_eq!(work[work.len() - 2..], leave_with(Verdict::Pass));
        let skip = Instruction::skip_if_greater(R2, R7, work.len() as i16);
        assert_eq!(before[4], skip);
    }
}
