//! What was sent and not acknowledged, and what is known of each piece (RFC 6675 section 3).
//!
//! A record is what left as one packet, often several segments; it is split where a part of it
//! meets another fate. Records lie in the order of the stream, so one is found by bisection.
//! Neighbours that the peer has (SACK) form a *run*, whose two ends know how many they are, and
//! walks step over a run at once: with a thousand packets waiting behind ten holes, a walk looks at
//! twenty records.
//!
//! What is counted is packets of one segment each, since congestion windows are.

use std::collections::VecDeque;

use super::rate::Snapshot;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};

/// A piece of the stream that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    /// Its sequence numbers; a FIN has one.
    pub(super) range: SeqRange,
    /// Payload bytes of each segment but the last.
    pub(super) mss: u16,
    /// The stream's end is in it.
    pub(super) fin: bool,
    /// The peer has it, and has not acknowledged it yet.
    pub(super) sacked: bool,
    /// It is thought lost; also while its retransmission is under way.
    pub(super) lost: bool,
    /// A retransmission is under way.
    pub(super) retrans: bool,
    /// It was sent more than once, so that nobody knows which one an acknowledgement is for.
    pub(super) ever_retrans: bool,
    /// Of a run's first and last record: how many records the run has.
    run: u32,
    /// Which transmission it was sent with last; they are counted.
    order: u32,
    /// When that was.
    pub(super) sent_at: Instant,
    /// How far delivery was then.
    pub(super) rate: Snapshot,
}

impl Sent {
    /// A piece that leaves now for the first time.
    pub(super) fn new(range: SeqRange, mss: u16, fin: bool, now: Instant, rate: Snapshot) -> Self {
        Self {
            range,
            mss,
            fin,
            sacked: false,
            lost: false,
            retrans: false,
            ever_retrans: false,
            run: 0,
            order: 0,
            sent_at: now,
            rate,
        }
    }

    /// Payload bytes.
    pub(super) fn payload(&self) -> u32 {
        self.range.len() - u32::from(self.fin)
    }

    /// When it was sent last, in the order in which pieces left.
    pub(super) fn turn(&self) -> Turn {
        Turn(self.order, self.range.end)
    }

    /// Segments.
    pub(super) fn packets(&self) -> u32 {
        self.payload().div_ceil(u32::from(self.mss.max(1))).max(1)
    }
}

/// When a piece was sent: with which transmission, and where in it.
///
/// The clock would not do (RFC 8985 section 6.2 has it): it stands still while a batch of
/// acknowledgements is handled, and what is retransmitted then would seem to have left before what
/// lies further on and left in the same batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Turn(u32, Seq);

impl Turn {
    /// Whether it was after `other`.
    pub(super) fn is_after(self, other: Self) -> bool {
        match self.0.wrapping_sub(other.0) as i32 {
            0 => self.1.is_after(other.1),
            ahead => ahead > 0,
        }
    }
}

/// The records, and how many packets are in what state.
#[derive(Debug, Clone)]
pub(super) struct Scoreboard {
    records: VecDeque<Sent>,
    /// Packets sent and not acknowledged.
    packets_out: u32,
    /// Of these, known to have come; without SACK, as many as there were duplicates.
    sacked_out: u32,
    /// Of these, thought lost.
    lost_out: u32,
    /// Retransmissions under way.
    retrans_out: u32,
    /// Nothing before this waits to be retransmitted.
    retransmit_from: Seq,
    /// Behind the last byte that the peer has, acknowledged or not.
    highest_sacked: Seq,
    /// Transmissions so far, modulo 2^32.
    transmissions: u32,
}

impl Scoreboard {
    /// Nothing sent yet; the first byte will be `first`.
    pub(super) fn new(first: Seq) -> Self {
        Self {
            records: VecDeque::new(),
            packets_out: 0,
            sacked_out: 0,
            lost_out: 0,
            retrans_out: 0,
            retransmit_from: first,
            highest_sacked: first,
            transmissions: 0,
        }
    }

    pub(super) fn packets_out(&self) -> u32 {
        self.packets_out
    }

    pub(super) fn sacked_out(&self) -> u32 {
        self.sacked_out
    }

    pub(super) fn lost_out(&self) -> u32 {
        self.lost_out
    }

    pub(super) fn retrans_out(&self) -> u32 {
        self.retrans_out
    }

    /// Packets on their way, as far as one can tell: RFC 6675's *pipe*.
    pub(super) fn in_flight(&self) -> u32 {
        (self.packets_out + self.retrans_out).saturating_sub(self.sacked_out + self.lost_out)
    }

