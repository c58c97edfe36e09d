//! Two connections face to face, and one against segments made by hand, without packets and sockets.

use super::*;
use crate::tcp::chunks::ChunkStore;
use crate::tcp::connection::segment::Segment;
use crate::tcp::sender::SenderKnobs;
use crate::tcp::{Algorithm, Events};
use crate::wire::tcp::{FLAG_FIN, FLAG_PSH, FLAG_SYN};
use crate::wire::tcp_options::{TcpOptions, Timestamps};

/// Initial numbers that go round soon, or change their sign: ours and the peer's.
const STARTS: [(u32, u32); 5] = [
    (0xffff_fff0, 0x7fff_fff0),
    (0x7fff_fff0, 0xffff_fff0),
    (0, 0),
    (u32::MAX, u32::MAX),
    (5_000, 6_000),
];

const MSS: u16 = 1_000;
const SECOND: Duration = Duration::from_secs(1);

/// A connection with what it needs.
struct End {
    connection: Connection,
    store: ChunkStore,
    chunks: Chunks,
    events: Events,
    now: Instant,
    /// Ours and the peer's initial numbers.
    iss: Seq,
    irs: Seq,
}

impl End {
    fn new((iss, irs): (u32, u32), clock: Option<u32>) -> Self {
        let now = Instant::from_nanos(1_000_000_000);
        let (iss, irs) = (Seq(iss), Seq(irs));
        let agreed = Agreed {
            iss,
            irs,
            mss: MSS,
            window: 60_000,
            own_window: 60_000,
            scales: None,
            sack: true,
            clock: clock.map(|recent| TimestampClock::new(0, recent, now)),
            ecn: false,
            round_trip: Some(Duration::from_millis(10)),
            was_retransmitted: false,
        };
        let sender = SenderConfig {
            first: iss + 1,
            window: agreed.window,
            window_seq: irs,
            mss: MSS,
            buffer: 100_000,
            max_buffer: 100_000,
            sack: true,
            timestamps: clock.is_some(),
            ecn: false,
            algorithm: Algorithm::Reno,
            initial_cwnd: 10,
            handshake_rtt: agreed.round_trip,
            syn_retransmitted: false,
            knobs: SenderKnobs::default(),
        };
        let receiver = ReceiverConfig {
            next: irs + 1,
            window: 60_000,
            window_scale: 0,
            buffer: 100_000,
            max_buffer: 100_000,
            sack: true,
            dsack: true,
            mss: MSS,
            now,
        };
        let manners = Manners {
            keepalive: Keepalive::new(false, 10 * SECOND, SECOND, 2),
            fin_timeout: 60 * SECOND,
            orphan_retries: 8,
            stdurg: false,
            min_mss: 48,
            invalid_ratelimit: Duration::from_millis(500),
        };
        let store = ChunkStore::new([1 << 20; 3]);
        Self {
            connection: Connection::new(&agreed, &sender, &receiver, manners, now),
            chunks: store.chunks(),
            store,
            events: Events::default(),
            now,
            iss,
            irs,
        }
    }

