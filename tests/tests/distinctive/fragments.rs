//! Fragments: malformed, overlapping, incomplete, and odd but right.

use forebay_stack::wire::tcp::FLAG_SYN;

use super::*;

#[test]
fn a_teardrop_is_never_put_together() {
    // 18 bytes with more to follow, then bytes 48 to 163, then bytes 0 to 303.
    let first = datagram(CLOSED, &[0; 296]);
    meet(&[
        (
            piece4(protocol::UDP, 0, true, &first[..18]),
            "forwarded",
            "dropped FragInvalid",
        ),
        (
            piece4(protocol::UDP, 48, false, &[0x58; 116]),
            "forwarded",
            "held",
        ),
        (
            piece4(protocol::UDP, 0, true, &first),
            "forwarded",
            "dropped FragOverlap x2",
        ),
    ]);
}

#[test]
fn fragments_that_overlap_cost_the_datagram() {
    let whole = segment(SRC4.into(), DST4.into(), 0, &[], &[b'x'; 69]);
    let piece =
        |from: usize, to: usize| piece4(protocol::TCP, from as u16, to < 89, &whole[from..to]);
    meet(&[
        (piece(0, 24), "forwarded", "held"),
        (piece(48, 72), "forwarded", "held"),
        (piece(72, 89), "forwarded", "held"),
        (piece(24, 72), "forwarded", "dropped FragOverlap x4"),
    ]);
    // Without the overlap, the same is a segment.
    meet(&[
        (piece(0, 24), "forwarded", "held"),
        (piece(48, 72), "forwarded", "held"),
        (piece(72, 89), "forwarded", "held"),
        (piece(24, 48), "forwarded", RESET),
    ]);
}

#[test]
fn a_syn_may_come_in_fragments() {
    let options = [
        2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 1, 2, 3, 0, 0, 0, 0, 1, 3, 3, 7,
    ];
    let syn = segment(SRC4.into(), DST4.into(), FLAG_SYN, &options, &[]);
    let piece =
        |from: usize, to: usize| piece4(protocol::TCP, from as u16, to < 40, &syn[from..to]);
    // Some options are in the second fragment.
    meet(&[
        (piece(0, 24), "forwarded", "held"),
        (piece(24, 40), "forwarded", RESET),
    ]);
    // The flags are in the second fragment, the checksum in the third.
    meet(&[
        (piece(0, 8), "forwarded", "held"),
        (piece(8, 16), "forwarded", "held"),
        (piece(16, 24), "forwarded", "held"),
        (piece(24, 32), "forwarded", "held"),
        (piece(32, 40), "forwarded", RESET),
    ]);
}

#[test]
fn what_is_left_of_a_datagram_times_out() {
    let whole = datagram(CLOSED, &[0; 292]);
    for (packet, outcome) in [
        (
            piece4(protocol::UDP, 48, false, &whole[48..]),
            "dropped FragTimeout",
        ),
        (
            piece4(protocol::UDP, 0, true, &whole[..48]),
            "rejected FragTimeout icmp 11/1",
        ),
        (
            piece6(protocol::UDP, 0, true, &datagram6(CLOSED, &[0; 16])),
            "rejected FragTimeout icmp 3/1",
        ),
        (
            piece6(protocol::UDP, 48, false, &[0; 9]),
            "dropped FragTimeout",
        ),
    ] {
        let mut host = Lab::new(Role::Host);
        assert_eq!(host.meet(&packet).to_string(), "held");
        let end = host.time_out(&packet).expect("something happens");
        assert_eq!(end.to_string(), outcome);
        host.close();
    }
}

#[test]
fn a_ping_in_fragments_is_answered_whole() {
    let ping = packets::icmp(SRC4, DST4, 8, 0, 7, &[0xaa; 1_400]);
    meet(&[
        (
            piece4(protocol::ICMP, 0, true, &ping[20..996]),
            "forwarded",
            "held",
        ),
        (
            piece4(protocol::ICMP, 976, false, &ping[996..]),
            "forwarded",
            "answered icmp 0/0",
        ),
    ]);
}

#[test]
fn a_long_ipv6_answer_comes_in_fragments() {
    let whole = datagram6(PORT, &[0x42; 3_230]);
    meet(&[
        (
            piece6(protocol::UDP, 0, true, &whole[..1_432]),
            "forwarded",
            "held",
        ),
        (
            piece6(protocol::UDP, 1_432, true, &whole[1_432..2_864]),
            "forwarded",
            "held",
        ),
        (
            piece6(protocol::UDP, 2_864, false, &whole[2_864..]),
            "forwarded",
            "delivered 3230",
        ),
    ]);
}

#[test]
fn an_atomic_fragment_is_a_whole_packet() {
    let syn = segment(SRC6.into(), DST6.into(), FLAG_SYN, &[], &[]);
    meet(&[
        (piece6(protocol::TCP, 0, false, &syn), "forwarded", RESET),
        // It may announce TCP, and have none.
        (
            piece6(protocol::TCP, 0, false, &[]),
            "forwarded",
            "dropped TcpHdr",
        ),
    ]);
}

#[test]
fn a_fragment_header_behind_the_end_is_none() {
    // Payload length 0: what follows is padding.
    let mut packet = packets::ipv6(SRC6, DST6, 44, &[]);
    packet.extend([
        0x80, 0x57, 0x0f, 0x78, 0xff, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0,
    ]);
    meet(&[(packet, "forwarded", "rejected Ipv6ExtHdr icmp 4/0")]);
}
