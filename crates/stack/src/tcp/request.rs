//! Connections that are half open: a SYN came in and was answered, and nothing has acknowledged the
//! answer yet (SYN-RECEIVED, RFC 9293 section 3.3.2).
//!
//! Whoever sends SYNs can make as many of these as a listener's backlog allows, so they are small,
//! and lie in shards by their flow's hash, away from connections. Answers are sent again after one
//! second, two, four and so on, so those that have been sent equally often are due in the order in
//! which they came: a shard has a queue for each count.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;
use std::collections::HashMap;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::segments::Segments;
use forebay_sync::short_lock::{ShortGuard, ShortLock};

use crate::demux::flow::Flow;
use crate::siphash::Key;
use crate::socket::SocketId;
use crate::time::Instant;
use crate::wire::seq::Seq;

const SHARDS: usize = 64;
/// Until an answer is sent again the first time (RFC 6298 section 2.1).
const INITIAL_RTO: Duration = Duration::from_secs(1);
/// The most that backing off leads to (Linux's `TCP_RTO_MAX`).
const MAX_RTO: Duration = Duration::from_secs(120);
/// Queues: after seven doublings the timeout grows no more.
const LEVELS: usize = 8;
/// Requests that are looked at under the lock at once.
const AT_ONCE: usize = 16;
/// Places that an empty shard keeps at most.
const KEPT: usize = 16;
/// No entry.
const NONE: u32 = u32::MAX;

/// A half-open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) listener: SocketId,
    /// Sequence number of the SYN, and of the answer.
    pub(crate) irs: Seq,
    pub(crate) iss: Seq,
    /// What the peer takes in one segment, as it says.
    pub(crate) mss: u16,
    /// The peer's window, not scaled.
    pub(crate) window: u16,
    /// Shift of the peer's window, if it scales.
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) ecn: bool,
    /// The peer's last timestamp, if both sides send them.
    pub(crate) timestamps: Option<u32>,
    /// What our timestamps are ahead of the clock.
    pub(crate) offset: u32,
    /// How often time had the answer sent again.
    pub(crate) retransmits: u8,
    /// The window that the answer offers.
    pub(crate) own_window: u16,
    /// When the SYN was answered first; nobody knows that of a cookie.
    pub(crate) sent_at: Option<Instant>,
    /// When the answer is sent again.
    pub(crate) deadline: Instant,
    /// When a segment that was not the expected one was last answered.
    pub(crate) answered_invalid: Option<Instant>,
}

const _: () = assert!(size_of::<Request>() <= 128);

/// What time does to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    /// The answer is to be sent again.
    Resend,
    /// Nobody will acknowledge it any more: it is gone.
    GiveUp,
}

/// All half-open connections.
pub(crate) struct Requests {
    key: Key,
    shards: Box<[CacheLine<ShortLock<Shard>>]>,
    /// By number of the listener's slot.
    queues: Segments<Queue>,
    /// Nothing is due before this, in nanoseconds.
    earliest: CacheLine<AtomicU64>,
}

/// How many requests a listener has.
#[derive(Debug, Default)]
struct Queue {
    len: AtomicU32,
    /// Those whose answer was sent once.
    young: AtomicU32,
    /// As many as it may have, as it said last.
    max: AtomicU32,
}

struct Shard {
    /// By the flow's hash. Two flows of one hash are so rare that the second is refused.
    by_hash: HashMap<u64, u32, Key>,
    entries: Vec<Entry>,
    /// First of the places that are not in use, linked by `next`.
    empty: u32,
    levels: [Level; LEVELS],
}

/// Requests whose answer has been sent equally often, the one that is due first in front.
#[derive(Debug, Clone, Copy)]
struct Level {
    first: u32,
    last: u32,
}

struct Entry {
    flow: Flow,
    hash: u64,
    request: Request,
    next: u32,
    before: u32,
}

impl Requests {
    pub(crate) fn new(key: Key) -> Self {
        let shard = || {
            CacheLine(ShortLock::new(Shard {
                by_hash: HashMap::with_hasher(key),
                entries: Vec::new(),
                empty: NONE,
                levels: [Level::EMPTY; LEVELS],
            }))
        };
        Self {
            key,
            shards: (0..SHARDS).map(|_| shard()).collect(),
            queues: Segments::new(),
            earliest: CacheLine(AtomicU64::new(u64::MAX)),
        }
    }

