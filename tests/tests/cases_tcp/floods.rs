//! More handshakes than there is room for: cookies, and backlogs that are full.

use std::time::Duration;

use forebay_stack::counters::Counter;
use forebay_stack::tcp::TcpState;

use crate::peer::{ACK, FIN, Offer, PSH, RST, SYN};
use crate::world::{PEER_PORT, everywhere};

/// RFC 4987 section 3.6: nothing is kept, and nothing is refused.
#[test]
fn a_flood_is_answered_with_cookies() {
    for timestamps in [None, Some(5_000)] {
        everywhere(|world| {
            let listener = world.listen(0);
            let offer = Offer {
                mss: 1_400,
                window_scale: Some(7),
                sack: true,
                timestamps,
                ..Offer::PLAIN
            };
            let mut peers: Vec<_> = (0..60)
                .map(|n| world.peer_at(PEER_PORT + n).offering(offer))
                .collect();
            for peer in &mut peers {
                let answer = peer.begin(&mut world.rig);
                assert_eq!(answer.timestamps_option().is_some(), timestamps.is_some());
            }
            assert!(world.rig.count(Counter::TcpExtSyncookiesSent) >= 58);
            assert!(world.states().len() <= 2);
            // One that was answered with a cookie has its connection.
            let mut peer = peers.pop().expect("a peer");
            let last = peer.segment(0, ACK | PSH).with(b"cookie");
            peer.send(&mut world.rig, &last);
            peer.seq = peer.seq.wrapping_add(6);
            assert_eq!(world.rig.count(Counter::TcpExtSyncookiesRecv), 1);
            let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
            let id = accepted.expect("a connection").id;
            assert_eq!(world.read_all(id), b"cookie");
            let info = world.rig.stack.tcp_info(world.rig.now(), id).expect("info");
            // Without timestamps there is no room for what was agreed on.
            assert_eq!(info.window_scale.is_some(), timestamps.is_some());
            assert_eq!(info.sack, timestamps.is_some());
            assert_eq!(info.timestamps, timestamps.is_some());
            // A cookie tells no round trip, and no loss either.
            assert_eq!(info.cwnd, 10);
            peer.answers(&mut world.rig);
            assert_eq!(world.write(id, b"hello"), 5);
            assert_eq!(peer.answer(&mut world.rig).payload, b"hello");
            // One that guesses has none.
            let mut other = peers.pop().expect("a peer");
            other.ack = other.ack.wrapping_add(1_000);
            let guess = other.segment(0, ACK);
            let answer = world.answered(&mut other, &guess);
            assert_eq!(answer.brief(), (other.ack, 0, RST, &b""[..]));
            assert_eq!(world.rig.count(Counter::TcpExtSyncookiesFailed), 1);
        });
    }
}

/// A reset or SYN beside the acknowledgement completes no handshake by cookie.
#[test]
fn a_cookie_is_brought_by_an_acknowledgement_alone() {
    for flags in [RST, RST | ACK, SYN | ACK, FIN, PSH] {
        everywhere(|world| {
            world.rig.set("net.ipv4.tcp_syncookies", 2);
            let listener = world.listen(8);
            let mut peer = world.peer();
            peer.begin(&mut world.rig);
            assert_eq!(world.states(), []);
            let segment = peer.segment(0, flags);
            peer.exchange(&mut world.rig, &segment);
            assert_eq!(world.rig.stack.tcp_accept(listener), Ok(None));
            assert_eq!(world.states(), []);
        });
    }
}

/// A connection that stands is found before any cookie is looked at.
#[test]
fn a_connection_from_a_cookie_is_one_like_others() {
    everywhere(|world| {
        world.rig.set("net.ipv4.tcp_syncookies", 2);
        let listener = world.listen(8);
        let mut peer = world.peer();
        let id = peer.connect(&mut world.rig, listener);
        for _ in 0..3 {
            let again = peer.segment(0, ACK);
            world.unanswered(&mut peer, &again);
        }
        assert_eq!(world.rig.stack.tcp_accept(listener), Ok(None));
        peer.say(&mut world.rig, b"hello");
        assert_eq!(world.read_all(id), b"hello");
        // Switched off in between, a late acknowledgement is nobody's.
        let mut late = world.peer_at(PEER_PORT + 1);
        late.begin(&mut world.rig);
        world.rig.set("net.ipv4.tcp_syncookies", 0);
        let ack = late.segment(0, ACK);
        late.exchange(&mut world.rig, &ack);
    });
}

/// `listen`'s backlog: one more than it says, and then neither SYNs nor handshakes get through.
#[test]
fn a_full_backlog_takes_no_more() {
    for backlog in [0, 1, 3_u16] {
        everywhere(|world| {
            world.rig.set("net.ipv4.tcp_syncookies", 0);
            let listener = world.listen(backlog.into());
            for n in 0..backlog {
                let mut peer = world.peer_at(PEER_PORT + n);
                peer.begin(&mut world.rig);
                let ack = peer.segment(0, ACK);
                world.unanswered(&mut peer, &ack);
            }
            // Half open when the last place is taken: as many as there may be, but two.
            let mut last: Vec<_> = (0..backlog.clamp(1, 2))
                .map(|n| world.peer_at(PEER_PORT + 50 + n))
                .collect();
            for peer in &mut last {
                peer.begin(&mut world.rig);
            }
            for peer in &mut last {
                let ack = peer.segment(0, ACK);
                world.unanswered(peer, &ack);
            }
            let mut late = world.peer_at(PEER_PORT + 100);
            let syn = late.syn();
            world.unanswered(&mut late, &syn);
            // The acknowledgement that came too late is as if it were lost.
            let waiting = usize::from(backlog > 1);
            let states = world.states();
            let half_open = states.iter().filter(|state| **state == TcpState::SynRecv);
            assert_eq!(half_open.count(), waiting);
            let overflows = world.rig.count(Counter::TcpExtListenOverflows);
            assert_eq!(overflows, 1 + waiting as u64);
            for _ in 0..=backlog {
                let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
                assert!(accepted.is_some());
            }
            assert_eq!(world.rig.stack.tcp_accept(listener), Ok(None));
            if let [_, waiting] = &mut last[..] {
                world.pass(Duration::from_secs(1));
                let again = waiting.answer(&mut world.rig);
                assert_eq!(again.flags, SYN | ACK);
                let ack = waiting.segment(0, ACK);
                world.unanswered(waiting, &ack);
                let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
                assert!(accepted.is_some());
            }
        });
    }
}

/// `tcp_abort_on_overflow`: who finds no place is told so.
#[test]
fn a_full_backlog_may_reset() {
    everywhere(|world| {
        world.rig.set("net.ipv4.tcp_abort_on_overflow", 1);
        let _listener = world.listen(2);
        let mut peers: Vec<_> = (0..4).map(|n| world.peer_at(PEER_PORT + n)).collect();
        let (last, first) = peers.split_last_mut().expect("peers");
        for peer in first.iter_mut().take(2) {
            peer.begin(&mut world.rig);
            let ack = peer.segment(0, ACK);
            world.unanswered(peer, &ack);
        }
        first[2].begin(&mut world.rig);
        last.begin(&mut world.rig);
        let ack = first[2].segment(0, ACK);
        world.unanswered(&mut first[2], &ack);
        let ack = last.segment(0, ACK);
        let answer = world.answered(last, &ack);
        assert_eq!(answer.brief(), (last.ack, 0, RST, &b""[..]));
        assert_eq!(world.states(), [TcpState::Established; 3]);
    });
}
