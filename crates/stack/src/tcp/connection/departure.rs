//! A segment goes out.

use super::segment::Outgoing;
use super::{Connection, Hands};
use crate::tcp::sender::OutSegment;
use crate::wire::seq::Seq;
use crate::wire::tcp::{FLAG_ACK, FLAG_CWR, FLAG_ECE, FLAG_FIN, FLAG_PSH, FLAG_URG};
use crate::wire::tcp_options::{TcpOptions, Timestamps};

impl Connection {
    /// The next segment that may leave now, if any. It counts as sent.
    pub(crate) fn transmit(&mut self, hands: &mut Hands<'_>) -> Option<Outgoing> {
        let outgoing = self.next_segment(hands)?;
        self.tally.segs_out += 1;
        Some(outgoing)
    }

    fn next_segment(&mut self, hands: &mut Hands<'_>) -> Option<Outgoing> {
        let now = hands.now;
        if let Some(reply) = self.reply.take() {
            return Some(reply);
        }
        if self.is_closed() && !self.receiver.ack_is_due() {
            return None;
        }
        self.sender.set_option_bytes(self.option_bytes());
        if !self.is_closed()
            && let Some(segment) = self.sender.poll(now, hands.events)
        {
            return Some(self.with_data(hands, &segment));
        }
        self.receiver
            .ack_is_due()
            .then(|| self.acknowledgement(hands))
    }

    /// What the next segment's options take beside timestamps, which the segment's size allows for:
    /// the blocks of SACK.
    fn option_bytes(&self) -> u16 {
        let sack = self.receiver.sack_blocks();
        if sack.is_empty() {
            return 0;
        }
        let options = TcpOptions {
            timestamps: self.clock.map(|_| Timestamps { value: 0, echo: 0 }),
            ..TcpOptions::default()
        };
        let with_blocks = TcpOptions { sack, ..options };
        u16::try_from(with_blocks.len() - options.len()).unwrap_or(0)
    }

    /// An acknowledgement of all that has come, without data.
    pub(super) fn acknowledgement(&mut self, hands: &mut Hands<'_>) -> Outgoing {
        let seq = self.sender.next();
        self.acknowledging(hands, Outgoing::bare(seq, Seq(0), 0))
    }

    fn with_data(&mut self, hands: &mut Hands<'_>, segment: &OutSegment) -> Outgoing {
        if segment.len > 0 {
            self.receiver.data_sent(hands.now);
        }
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let urgent = self.urgent_from(segment.seq);
        let flags = flag(segment.fin, FLAG_FIN)
            | flag(segment.psh, FLAG_PSH)
            | flag(segment.cwr, FLAG_CWR)
            | flag(urgent.is_some(), FLAG_URG);
        let outgoing = Outgoing {
            len: segment.len,
            mss: segment.mss,
            urgent: urgent.unwrap_or(0),
            // What is sent again is not marked (RFC 3168 section 6.1.5).
            is_ect: self.ecn.is_some() && segment.len > 0 && !segment.is_retransmission,
            ..Outgoing::bare(segment.seq, Seq(0), flags)
        };
        self.acknowledging(hands, outgoing)
    }

    /// The urgent pointer of a segment that begins there (RFC 9293 section 3.8.5): how far it is to
    /// the byte behind the last urgent one, if that is not behind us.
    fn urgent_from(&self, seq: Seq) -> Option<u16> {
        let end = self.urgent_end.filter(|end| end.is_after(seq))?;
        u16::try_from(end - seq).ok()
    }

    /// Adds what every segment says: what has come, what may come, when it is.
    fn acknowledging(&mut self, hands: &mut Hands<'_>, outgoing: Outgoing) -> Outgoing {
        let ack = self.receiver.next();
        let window = self.receiver.window_to_announce(hands.events) >> self.receive_scale;
        let timestamps = self.clock.map(|clock| clock.stamp(hands.now));
        let sack = self.receiver.sack_blocks();
        self.receiver.ack_sent();
        self.last_ack_sent = ack;
        let echoes = self.ecn.is_some_and(|ecn| ecn.echo);
        Outgoing {
            ack,
            flags: outgoing.flags | FLAG_ACK | if echoes { FLAG_ECE } else { 0 },
            window: u16::try_from(window).unwrap_or(u16::MAX),
            options: TcpOptions {
                timestamps,
                sack,
                ..TcpOptions::default()
            },
            ..outgoing
        }
    }
}