    /// Adds a request to its listener's, which are `max` at most. False if there are as many, or one
    /// of the flow.
    pub(crate) fn insert(&self, flow: &Flow, request: &Request, max: u32) -> bool {
        let slot = request.listener.slot;
        self.queues.grow_to(slot + 1, Queue::default);
        let Some(queue) = self.queues.get(slot) else {
            return false;
        };
        queue.max.store(max, Ordering::Relaxed);
        if queue.len.fetch_add(1, Ordering::Relaxed) >= max {
            queue.len.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        let hash = flow.hash(self.key);
        if !self.shard(hash).insert(flow, hash, request) {
            queue.len.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if request.retransmits == 0 {
            queue.young.fetch_add(1, Ordering::Relaxed);
        }
        let deadline = request.deadline.as_nanos();
        self.earliest.fetch_min(deadline, Ordering::AcqRel);
        true
    }

    pub(crate) fn get(&self, flow: &Flow) -> Option<Request> {
        let hash = flow.hash(self.key);
        let shard = self.shard(hash);
        let at = shard.find(flow, hash)?;
        Some(shard.entries[at as usize].request)
    }

    /// Whether a segment may be answered that is not the one that a request waits for: not more often
    /// than every `wait`, or two ends that think alike would answer each other for ever. Counts as
    /// answered.
    pub(crate) fn may_answer(&self, flow: &Flow, now: Instant, wait: Duration) -> bool {
        let hash = flow.hash(self.key);
        let mut shard = self.shard(hash);
        let Some(at) = shard.find(flow, hash) else {
            return false;
        };
        let last = &mut shard.entries[at as usize].request.answered_invalid;
        if last.is_some_and(|last| now - last < wait) {
            return false;
        }
        *last = Some(now);
        true
    }

    /// Takes a request out. Of all that ask for the same, one gets it.
    pub(crate) fn remove(&self, flow: &Flow) -> Option<Request> {
        let hash = flow.hash(self.key);
        let mut shard = self.shard(hash);
        let at = shard.find(flow, hash)?;
        let request = shard.remove(at);
        drop(shard);
        self.uncount(&request);
        Some(request)
    }

    /// Forgets all requests of a listener, which listens no more.
    pub(crate) fn remove_all(&self, listener: SocketId) {
        for shard in &self.shards {
            let mut shard = shard.lock();
            for at in 0..shard.entries.len() as u32 {
                let entry = shard.entries.get(at as usize);
                let is_its = entry.is_some_and(|entry| entry.request.listener == listener);
                if is_its && shard.is_in_use(at) {
                    let request = shard.remove(at);
                    self.uncount(&request);
                }
            }
        }
    }

    /// How many requests a listener has.
    #[cfg(test)]
    pub(crate) fn len(&self, listener: SocketId) -> u32 {
        let queue = self.queues.get(listener.slot);
        queue.map_or(0, |queue| queue.len.load(Ordering::Relaxed))
    }

    /// When something may be due.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let earliest = self.earliest.load(Ordering::Acquire);
        (earliest != u64::MAX).then(|| Instant::from_nanos(earliest))
    }

    /// Calls `f` with every request that is due. One whose answer was sent again `retries` times is
    /// given up; earlier, if its listener's queue is more than half full of such (Linux's
    /// `reqsk_timer_handler`).
    pub(crate) fn expire(
        &self,
        now: Instant,
        retries: u8,
        mut f: impl FnMut(&Flow, &Request, Expired),
    ) {
        if self.earliest.load(Ordering::Acquire) > now.as_nanos() {
            return;
        }
        // Who adds a request while we look says so after this; one that was added before is found.
        self.earliest.store(u64::MAX, Ordering::Release);
        for shard in &self.shards {
            loop {
                let mut due = [None; AT_ONCE];
                let mut guard = shard.lock();
                let mut len = 0;
                while let Some(place) = due.get_mut(len)
                    && let Some(at) = guard.due(now)
                {
                    *place = Some(self.pass(&mut guard, at, now, retries));
                    len += 1;
                }
                let earliest = guard.earliest();
                drop(guard);
                for (flow, request, expired) in due.iter().flatten() {
                    f(flow, request, *expired);
                }
                if len < AT_ONCE {
                    self.earliest.fetch_min(earliest, Ordering::AcqRel);
                    break;
                }
            }
        }
    }

    /// Calls `f` with every request.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&Flow, &Request)) {
        for shard in &self.shards {
            let all: Vec<(Flow, Request)> = {
                let shard = shard.lock();
                let in_use = shard
                    .by_hash
                    .values()
                    .map(|at| &shard.entries[*at as usize]);
                in_use.map(|entry| (entry.flow, entry.request)).collect()
            };
            for (flow, request) in &all {
                f(flow, request);
            }
        }
    }

    /// What becomes of one that is due.
    fn pass(
        &self,
        shard: &mut Shard,
        at: u32,
        now: Instant,
        retries: u8,
    ) -> (Flow, Request, Expired) {
        let entry = &mut shard.entries[at as usize];
        let (flow, request) = (entry.flow, &mut entry.request);
        if request.retransmits >= self.retries(request.listener, retries) {
            let request = shard.remove(at);
            self.uncount(&request);
            return (flow, request, Expired::GiveUp);
        }
        request.retransmits += 1;
        request.deadline = now + timeout(request.retransmits);
        let request = *request;
        let queue = self.queues.get(request.listener.slot);
        if let (1, Some(queue)) = (request.retransmits, queue) {
            queue.young.fetch_sub(1, Ordering::Relaxed);
        }
        shard.unlink(at, level(request.retransmits - 1));
        shard.link(at, level(request.retransmits));
        (flow, request, Expired::Resend)
    }

