//! What has come out of order (SACK, RFC 2018), and what has come twice (D-SACK, RFC 2883).

use super::Sender;
use super::ack::{Ack, News};
use crate::counters::Counter;
use crate::tcp::events::Events;
use crate::time::Instant;
use crate::wire::seq::{Seq, SeqRange};
use crate::wire::tcp_options::SackBlocks;

impl Sender {
    /// Takes in what has come out of order, and what has come twice.
    pub(super) fn take_sacks(
        &mut self,
        now: Instant,
        ack: &Ack,
        news: &mut News,
        events: &mut Events,
    ) {
        let mut blocks = ack.sack.iter();
        let mut ahead = ack.sack.iter();
        if let (Some(block), second) = (ahead.next(), ahead.next())
            && is_dsack(block, second, ack.ack)
        {
            self.take_dsack(block, news, events);
            blocks.next();
        }
        let highest = self.scoreboard.highest_sacked();
        let high_seq = self.recovery.high_seq;
        let min_rtt = self.min_rtt.get();
        let kept = self.recovery.known_sacks.take();
        let known = kept.as_deref().copied().unwrap_or_default();
        let mut fresh = SackBlocks::new();
        let next = self.next;
        let una = self.una;
        for block in blocks {
            let is_sane = block.start.is_before(block.end)
                && !block.end.is_after(next)
                && block.end.is_after(una);
            if !is_sane {
                // An acknowledgement that was overtaken tells of what is acknowledged since.
                if ack.ack == una || block.end.is_after(una) {
                    events.count(Counter::TcpExtTCPSACKDiscard);
                }
                continue;
            }
            fresh.push(block);
            let rack = &mut self.rack;
            let scoreboard = &mut self.scoreboard;
            for_each_unknown(block, &known, |look| {
                scoreboard.sack(look, block, |sent| {
                    news.sacked += sent.packets();
                    news.delivery.add(sent);
                    rack.advance(now, sent, min_rtt);
                    if !sent.ever_retrans {
                        news.first_sacked = Some(match news.first_sacked {
                            Some(first) => first.min(sent.sent_at),
                            None => sent.sent_at,
                        });
                        news.original_came |= !sent.range.end.is_after(high_seq);
                        if sent.range.start.is_before(highest) {
                            let start = sent.range.start;
                            let earliest = news.overtaken.map_or(start, |seq| seq.min(start));
                            news.overtaken = Some(earliest);
                        }
                    }
                });
            });
        }
        if !fresh.is_empty() {
            let mut kept = kept.unwrap_or_default();
            *kept = fresh;
            self.recovery.known_sacks = Some(kept);
        }
    }

    /// The peer got something twice (RFC 2883): a retransmission that was not needed, if it was one.
    fn take_dsack(&mut self, block: SeqRange, news: &mut News, events: &mut Events) {
        let is_acked = !block.end.is_after(self.una);
        events.count(match is_acked {
            true => Counter::TcpExtTCPDSACKRecv,
            false => Counter::TcpExtTCPDSACKOfoRecv,
        });
        // Who claims to have got more than was sent twice, or what was never sent, is not believed:
        // the network has doubled it, or somebody plays tricks.
        let is_sane = block.start.is_before(block.end)
            && !block.end.is_after(self.next)
            && block.len() <= self.max_window.max(u32::from(self.mss));
        let packets = block.len().div_ceil(u32::from(self.mss)).max(1);
        self.recovery.came_twice = self.recovery.came_twice.saturating_add(packets);
        if !is_sane || self.recovery.came_twice > self.totals.retrans {
            events.count(Counter::TcpExtTCPDSACKIgnoredDubious);
            return;
        }
        events.add(Counter::TcpExtTCPDSACKRecvSegs, u64::from(packets));
        news.dsack = true;
        if !self.rack.is_probe(block) {
            self.rack.note_dsack(self.una, self.next);
        }
        let Some(marker) = self.recovery.undo_marker else {
            events.count(match is_acked {
                true => Counter::TcpExtTCPDSACKIgnoredOld,
                false => Counter::TcpExtTCPDSACKIgnoredNoUndo,
            });
            return;
        };
        let was_sent_twice = is_acked || {
            let index = self.scoreboard.position(block.start);
            self.scoreboard
                .get(index)
                .is_some_and(|sent| sent.ever_retrans)
        };
        if was_sent_twice && block.end.is_after(marker) && self.recovery.undo_retrans > 0 {
            let left = self.recovery.undo_retrans - i32::try_from(packets).unwrap_or(i32::MAX);
            self.recovery.undo_retrans = left.max(0);
        }
    }