    fn with<R>(&mut self, f: impl FnOnce(&mut Connection, &mut Hands<'_>) -> R) -> R {
        let mut hands = Hands {
            now: self.now,
            chunks: &mut self.chunks,
            events: &mut self.events,
        };
        f(&mut self.connection, &mut hands)
    }

    /// A segment of the peer's so far from its first byte, acknowledging so much of ours.
    fn segment(&self, at: i64, flags: u8, ack: i64, len: u32) -> Segment {
        let from = |start: Seq, offset: i64| Seq(start.0.wrapping_add(1 + offset as u32));
        Segment {
            seq: from(self.irs, at),
            ack: from(self.iss, ack),
            flags,
            window: 60_000,
            urgent: 0,
            options: TcpOptions::default(),
            len,
            segment_size: len,
            is_ce: false,
        }
    }

    fn take(&mut self, segment: &Segment) -> Wake {
        let payload = vec![7; segment.len as usize];
        self.with(|connection, hands| connection.on_segment(hands, segment, &[&payload]))
    }

    fn arrive(&mut self, at: i64, flags: u8, ack: i64, len: u32) -> Wake {
        self.take(&self.segment(at, flags, ack, len))
    }

    fn sent(&mut self) -> Vec<Outgoing> {
        let mut sent = Vec::new();
        while let Some(outgoing) = self.with(Connection::transmit) {
            sent.push(outgoing);
        }
        sent
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        let bufs = [IoSlice::new(bytes)];
        let flags = SendFlags::default();
        let written = self.with(|connection, hands| connection.write(hands, &bufs, flags));
        written.expect("writable").unwrap_or(0)
    }

    fn read(&mut self) -> Result<Option<Vec<u8>>, TcpError> {
        let mut buf = vec![0; 10_000];
        let mut bufs = [IoSliceMut::new(&mut buf)];
        let len = self.with(|connection, hands| connection.read(hands, &mut bufs, false))?;
        Ok(len.map(|len| {
            buf.truncate(len);
            buf
        }))
    }

    fn close(&mut self) {
        self.with(Connection::close);
    }

    fn state(&self) -> State {
        self.connection.state()
    }

    /// It gives back all that it holds.
    fn end(mut self) {
        self.connection.free(&mut self.chunks);
        assert_eq!(self.store.used(), 0);
    }
}

/// Hands over all that has left, in both directions, until nothing leaves.
fn exchange(ends: &mut [End; 2]) {
    for turn in 0.. {
        let [from, to] = ends;
        let (from, to) = if turn % 2 == 0 {
            (from, to)
        } else {
            (to, from)
        };
        let sent = from.sent();
        if sent.is_empty() && turn > 0 {
            return;
        }
        for outgoing in sent {
            let payload: Vec<u8> = match outgoing.len {
                0 => Vec::new(),
                len => from
                    .connection
                    .sender()
                    .slices(outgoing.seq, len)
                    .flatten()
                    .copied()
                    .collect(),
            };
            let segment = Segment {
                seq: outgoing.seq,
                ack: outgoing.ack,
                flags: outgoing.flags,
                window: outgoing.window,
                urgent: outgoing.urgent,
                options: outgoing.options,
                len: outgoing.len,
                segment_size: u32::from(outgoing.mss).min(outgoing.len),
                is_ce: false,
            };
            let _ =
                to.with(|connection, hands| connection.on_segment(hands, &segment, &[&payload]));
        }
    }
}

/// Lets both ends' next deadline come.
fn wait(ends: &mut [End; 2]) {
    let deadlines = ends.iter().filter_map(|end| end.connection.deadline());
    let Some(next) = deadlines.min() else { return };
    for end in ends {
        end.now = end.now.max(next);
        let _ = end.with(Connection::on_deadline);
    }
}

#[test]
fn two_ends_talk_and_part() {
    for (iss, irs) in STARTS {
        for clock in [None, Some(7)] {
            let mut ends = [End::new((iss, irs), clock), End::new((irs, iss), clock)];
            let bytes: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
            let (mut written, mut read) = (0, Vec::new());
            for _ in 0..10_000 {
                written += ends[0].write(&bytes[written..]);
                exchange(&mut ends);
                while let Ok(Some(part)) = ends[1].read() {
                    read.extend(part);
                }
                exchange(&mut ends);
                if read.len() == bytes.len() {
                    break;
                }
                wait(&mut ends);
            }
            assert!(read == bytes, "{} of {}", read.len(), bytes.len());
            exchange(&mut ends);
            ends[0].close();
            exchange(&mut ends);
            assert_eq!(
                ends.each_ref().map(End::state),
                [State::FinWait2, State::CloseWait]
            );
            assert_eq!(ends[1].read(), Ok(Some(Vec::new())));
            ends[1].close();
            exchange(&mut ends);
            assert_eq!(
                ends.each_ref().map(End::state),
                [State::TimeWait, State::Closed]
            );
            ends.into_iter().for_each(End::end);
        }
    }
}

#[test]
fn each_event_leads_from_state_to_state() {
    /// What happens to a connection that has sent and received nothing.
    #[derive(Debug, Clone, Copy)]
    enum Event {
        Close,
        Shutdown,
        /// FIN, and what of ours it acknowledges.
        Fin(i64),
        /// The peer acknowledges our FIN, behind a FIN of its own or not.
        Ack(i64),
        Reset(i64),
        Syn,
    }
    use Event::{Ack, Close, Fin, Reset, Shutdown, Syn};
    let cases: [(&[Event], State); 18] = [
        (&[], State::Established),
        (&[Syn], State::Established),
        (&[Close], State::FinWait1),
        (&[Shutdown], State::FinWait1),
        (&[Close, Ack(0)], State::FinWait2),
        (&[Close, Ack(0), Fin(1)], State::TimeWait),
        (&[Close, Fin(0)], State::Closing),
        (&[Close, Fin(0), Ack(1)], State::TimeWait),
        (&[Close, Fin(1)], State::TimeWait),
        (&[Fin(0)], State::CloseWait),
        (&[Fin(0), Shutdown], State::LastAck),
        (&[Fin(0), Close, Ack(1)], State::Closed),
        (&[Fin(0), Fin(0)], State::CloseWait),
        (&[Reset(0)], State::Closed),
        (&[Close, Reset(0)], State::Closed),
        (&[Fin(0), Reset(1)], State::Closed),
        (&[Fin(0), Reset(0)], State::Closed),
        (&[Close, Fin(0), Reset(5)], State::Closing),
    ];
    for start in STARTS {
        for (events, expected) in cases {
            let mut end = End::new(start, None);
            for event in events {
                match *event {
                    Close => end.close(),
                    Shutdown => end.connection.shutdown_write(),
                    Fin(ack) => drop(end.arrive(0, FLAG_FIN | FLAG_ACK, ack, 0)),
                    Ack(at) => drop(end.arrive(at, FLAG_ACK, 1, 0)),
                    Reset(at) => drop(end.arrive(at, FLAG_RST, 0, 0)),
                    Syn => drop(end.arrive(0, FLAG_SYN, 0, 0)),
                }
                end.sent();
            }
            assert_eq!(end.state(), expected, "{events:?}");
            end.end();
        }
    }
}

/// RFC 5961: stray segments are answered, but not at any rate.
#[test]
fn challenges_are_spaced() {
    for start in STARTS {
        let mut end = End::new(start, None);
        let stray = [
            (5, FLAG_RST, 0, 0),
            (0, FLAG_SYN, 0, 0),
            (-9, FLAG_ACK, 0, 0),
            (0, FLAG_ACK, -9, 3),
        ];
        for (at, flags, ack, len) in stray {
            let _ = end.arrive(at, flags, ack, len);
            let sent = end.sent();
            assert_eq!(sent.len(), 1, "{at} {flags:#x}");
            assert_eq!((sent[0].flags, sent[0].ack), (FLAG_ACK, end.irs + 1));
            for (at, flags, ack, len) in stray {
                let _ = end.arrive(at, flags, ack, len);
                assert!(end.sent().is_empty(), "{at} {flags:#x}");
            }
            end.now += Duration::from_millis(500);
        }
        // Data that is not for now is always answered: it is no answer itself.
        for _ in 0..3 {
            let _ = end.arrive(-9, FLAG_ACK | FLAG_PSH, 0, 5);
            assert_eq!(end.sent().len(), 1);
        }
        end.end();
    }
}

/// RFC 7323 section 5: PAWS, and the acknowledgement that another has overtaken.
#[test]
fn old_timestamps_are_refused() {
    for start in STARTS {
        for recent in [0, 1_000, u32::MAX] {
            let mut end = End::new(start, Some(recent));
            let stamped = |end: &mut End, age: u32, flags, len| {
                let mut segment = end.segment(0, flags, 0, len);
                let value = recent.wrapping_sub(age);
                segment.options.timestamps = Some(Timestamps { value, echo: 0 });
                end.take(&segment)
            };
            let _ = stamped(&mut end, 1, FLAG_ACK | FLAG_PSH, 5);
            assert_eq!(end.read(), Ok(None));
            assert_eq!(end.sent().len(), 1);
            let _ = stamped(&mut end, 1, FLAG_ACK, 0);
            assert!(end.sent().is_empty());
            let _ = stamped(&mut end, 0, FLAG_ACK | FLAG_PSH, 5);
            assert_eq!(end.read(), Ok(Some(vec![7; 5])));
            end.end();
        }
    }
}

#[test]
fn the_application_is_told_when_to_look() {
    let (none, read, both) = (
        Wake::default(),
        Wake {
            read: true,
            write: false,
        },
        Wake::BOTH,
    );
    for start in STARTS {
        for (at, flags, len, expected) in [
            (0, FLAG_ACK, 0, none),
            (0, FLAG_ACK | FLAG_PSH, 5, read),
            (5, FLAG_ACK | FLAG_PSH, 5, none),
            (-5, FLAG_ACK | FLAG_PSH, 5, none),
            (0, FLAG_FIN | FLAG_ACK, 0, both),
            (3, FLAG_FIN | FLAG_ACK, 0, none),
            (0, FLAG_RST, 0, both),
            (1, FLAG_RST, 0, none),
        ] {
            let mut end = End::new(start, None);
            assert_eq!(end.arrive(at, flags, 0, len), expected, "{at} {flags:#x}");
            end.sent();
            end.end();
        }
    }
}

#[test]
fn keepalives_are_sent_until_the_peer_is_given_up() {
    for start in STARTS {
        let mut end = End::new(start, None);
        assert_eq!(end.connection.deadline(), None);
        end.connection.keepalive_mut().is_on = true;
        let begin = end.now;
        for wait in [10, 11] {
            let deadline = end.connection.deadline().expect("a keepalive");
            assert_eq!(deadline, begin + wait * SECOND);
            end.now = deadline;
            assert_eq!(end.with(Connection::on_deadline), Wake::default());
            let probes = end.sent();
            assert_eq!(probes.len(), 1);
            assert_eq!((probes[0].seq, probes[0].flags), (end.iss, FLAG_ACK));
        }
        end.now += SECOND;
        assert_eq!(end.with(Connection::on_deadline), Wake::BOTH);
        let reset = end.sent();
        assert_eq!(reset[0].flags, FLAG_RST | FLAG_ACK);
        assert_eq!(end.read(), Err(TcpError::TimedOut));
        // Told once.
        assert_eq!(end.read(), Ok(Some(Vec::new())));
        end.end();
    }
}

/// RFC 2525 section 2.17: unread bytes, or new ones for who has gone, end in a reset.
#[test]
fn nobody_is_made_believe_that_bytes_were_read() {
    for start in STARTS {
        let mut end = End::new(start, None);
        let _ = end.arrive(0, FLAG_ACK | FLAG_PSH, 0, 5);
        end.sent();
        end.close();
        let sent = end.sent();
        assert_eq!(
            (sent[0].flags, sent[0].seq),
            (FLAG_RST | FLAG_ACK, end.iss + 1)
        );
        assert_eq!(end.state(), State::Closed);
        end.end();

        for both_halves in [true, false] {
            let mut end = End::new(start, None);
            match both_halves {
                true => {
                    end.connection.shutdown_read();
                    end.connection.shutdown_write();
                }
                false => end.close(),
            }
            end.sent();
            let _ = end.arrive(0, FLAG_ACK | FLAG_PSH, 1, 5);
            let sent = end.sent();
            assert_eq!((sent[0].flags, sent[0].seq), (FLAG_RST, end.iss + 2));
            assert_eq!(end.state(), State::Closed);
            end.end();
        }

        // Who only reads no more still acknowledges.
        let mut end = End::new(start, None);
        end.connection.shutdown_read();
        let _ = end.arrive(0, FLAG_ACK | FLAG_PSH, 0, 5);
        assert_eq!(end.sent()[0].ack, end.irs + 6);
        assert_eq!(
            (end.state(), end.read()),
            (State::Established, Ok(Some(Vec::new())))
        );
        end.end();
    }
}