    /// How often an answer is sent again: as long as a queue is more than half full, the less often
    /// the fewer of its requests are young, but twice at least.
    fn retries(&self, listener: SocketId, retries: u8) -> u8 {
        let Some(queue) = self.queues.get(listener.slot) else {
            return retries;
        };
        let load = |counter: &AtomicU32| u64::from(counter.load(Ordering::Relaxed));
        let (len, max) = (load(&queue.len), load(&queue.max));
        let mut young = load(&queue.young) * 2;
        let mut retries = retries;
        if len * 2 > max.max(8) {
            while retries > 2 && len >= young {
                retries -= 1;
                young *= 2;
            }
        }
        retries
    }

    fn uncount(&self, request: &Request) {
        if let Some(queue) = self.queues.get(request.listener.slot) {
            queue.len.fetch_sub(1, Ordering::Relaxed);
            if request.retransmits == 0 {
                queue.young.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn shard(&self, hash: u64) -> ShortGuard<'_, Shard> {
        self.shards[(hash >> 32) as usize % SHARDS].lock()
    }
}

/// How long is waited when an answer has been sent again so often.
fn timeout(retransmits: u8) -> Duration {
    INITIAL_RTO
        .saturating_mul(1 << retransmits.min(31))
        .min(MAX_RTO)
}

fn level(retransmits: u8) -> usize {
    usize::from(retransmits).min(LEVELS - 1)
}

impl Level {
    const EMPTY: Self = Self {
        first: NONE,
        last: NONE,
    };
}

impl Shard {
    fn find(&self, flow: &Flow, hash: u64) -> Option<u32> {
        let at = *self.by_hash.get(&hash)?;
        let entry = self.entries.get(at as usize)?;
        (entry.flow == *flow).then_some(at)
    }

    fn insert(&mut self, flow: &Flow, hash: u64, request: &Request) -> bool {
        if self.by_hash.contains_key(&hash) {
            return false;
        }
        let entry = Entry {
            flow: *flow,
            hash,
            request: *request,
            next: NONE,
            before: NONE,
        };
        let at = self.empty;
        let at = match self.entries.get_mut(at as usize) {
            Some(place) => {
                self.empty = place.next;
                *place = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        self.by_hash.insert(hash, at);
        self.link(at, level(request.retransmits));
        true
    }

    fn remove(&mut self, at: u32) -> Request {
        let entry = &self.entries[at as usize];
        let (hash, request) = (entry.hash, entry.request);
        self.by_hash.remove(&hash);
        self.unlink(at, level(request.retransmits));
        if self.by_hash.is_empty() && self.entries.len() > KEPT {
            // After a flood, its memory goes.
            self.entries = Vec::new();
            self.by_hash.shrink_to_fit();
            self.empty = NONE;
        } else {
            self.entries[at as usize].next = self.empty;
            self.empty = at;
        }
        request
    }

    fn is_in_use(&self, at: u32) -> bool {
        let entry = self.entries.get(at as usize);
        entry.is_some_and(|entry| self.by_hash.get(&entry.hash) == Some(&at))
    }

    /// One that is due.
    fn due(&self, now: Instant) -> Option<u32> {
        let firsts = self.levels.iter().map(|level| level.first);
        firsts
            .filter(|at| *at != NONE)
            .find(|at| self.entries[*at as usize].request.deadline <= now)
    }

    /// When the first is due, in nanoseconds.
    fn earliest(&self) -> u64 {
        let firsts = self.levels.iter().filter(|level| level.first != NONE);
        let deadlines = firsts.map(|level| self.entries[level.first as usize].request.deadline);
        deadlines.min().map_or(u64::MAX, Instant::as_nanos)
    }

    fn link(&mut self, at: u32, level: usize) {
        let last = core::mem::replace(&mut self.levels[level].last, at);
        let entry = &mut self.entries[at as usize];
        (entry.before, entry.next) = (last, NONE);
        match self.entries.get_mut(last as usize) {
            Some(last) => last.next = at,
            None => self.levels[level].first = at,
        }
    }

    fn unlink(&mut self, at: u32, level: usize) {
        let entry = &self.entries[at as usize];
        let (before, next) = (entry.before, entry.next);
        match self.entries.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => self.levels[level].first = next,
        }
        match self.entries.get_mut(next as usize) {
            Some(next) => next.before = before,
            None => self.levels[level].last = before,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