    /// What overtook whom tells how far the path reorders: who is overtaken is not lost yet.
    pub(super) fn note_overtaken(&mut self, late: Seq, counter: Counter, events: &mut Events) {
        let distance = self.scoreboard.highest_sacked().since(late);
        if distance == 0 {
            return;
        }
        self.rack.reordering_seen = true;
        events.count(counter);
        let packets = distance.div_ceil(u32::from(self.mss));
        if packets > u32::from(self.recovery.reordering) {
            let most = u32::from(self.knobs.max_reordering);
            self.recovery.reordering = u16::try_from(packets.min(most)).unwrap_or(u16::MAX);
        }
    }
}

/// Whether the first block tells of bytes that came twice: they are acknowledged, or lie in the
/// second (RFC 2883 section 4).
fn is_dsack(first: SeqRange, second: Option<SeqRange>, ack: Seq) -> bool {
    first.start.is_before(ack)
        || second.is_some_and(|second| {
            !first.start.is_before(second.start) && !first.end.is_after(second.end)
        })
}

/// Shows the parts of a block that none of the known ones covers.
fn for_each_unknown(block: SeqRange, known: &SackBlocks, mut each: impl FnMut(SeqRange)) {
    let mut from = block.start;
    while from.is_before(block.end) {
        let covering = known.iter().find(|known| known.contains(from));
        if let Some(known) = covering {
            from = known.end;
            continue;
        }
        let to = known
            .iter()
            .map(|known| known.start)
            .filter(|start| start.is_after(from))
            .fold(block.end, Seq::min);
        each(SeqRange {
            start: from,
            end: to,
        });
        from = to;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u32, to: u32) -> SeqRange {
        SeqRange {
            start: Seq(u32::MAX - 9) + from,
            end: Seq(u32::MAX - 9) + to,
        }
    }

    #[test]
    fn only_what_is_new_of_a_block_is_looked_at() {
        type Pieces = [(u32, u32)];
        let table: &[(&Pieces, &Pieces)] = &[
            (&[], &[(10, 40)]),
            (&[(10, 40)], &[]),
            (&[(0, 50)], &[]),
            (&[(10, 30)], &[(30, 40)]),
            (&[(20, 40)], &[(10, 20)]),
            (&[(30, 35), (15, 20)], &[(10, 15), (20, 30), (35, 40)]),
            (&[(0, 5), (50, 60)], &[(10, 40)]),
        ];
        for (known, unknown) in table {
            let mut blocks = SackBlocks::new();
            for &(from, to) in *known {
                blocks.push(range(from, to));
            }
            let mut seen = Vec::new();
            for_each_unknown(range(10, 40), &blocks, |piece| seen.push(piece));
            let expected: Vec<_> = unknown.iter().map(|&(a, b)| range(a, b)).collect();
            assert_eq!(seen, expected, "{known:?}");
        }
    }

    #[test]
    fn duplicates_are_told_by_the_first_block() {
        let ack = range(20, 20).start;
        let table = [
            (range(10, 20), None, true),
            (range(15, 25), None, true),
            (range(20, 30), None, false),
            (range(30, 40), Some(range(30, 60)), true),
            (range(50, 60), Some(range(30, 60)), true),
            (range(50, 61), Some(range(30, 60)), false),
            (range(30, 40), Some(range(50, 60)), false),
        ];
        for (first, second, expected) in table {
            assert_eq!(
                is_dsack(first, second, ack),
                expected,
                "{first:?} {second:?}"
            );
        }
    }
}
