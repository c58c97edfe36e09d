//! Which connection a segment is for: a lookup by both ends, without a lock.
//!
//! The table holds a word for each connection: the number of its socket's slot, or, if a bit says so,
//! that of what is left of it in time-wait. A connection that ends leaves its place to its
//! time-wait in one step. The words by which packets are compared lie apart from the sockets,
//! one cache line each, so that who looks touches nobody's lock.
//!
//! Whoever is in the table under a flow has it alone: that two sockets want the same one shows when
//! they enter. A hit may be of a socket that is just leaving, or is about to connect elsewhere: so
//! whoever has locked the socket asks whether the flow is its own, and looks again if not.

pub(crate) mod slots;
mod time_waits;

use core::num::NonZeroU32;
use core::time::Duration;

use forebay_sync::prefetch::prefetch_read;
use forebay_sync::segments::Segments;
use forebay_sync::static_key::StaticKey;

use self::time_waits::TimeWaits;
use super::time_wait::{Inheritance, Outcome, Rules, Seen, TimeWait, Verdict};
use crate::demux::established::{Established, Line};
use crate::demux::flow::{Flow, KeySet};
use crate::family::Family;
use crate::packet::Packet;
use crate::siphash::Key;
use crate::socket::SocketId;
use crate::time::Instant;

/// Connections and what is left of ended ones, by flow.
pub(crate) struct Connections {
    key: Key,
    table: Established,
    /// By number of the socket's slot.
    keys: Segments<KeySet>,
    time_waits: TimeWaits,
    /// On while there is a connection.
    early_key: StaticKey,
    /// On while a connection is bound to an interface.
    device_key: StaticKey,
}

/// There is a connection between the same ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InUse;

/// Whose a segment is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    Socket(SocketId),
    TimeWait(TimeWaitRef),
}

/// Something that was left of a connection. By the time that somebody asks, it may be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeWaitRef(u32);

/// A connection's socket, and the keys that packets are compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Hit<'a> {
    pub(crate) id: SocketId,
    pub(crate) keys: &'a KeySet,
}

/// A time-wait whose flow is used again, and what the new connection has to heed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Freed {
    pub(crate) inheritance: Inheritance,
    pub(crate) entry: TimeWait,
}

/// What a time-wait has to say, and how it was when it said so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Judged {
    pub(crate) outcome: Outcome,
    pub(crate) entry: TimeWait,
}

impl Connections {
    pub(crate) fn new(key: Key) -> Self {
        Self {
            key,
            table: Established::new(),
            keys: Segments::new(),
            time_waits: TimeWaits::new(),
            early_key: StaticKey::new(),
            device_key: StaticKey::new(),
        }
    }

    /// On while there is a connection: then it is worth while to look for one.
    pub(crate) fn early_key(&self) -> &StaticKey {
        &self.early_key
    }

    /// What all functions here that take one mean by a hash.
    #[inline]
    pub(crate) fn hash(&self, flow: &Flow) -> u64 {
        flow.hash(self.key)
    }

    /// How many connections are in time-wait.
    #[cfg(test)]
    pub(crate) fn time_waits(&self) -> usize {
        self.time_waits.len()
    }
}

/// Looking segments up. To be called under a guard.
impl Connections {
    /// Whose a segment of the flow is, if it came in by `iif`.
    pub(crate) fn lookup(&self, flow: &Flow, iif: u32) -> Option<Found> {
        // One that is bound to the interface goes before one that is not.
        let mut second = None;
        let first = self.table.find(self.hash(flow), |word| {
            let (found, device) = match Word::unpack(word) {
                Word::Socket(slot) => {
                    let hit = self.hit(slot, |keys| keys.is(flow, iif))?;
                    (Found::Socket(hit.id), hit.keys.device())
                }
                Word::TimeWait(number) => {
                    let device = self.time_waits.get(number, flow)?.entry()?.device;
                    let takes = device == 0 || device == iif;
                    takes.then_some((Found::TimeWait(TimeWaitRef(number)), device))?
                }
            };
            if device != 0 {
                return Some(found);
            }
            second = Some(found);
            None
        });
        first.or(second)
    }

    /// How many buckets there are, for [`prefetch`](Self::prefetch).
    #[inline]
    pub(crate) fn buckets(&self) -> u32 {
        self.table.buckets()
    }

    /// The line that [`candidate`](Self::candidate) looks at while there are so many `buckets`; it
    /// is fetched.
    #[inline]
    pub(crate) fn prefetch(&self, hash: u64, buckets: u32) -> Option<&Line> {
        self.table.prefetch(hash, buckets)
    }