    /// Behind the last byte that the peer has, acknowledged or not.
    pub(super) fn highest_sacked(&self) -> Seq {
        self.highest_sacked
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn get(&self, index: usize) -> Option<&Sent> {
        self.records.get(index)
    }

    pub(super) fn head(&self) -> Option<&Sent> {
        self.records.front()
    }

    pub(super) fn last(&self) -> Option<&Sent> {
        self.records.back()
    }

    /// Adds what was just sent for the first time.
    pub(super) fn push(&mut self, sent: Sent) {
        self.packets_out += sent.packets();
        let order = self.next_order();
        self.records.push_back(Sent { order, ..sent });
    }

    fn next_order(&mut self) -> u32 {
        self.transmissions = self.transmissions.wrapping_add(1);
        self.transmissions
    }

    /// Takes out what is acknowledged, everything before `una`, and shows each piece.
    pub(super) fn acknowledge(&mut self, una: Seq, mut each: impl FnMut(&Sent)) {
        self.retransmit_from = self.retransmit_from.max(una);
        self.highest_sacked = self.highest_sacked.max(una);
        while let Some(&head) = self.records.front() {
            if head.range.end.is_after(una) {
                self.acknowledge_part(una, &mut each);
                break;
            }
            self.records.pop_front();
            self.discount(&head, head.packets());
            each(&head);
        }
        if self.records.is_empty() {
            // Idle connections hold no memory.
            self.records = VecDeque::new();
        } else {
            self.shorten_run();
        }
    }

    /// The head's first part is acknowledged.
    fn acknowledge_part(&mut self, una: Seq, each: &mut impl FnMut(&Sent)) {
        let Some(head) = self.records.front_mut() else {
            return;
        };
        if !una.is_after(head.range.start) {
            return;
        }
        let whole = *head;
        head.range.start = una;
        let packets = whole.packets() - head.packets();
        self.discount(&whole, packets);
        let mut part = whole;
        part.range.end = una;
        part.fin = false;
        each(&part);
    }

    /// What was acknowledged may have ended within a run. Seldom: who has the next bytes
    /// acknowledges them.
    fn shorten_run(&mut self) {
        let len = self.records.iter().take_while(|sent| sent.sacked).count();
        self.set_run(0, len);
    }

    fn discount(&mut self, sent: &Sent, packets: u32) {
        self.packets_out -= packets;
        if sent.sacked {
            self.sacked_out = self.sacked_out.saturating_sub(packets);
        }
        if sent.lost {
            self.lost_out -= packets;
        }
        if sent.retrans {
            self.retrans_out -= packets;
        }
    }

    /// Marks what the peer has: whole packets of `block`, as far as they lie in `look`, and shows
    /// each piece that was not known to have come, as it was before.
    pub(super) fn sack(&mut self, look: SeqRange, block: SeqRange, mut each: impl FnMut(&Sent)) {
        let mut index = self.position(look.start);
        while let Some(&sent) = self.records.get(index) {
            if !sent.range.start.is_before(look.end) {
                break;
            }
            if sent.sacked {
                index = self.behind(index);
                continue;
            }
            let mss = u32::from(sent.mss.max(1));
            if sent.range.start.is_before(block.start) {
                self.split(index, (block.start - sent.range.start).div_ceil(mss));
                index += 1;
                continue;
            }
            if sent.range.end.is_after(block.end) {
                let packets = block.end.since(sent.range.start) / mss;
                if packets == 0 || !self.split(index, packets) {
                    break;
                }
            }
            if let Some(sent) = self.records.get(index) {
                each(sent);
                self.mark_sacked(index);
            }
            index += 1;
        }
    }

    fn mark_sacked(&mut self, index: usize) {
        let Some(sent) = self.records.get_mut(index) else {
            return;
        };
        let packets = sent.packets();
        if core::mem::take(&mut sent.lost) {
            self.lost_out -= packets;
        }
        if core::mem::take(&mut sent.retrans) {
            self.retrans_out -= packets;
        }
        sent.sacked = true;
        self.sacked_out += packets;
        self.highest_sacked = self.highest_sacked.max(sent.range.end);
        let before = index.checked_sub(1).map_or(0, |i| self.run_at(i));
        let len = before + 1 + self.run_at(index + 1);
        self.set_run(index - before, len);
    }

    /// Records of the run of which this is an end; 0 if it is in none.
    fn run_at(&self, index: usize) -> usize {
        let sent = self.records.get(index).filter(|sent| sent.sacked);
        sent.map_or(0, |sent| sent.run as usize)
    }

    fn set_run(&mut self, first: usize, len: usize) {
        if len == 0 {
            return;
        }
        for end in [first, first + len - 1] {
            if let Some(sent) = self.records.get_mut(end) {
                sent.run = u32::try_from(len).unwrap_or(u32::MAX);
            }
        }
    }

    /// The first record that ends behind `seq`.
    pub(super) fn position(&self, seq: Seq) -> usize {
        self.records
            .partition_point(|sent| !sent.range.end.is_after(seq))
    }

    /// Index of the next record, or of the one behind the run if this is a run's first.
    pub(super) fn behind(&self, index: usize) -> usize {
        let is_first = index
            .checked_sub(1)
            .and_then(|i| self.records.get(i))
            .is_none_or(|sent| !sent.sacked);
        match self.run_at(index) {
            run if is_first => index + run.max(1),
            _ => index + 1,
        }
    }

    /// Splits a record behind `packets` of its packets; the second part comes behind the first.
    /// False if that leaves nothing for it.
    pub(super) fn split(&mut self, index: usize, packets: u32) -> bool {
        let Some(sent) = self.records.get_mut(index) else {
            return false;
        };
        if packets == 0 || packets >= sent.packets() {
            return false;
        }
        let mut rest = *sent;
        sent.range.end = sent.range.start + packets * u32::from(sent.mss);
        sent.fin = false;
        rest.range.start = sent.range.end;
        self.records.insert(index + 1, rest);
        true
    }

    /// Thinks a record lost; if it was retransmitted, the retransmission too, and then says true.
    pub(super) fn mark_lost(&mut self, index: usize) -> bool {
        let Some(sent) = self.records.get_mut(index).filter(|sent| !sent.sacked) else {
            return false;
        };
        let packets = sent.packets();
        let again = core::mem::take(&mut sent.retrans);
        if again {
            self.retrans_out -= packets;
        }
        if !core::mem::replace(&mut sent.lost, true) {
            self.lost_out += packets;
        }
        self.retransmit_from = self.retransmit_from.min(sent.range.start);
        again
    }

    /// Nothing is lost after all. Retransmissions under way still are.
    pub(super) fn unmark_lost(&mut self) {
        for sent in &mut self.records {
            sent.lost = false;
        }
        self.lost_out = 0;
    }

    /// The peer has dropped what it had: it all is on its way, or lost, as before.
    pub(super) fn forget_sacks(&mut self) {
        for sent in &mut self.records {
            sent.sacked = false;
        }
        self.sacked_out = 0;
        if let Some(head) = self.records.front() {
            self.highest_sacked = head.range.start;
        }
    }

    /// The first record that is thought lost and whose retransmission is not under way.
    pub(super) fn next_lost(&mut self) -> Option<usize> {
        if self.lost_out == 0 {
            return None;
        }
        let mut index = self.position(self.retransmit_from);
        while let Some(sent) = self.records.get(index) {
            self.retransmit_from = sent.range.start;
            if sent.lost && !sent.retrans {
                return Some(index);
            }
            index = self.behind(index);
        }
        self.retransmit_from = self.records.back()?.range.end;
        None
    }

    /// A record leaves again, now.
    pub(super) fn retransmit(&mut self, index: usize, now: Instant, rate: Snapshot) {
        self.resend(index, now, rate);
        let Some(sent) = self.records.get_mut(index) else {
            return;
        };
        if !sent.retrans {
            self.retrans_out += sent.packets();
        }
        sent.retrans = true;
    }

    /// A record leaves again, now, as a probe: not because it is lost, so it is not counted twice.
    pub(super) fn resend(&mut self, index: usize, now: Instant, rate: Snapshot) {
        let order = self.next_order();
        if let Some(sent) = self.records.get_mut(index) {
            sent.ever_retrans = true;
            sent.order = order;
            sent.sent_at = now;
            sent.rate = rate;
        }
    }

    /// Segments carry no more than `mss` from now on: packets are counted anew.
    pub(super) fn resegment(&mut self, mss: u16) {
        for index in 0..self.records.len() {
            self.recut(index, mss);
        }
    }

    /// The segments of a record carry no more than `mss`.
    pub(super) fn recut(&mut self, index: usize, mss: u16) {
        let Some(sent) = self.records.get_mut(index).filter(|sent| sent.mss > mss) else {
            return;
        };
        let before = sent.packets();
        sent.mss = mss;
        let more = sent.packets() - before;
        self.packets_out += more;
        self.sacked_out += if sent.sacked { more } else { 0 };
        self.lost_out += if sent.lost { more } else { 0 };
        self.retrans_out += if sent.retrans { more } else { 0 };
    }

    /// Without SACK: a duplicate acknowledgement says that some packet has come.
    pub(super) fn count_duplicate(&mut self) {
        self.sacked_out += 1;
        self.limit_duplicates();
    }

    /// At least one packet has not come, or there would be no duplicates.
    pub(super) fn limit_duplicates(&mut self) {
        let holes = self.lost_out.max(1).min(self.packets_out);
        self.sacked_out = self.sacked_out.min(self.packets_out - holes);
    }

    /// Without SACK: `acked` packets are acknowledged, one of them a hole; the others had come.
    pub(super) fn discount_duplicates(&mut self, acked: u32) {
        self.sacked_out = self.sacked_out.saturating_sub(acked.saturating_sub(1));
        self.limit_duplicates();
    }

    /// Without SACK: begins to count anew.
    pub(super) fn forget_duplicates(&mut self) {
        self.sacked_out = 0;
    }
}
