//! A peer that sends whatever there is: nothing panics, nothing goes round in circles, nothing stays.

use std::net::Shutdown;
use std::time::Duration;

use forebay_stack::socket::SocketId;
use forebay_stack::tcp::TcpOption;

use crate::peer::{ACK, FIN, Offer, Peer, RST, SYN, Segment};
use crate::world::{OWN_PORT, PEER_PORT, World, everywhere};

/// A generator of numbers (xorshift), the same in each run.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Near 0 mostly, around the edges of windows often, anywhere now and then.
    fn offset(&mut self) -> u32 {
        let sign = |dice: &mut Self, n: u64| (dice.below(2 * n + 1) as u32).wrapping_sub(n as u32);
        match self.below(8) {
            0..4 => 0,
            4 => sign(self, 3),
            5 => sign(self, 2_000),
            6 => sign(self, 70_000),
            _ => self.next() as u32,
        }
    }

    fn segment(&mut self, peer: &Peer) -> Segment {
        // Most of what ends a connection would end it too soon.
        let flags = match self.below(60) {
            0 => self.next() as u8,
            1..20 => ACK,
            _ => (self.next() as u8 | ACK) & !(RST | SYN | FIN),
        };
        let len = match self.below(4) {
            0 => self.below(1_400),
            1 => self.below(4),
            _ => 0,
        };
        let mut segment = Segment::new(
            peer.seq.wrapping_add(self.offset()),
            peer.ack.wrapping_add(self.offset()),
            flags,
        )
        .with(&vec![7; len as usize])
        .window(self.next() as u16);
        segment.urgent = self.next() as u16;
        for _ in 0..self.below(3) {
            let words: Vec<u8> = (0..8).map(|_| self.next() as u8).collect();
            let start = peer.ack.wrapping_add(self.offset());
            let block = [start, start.wrapping_add(self.offset())];
            segment = match self.below(4) {
                0 => segment.timestamps(self.next() as u32, self.next() as u32),
                1 => segment.option(5, &block.map(u32::to_be_bytes).concat()),
                2 => segment.option(self.next() as u8, &words),
                _ => segment.mss(self.next() as u16),
            };
        }
        if self.one_in(20) && !segment.options.is_empty() {
            let at = self.below(segment.options.len() as u64) as usize;
            segment.options[at] = self.next() as u8;
        }
        segment
    }
}

/// What the application does meanwhile.
fn act(world: &World, dice: &mut Dice, id: SocketId) {
    match dice.below(12) {
        0..4 => drop(world.read(id)),
        4..8 => drop(world.try_write(id, &vec![7; dice.below(20_000) as usize])),
        8 => drop(world.rig.stack.tcp_recv_urgent(world.rig.now(), id, false)),
        9 if dice.one_in(20) => drop(world.shutdown(id, Shutdown::Write)),
        10 if dice.one_in(20) => drop(world.shutdown(id, Shutdown::Read)),
        11 if dice.one_in(30) => drop(world.rig.stack.tcp_close(world.rig.now(), id)),
        _ => world.set(id, TcpOption::NoDelay(dice.one_in(2))),
    }
}

/// What the stack sends, by hand: it parses, and tells the peer where the stack is.
fn listen_to(world: &mut World, peer: &mut Peer, dice: &mut Dice) {
    let answers = world.rig.output("tun0");
    assert!(answers.len() < 200, "{}", answers.len());
    for answer in &answers {
        let (_, to, segment) = Segment::parse(answer);
        if to != peer.addr || segment.flags & RST != 0 {
            continue;
        }
        let end = segment.seq.wrapping_add(segment.payload.len() as u32);
        if dice.one_in(2) {
            peer.ack = end;
        }
        peer.seq = segment.ack;
    }
}

#[test]
fn a_connection_survives_any_peer() {
    let mut seed = 1;
    everywhere(|world| {
        seed += 1;
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let listener = world.listen(8);
        let mut ends = Vec::new();
        for n in 0..20 {
            let offer = Offer {
                window_scale: dice.one_in(2).then(|| dice.below(15) as u8),
                sack: dice.one_in(2),
                timestamps: dice.one_in(2).then(|| dice.next() as u32),
                ..Offer::PLAIN
            };
            let mut peer = world.peer_at(PEER_PORT + n).offering(offer);
            let id = peer.connect(&mut world.rig, listener);
            ends.push((peer, id));
        }
        for (peer, id) in &mut ends {
            for _ in 0..300 {
                let segment = dice.segment(peer);
                peer.send(&mut world.rig, &segment);
                listen_to(world, peer, &mut dice);
                act_if_open(world, &mut dice, *id);
                listen_to(world, peer, &mut dice);
                if dice.one_in(4) {
                    world.pass(Duration::from_millis(dice.below(1_500)));
                    listen_to(world, peer, &mut dice);
                }
            }
        }
    });
}

fn act_if_open(world: &World, dice: &mut Dice, id: SocketId) {
    if world.rig.stack.tcp_readiness(id).is_ok() {
        act(world, dice, id);
    }
}

/// The same of handshakes, from either side.
#[test]
fn handshakes_survive_any_peer() {
    let mut seed = 100;
    everywhere(|world| {
        seed += 1;
        let mut dice = Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        world
            .rig
            .set("net.ipv4.tcp_syncookies", dice.below(3) as i64);
        let listener = world.listen(2);
        for n in 0..200 {
            let mut peer = world.peer_at(PEER_PORT + n % 40);
            if dice.one_in(2) {
                peer.send(&mut world.rig, &peer.syn());
            } else {
                let id = world.open();
                let now = world.rig.now();
                let _ = world.rig.stack.tcp_connect(now, id, peer.addr);
                peer.host = world.rig.stack.tcp_local_addr(id).expect("open");
                if dice.one_in(2) {
                    world.close(id);
                }
            }
            for _ in 0..10 {
                listen_to(world, &mut peer, &mut dice);
                let mut segment = dice.segment(&peer);
                if dice.one_in(4) {
                    segment.flags = SYN | ACK;
                }
                peer.send(&mut world.rig, &segment);
                world.pass(Duration::from_millis(dice.below(300)));
            }
            if dice.one_in(3) {
                let accepted = world.rig.stack.tcp_accept(listener).expect("a listener");
                if let Some(accepted) = accepted {
                    world.close(accepted.id);
                }
            }
            world.rig.output("tun0");
        }
    });
}

/// A connection with itself (RFC 9293 section 3.5: both begin at once, and are one).
#[test]
fn a_socket_may_connect_to_itself() {
    everywhere(|world| {
        let id = world.open();
        let own = world.net.own(OWN_PORT);
        world.rig.stack.tcp_bind(id, own).expect("a free port");
        let now = world.rig.now();
        let begun = world.rig.stack.tcp_connect(now, id, own);
        begun.expect("a way through the loopback");
        world.rig.poll();
        assert_eq!(world.rig.stack.tcp_is_connected(id), Ok(true));
        assert_eq!(world.write(id, b"echo"), 4);
        world.rig.poll();
        assert_eq!(world.read_all(id), b"echo");
        world.close(id);
        world.rig.poll();
        assert!(world.rig.is_silent());
    });
}