    /// The slot that [`find`](Self::find) will ask about last, if one look at the line tells. The keys
    /// that it will compare are fetched.
    #[inline]
    pub(crate) fn candidate(&self, line: &Line, hash: u64) -> Option<u32> {
        let (word, is_last) = line.candidate(hash)?;
        let Word::Socket(slot) = Word::unpack(word) else {
            return None;
        };
        prefetch_read(self.keys.get(slot)?);
        is_last.then_some(slot)
    }

    /// The [candidate](Self::candidate), if it is the packet's, and no other can go before it.
    #[inline]
    pub(crate) fn check_candidate<F: Family>(&self, slot: u32, packet: &Packet) -> Option<Hit<'_>> {
        if self.device_key.is_enabled() {
            return None;
        }
        self.hit(slot, |keys| keys.is_of_packet::<F>(packet))
    }

    /// The connection that a segment of the flow is for. What is in time-wait is passed over.
    #[inline]
    pub(crate) fn find(&self, flow: &Flow, hash: u64, iif: u32) -> Option<Hit<'_>> {
        // One that is bound to the interface goes before one that is not.
        let mut second = None;
        let first = self.table.find(hash, |word| {
            let Word::Socket(slot) = Word::unpack(word) else {
                return None;
            };
            let hit = self.hit(slot, |keys| keys.is(flow, iif))?;
            if hit.keys.device() != 0 {
                return Some(hit);
            }
            second = Some(hit);
            None
        });
        first.or(second)
    }

    /// The keys of a socket, by which its input route is remembered.
    pub(crate) fn keys(&self, id: SocketId) -> Option<&KeySet> {
        self.keys.get(id.slot)
    }

    #[inline]
    fn hit(&self, slot: u32, is_right: impl FnOnce(&KeySet) -> bool) -> Option<Hit<'_>> {
        let keys = self.keys.get(slot)?;
        if !is_right(keys) {
            return None;
        }
        let generation = NonZeroU32::new(keys.connected())?;
        let id = SocketId { slot, generation };
        Some(Hit { id, keys })
    }
}

/// Entering and leaving. The socket's lock is held, and no other of its calls is under way.
impl Connections {
    /// Enters a socket under a flow; `device` is the interface that it is bound to, or 0.
    ///
    /// # Errors
    ///
    /// If another is there, or has been a moment ago.
    pub(crate) fn insert(&self, flow: &Flow, device: u32, id: SocketId) -> Result<(), InUse> {
        self.enter(flow, device, id, |_| None).map(|_| ())
    }

    /// The same for a socket that connects. A flow in time-wait may be used again if `may_reuse`
    /// allows it (`tcp_tw_reuse`); what the new connection has to heed is returned.
    ///
    /// # Errors
    ///
    /// If another is there, or has been a moment ago.
    pub(crate) fn insert_reusing(
        &self,
        flow: &Flow,
        device: u32,
        id: SocketId,
        now: Instant,
        may_reuse: bool,
    ) -> Result<Option<Freed>, InUse> {
        self.enter(flow, device, id, |entry| {
            let inheritance = entry.inherit(now).filter(|_| may_reuse)?;
            let entry = *entry;
            Some(Freed { inheritance, entry })
        })
    }

    fn enter(
        &self,
        flow: &Flow,
        device: u32,
        id: SocketId,
        inherit: impl Fn(&TimeWait) -> Option<Freed>,
    ) -> Result<Option<Freed>, InUse> {
        self.keys.grow_to(id.slot + 1, KeySet::default);
        let keys = self.keys.get(id.slot).ok_or(InUse)?;
        keys.write(flow, device);
        keys.set_connected(id.generation.get());
        let hash = self.hash(flow);
        let mut inherited = None;
        let taken = self.table.insert_unless(
            hash,
            Word::Socket(id.slot).pack(),
            |word| self.hash_of(word),
            |word| match Word::unpack(word) {
                Word::Socket(slot) => self.hit(slot, |keys| keys.is(flow, device)).map(|_| ()),
                Word::TimeWait(number) => {
                    let mut found = self.time_waits.get(number, flow)?;
                    let entry = *found.entry()?;
                    let is_apart = entry.device != 0 && entry.device != device;
                    if is_apart {
                        return None;
                    }
                    let inheritance = inherit(&entry);
                    if inheritance.is_some() && inherited.is_none() {
                        // It has ended in this moment, while nobody else can enter under the flow.
                        found.end();
                        inherited = Some((number, inheritance));
                        return None;
                    }
                    Some(())
                }
            },
        );
        let mut inheritance = None;
        if let Some((number, heeds)) = inherited {
            self.forget(hash, number);
            inheritance = heeds;
        }
        if taken.is_some() {
            keys.set_connected(0);
            return Err(InUse);
        }
        self.early_key.inc();
        if device != 0 {
            self.device_key.inc();
        }
        Ok(inheritance)
    }

