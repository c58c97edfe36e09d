//! Resets (RFC 9293 section 3.10.7.1).

use zerocopy::IntoBytes;

use crate::core::Context;
use crate::counters::Counter;
use crate::family::Family;
use crate::packet::Packet;
use crate::transmit::{self, IpParams};
use crate::wire::tcp::{FLAG_ACK, FLAG_FIN, FLAG_RST, FLAG_SYN};
use crate::wire::{TcpHeader, protocol};

/// The bits of the traffic class that are ECN's: a reset is not ECN-capable (RFC 3168 section 6.1).
const ECN_MASK: u8 = 0x03;

/// Tells the sender of `segment` that there is no connection. A reset is never answered.
pub(super) fn answer_closed_port<F: Family>(
    cx: &mut Context<'_>,
    segment: &Packet,
    header: &TcpHeader,
) {
    let (peer, local) = (F::src(segment), F::dst(segment));
    if header.flags & FLAG_RST != 0 || !F::is_unicast(peer) {
        return;
    }
    let Ok(route) = transmit::route_back::<F>(cx, peer, Some(local), segment.iif) else {
        return;
    };
    let l4_len = segment
        .total_len()
        .saturating_sub(usize::from(segment.l4_offset));
    let mut reset = reset_for(header, l4_len.saturating_sub(header.header_len()));
    let mut sum = F::pseudo_header(local, peer, protocol::TCP, TcpHeader::LEN);
    sum.add_bytes(reset.as_bytes());
    reset.checksum = sum.finish().into();

    let Some(mut packet) = cx.core.alloc() else {
        return;
    };
    let Some(bytes) = packet.put(TcpHeader::LEN) else {
        return cx.core.consume(packet);
    };
    bytes.copy_from_slice(reset.as_bytes());
    let tos = F::traffic_class(segment) & !ECN_MASK;
    let ip = IpParams {
        protocol: protocol::TCP,
        ttl: None,
        tos,
        dont_fragment: true,
    };
    if transmit::send::<F>(cx, packet, &route, &ip).is_ok() {
        cx.core.count(Counter::TcpOutSegs);
        cx.core.count(Counter::TcpOutRsts);
    }
}

/// One that the sender will believe: at the place that its segment acknowledges, or, if it
/// acknowledges nothing, acknowledging the segment.
fn reset_for(segment: &TcpHeader, payload: usize) -> TcpHeader {
    let (src_port, dst_port) = (segment.dst_port.get(), segment.src_port.get());
    if segment.flags & FLAG_ACK != 0 {
        return TcpHeader::new(src_port, dst_port, segment.ack.get(), 0, FLAG_RST);
    }
    let flag = |flag| u32::from(segment.flags & flag != 0);
    // A segment is shorter than 2^16 bytes, or than 2^32 if it stands for many.
    let payload = u32::try_from(payload).unwrap_or(u32::MAX);
    let len = payload
        .wrapping_add(flag(FLAG_SYN))
        .wrapping_add(flag(FLAG_FIN));
    let ack = segment.seq.get().wrapping_add(len);
    TcpHeader::new(src_port, dst_port, 0, ack, FLAG_RST | FLAG_ACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_of_closed_ports() {
        const RST_ACK: u8 = FLAG_RST | FLAG_ACK;
        // (flags, payload, expected flags, distance of the acknowledgement from the sequence)
        let unacknowledged = [
            (FLAG_SYN, 0, 1),
            (FLAG_SYN, 5, 6),
            (FLAG_FIN, 0, 1),
            (FLAG_SYN | FLAG_FIN, 3, 5),
            (0, 0, 0),
            (0, 7, 7),
        ];
        for seq in [0, 1_000, 0x7fff_fffe, u32::MAX - 2, u32::MAX] {
            for (flags, payload, distance) in unacknowledged {
                let reset = reset_for(&TcpHeader::new(40_000, 80, seq, 99, flags), payload);
                let expected = (0, seq.wrapping_add(distance), RST_ACK);
                assert_eq!((reset.seq.get(), reset.ack.get(), reset.flags), expected);
                assert_eq!((reset.src_port.get(), reset.dst_port.get()), (80, 40_000));
            }
            for flags in [FLAG_ACK, FLAG_SYN | FLAG_ACK, FLAG_FIN | FLAG_ACK] {
                let reset = reset_for(&TcpHeader::new(40_000, 80, 5, seq, flags), 9);
                assert_eq!(
                    (reset.seq.get(), reset.ack.get(), reset.flags),
                    (seq, 0, FLAG_RST)
                );
            }
        }
    }
}
