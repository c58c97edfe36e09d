//! How large segments are: what the peer asks for, the application, the knobs and the path.

use forebay_stack::tcp::TcpOption;
use forebay_stack::wire::icmp::{v4, v6};
use forebay_tests::packets;

use crate::peer::{ACK, Offer, Peer, SYN, Segment};
use crate::world::{World, everywhere};

/// What the socket sends at once of 10,000 bytes: the sizes of its segments.
fn sizes(world: &mut World, peer: &mut Peer, id: forebay_stack::socket::SocketId) -> Vec<usize> {
    world.set(id, TcpOption::SendBuffer(50_000));
    world.write(id, &[7; 10_000]);
    let sent = peer.answers(&mut world.rig);
    sent.iter().map(|it| it.payload.len()).collect()
}

/// RFC 9293 section 3.7.1; `tcp_min_snd_mss` keeps a peer from having us send crumbs.
#[test]
fn segments_are_as_large_as_the_peer_asks_for() {
    for timestamps in [None, Some(77)] {
        for (asked, v4, v6) in [
            (Some(1_000), 1_000, 1_000),
            (Some(65_535), 1_460, 1_440),
            (Some(500), 500, 500),
            (Some(48), 48, 48),
            (Some(47), 48, 48),
            (Some(1), 48, 48),
            (Some(0), 536, 536),
            (None, 536, 536),
        ] {
            everywhere(|world| {
                let listener = world.listen(8);
                let mut peer = world.peer().offering(Offer {
                    timestamps,
                    ..Offer::PLAIN
                });
                let mut syn = Segment::new(peer.seq, 0, SYN);
                if let Some(mss) = asked {
                    syn = syn.mss(mss);
                }
                if let Some(value) = timestamps {
                    syn = syn.timestamps(value, 0);
                }
                let syn_ack = world.answered(&mut peer, &syn);
                peer.seq = peer.seq.wrapping_add(1);
                peer.ack = syn_ack.seq.wrapping_add(1);
                let ack = peer.segment(0, ACK);
                world.unanswered(&mut peer, &ack);
                let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
                let id = accepted.expect("a connection").id;
                let options = if timestamps.is_some() { 12 } else { 0 };
                let expected = world.net.pick(v4, v6) - options;
                let sizes = sizes(world, &mut peer, id);
                assert!(
                    sizes.iter().take(6).all(|len| *len == expected),
                    "{asked:?}: {sizes:?}"
                );
            });
        }
    }
}

/// `TCP_MAXSEG`: what the application asks for is announced, and bounds what is sent, also when the
/// path turns out to be another.
#[test]
fn the_application_may_ask_for_small_segments() {
    everywhere(|world| {
        let listener = world.listen(8);
        world.set(listener, TcpOption::MaxSegment(500));
        let mut peer = world.peer();
        let syn_ack = peer.begin(&mut world.rig);
        assert_eq!(syn_ack.mss_option(), Some(500));
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
        let id = accepted.expect("a connection").id;
        world.write(id, &[7; 500]);
        let sent = peer.answer(&mut world.rig);
        assert_eq!(sent.payload.len(), 500);
        let (kind, code) = world
            .net
            .pick((v4::DEST_UNREACH, 4), (v6::PACKET_TOO_BIG, 0));
        let quoted = sent.packet(peer.host, peer.addr);
        let (from, to) = (world.net.peer, world.net.own);
        let error = packets::icmp(from, to, kind, code, 1_400, &quoted);
        world.rig.inject("tun0", error);
        peer.answers(&mut world.rig);
        peer.ack = peer.ack.wrapping_add(500);
        let ack = peer.segment(0, ACK);
        world.unanswered(&mut peer, &ack);
        let sizes = sizes(world, &mut peer, id);
        assert!(sizes.iter().all(|len| *len <= 500), "{sizes:?}");
    });
}

/// RFC 7323 section 2: what windows say is shifted, but in SYNs.
#[test]
fn windows_are_shifted_as_agreed() {
    for (shift, window, expected) in [
        (Some(0), 1_500, 1_500),
        (Some(3), 100, 800),
        (Some(14), 1, 16_384),
    ] {
        everywhere(|world| {
            let offer = Offer {
                window_scale: shift,
                window: 10,
                ..Offer::PLAIN
            };
            let mut peer = world.peer().offering(offer);
            let listener = world.listen(8);
            peer.begin(&mut world.rig);
            let ack = peer.segment(0, ACK).window(window);
            world.unanswered(&mut peer, &ack);
            let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
            let id = accepted.expect("a connection").id;
            let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
            assert_eq!(info.snd_wnd, expected);
            // So are ours: what they say is what is taken.
            let answer = peer.say(&mut world.rig, b"x").pop();
            let ours = info.window_scale.expect("both scale").1;
            let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
            if let Some(answer) = answer {
                assert_eq!(u32::from(answer.window) << ours, info.rcv_wnd);
            }
        });
    }
}