    /// Takes a socket out. False if it is not in.
    pub(crate) fn remove(&self, id: SocketId) -> bool {
        let Some(keys) = self.keys_inside(id) else {
            return false;
        };
        let word = Word::Socket(id.slot).pack();
        let hash = self.hash(&keys.flow());
        self.table.remove(hash, word, |word| self.hash_of(word));
        self.left(keys);
        true
    }

    /// Puts what is left of a connection in its socket's place, until then. Where there are `max`
    /// already, or the socket is not in, false: then nothing has changed.
    pub(crate) fn to_time_wait(
        &self,
        id: SocketId,
        entry: &TimeWait,
        until: Instant,
        max: usize,
    ) -> bool {
        let Some(keys) = self.keys_inside(id) else {
            return false;
        };
        let flow = keys.flow();
        let hash = self.hash(&flow);
        let Some(number) = self.time_waits.add(&flow, hash, entry, max) else {
            return false;
        };
        let (word, with) = (Word::Socket(id.slot), Word::TimeWait(number));
        self.table.replace(hash, word.pack(), with.pack());
        self.time_waits.start(number, &flow, until);
        self.left(keys);
        true
    }

    /// The keys of a socket that is in the table.
    fn keys_inside(&self, id: SocketId) -> Option<&KeySet> {
        let keys = self.keys.get(id.slot)?;
        (keys.connected() == id.generation.get()).then_some(keys)
    }

    fn left(&self, keys: &KeySet) {
        keys.set_connected(0);
        self.early_key.dec();
        if keys.device() != 0 {
            self.device_key.dec();
        }
    }

    fn hash_of(&self, word: u32) -> u64 {
        match Word::unpack(word) {
            Word::Socket(slot) => {
                let keys = self.keys.get(slot);
                keys.map_or(0, |keys| self.hash(&keys.flow()))
            }
            Word::TimeWait(number) => self.time_waits.hash_of(number, self.key),
        }
    }
}

/// Connections that have ended.
impl Connections {
    /// Has a time-wait judge a segment of its flow; one that ends by it has left the table when this
    /// returns. `None` if it is gone.
    pub(crate) fn judge(
        &self,
        found: TimeWaitRef,
        flow: &Flow,
        segment: &Seen,
        rules: Rules,
        now: Instant,
    ) -> Option<Judged> {
        let TimeWaitRef(number) = found;
        let mut place = self.time_waits.get(number, flow)?;
        let entry = place.entry()?;
        let outcome = entry.on_segment(now, segment, rules);
        let entry = *entry;
        match outcome.verdict {
            Verdict::Drop(_) | Verdict::Ack => {
                let tick = outcome.stays.map(|stays| place.stay(now + stays));
                drop(place);
                if let Some(tick) = tick {
                    self.time_waits.moved(tick);
                }
            }
            Verdict::Reset | Verdict::End | Verdict::NewConnection { .. } => {
                place.end();
                self.forget(self.hash(flow), number);
            }
        }
        Some(Judged { outcome, entry })
    }

    /// Ends what is due, and calls `f` with each, once it has left the table.
    pub(crate) fn expire(&self, now: Instant, mut f: impl FnMut(&Flow, &TimeWait)) {
        self.time_waits.expire(now, |number, flow, entry| {
            self.forget(self.hash(flow), number);
            f(flow, entry);
        });
    }

    /// When [`expire`](Self::expire) may have something to do.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.time_waits.next_deadline()
    }

    /// Calls `f` with all that is in time-wait, and the time that it has left.
    pub(crate) fn for_each_time_wait(
        &self,
        now: Instant,
        f: impl FnMut(&Flow, &TimeWait, Duration),
    ) {
        self.time_waits.for_each(now, f);
    }

    /// Takes one that has ended out of the table. Its place is free only then: until it is, the
    /// table may ask for the hash of its word.
    fn forget(&self, hash: u64, number: u32) {
        let word = Word::TimeWait(number).pack();
        self.table.remove(hash, word, |word| self.hash_of(word));
        self.time_waits.free(number);
    }
}

/// What a word of the table says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Socket(u32),
    TimeWait(u32),
}

impl Word {
    #[inline]
    fn pack(self) -> u32 {
        match self {
            Self::Socket(slot) => slot << 1,
            Self::TimeWait(number) => number << 1 | 1,
        }
    }

    #[inline]
    fn unpack(word: u32) -> Self {
        match word & 1 {
            0 => Self::Socket(word >> 1),
            _ => Self::TimeWait(word >> 1),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
