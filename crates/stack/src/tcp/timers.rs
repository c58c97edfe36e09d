//! When which socket has something to do.
//!
//! A hierarchical wheel (Varghese and Lauck, 1987): a deadline stands on the lowest level whose turn
//! it falls into, in one of 64 lists, and moves down a level whenever its list's time comes. To
//! schedule, to schedule anew and to expire take the same few steps however many sockets there are.
//!
//! A socket stands in a wheel once. Its connection's deadline moves with every acknowledgement, and
//! mostly away: then the socket stays where it is, is asked too early, and says when to ask again.
//!
//! Sockets are spread over [`SHARDS`] wheels by number, each under a lock of its own, so any thread
//! may schedule. Who sleeps until the next deadline is told of an earlier one by an [`Alarm`].

use core::num::NonZeroU32;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::loom::atomic::{AtomicU64, Ordering, fence};
use forebay_sync::short_lock::ShortLock;

use crate::socket::SocketId;
use crate::time::Instant;

/// Wheels: a power of two.
const SHARDS: usize = 16;
/// A tick is 2^16 ns, about 65 µs: paced segments wait for less than a millisecond.
const TICK_BITS: u32 = 16;
/// Lists of a level.
const LISTS: usize = 64;
const LIST_BITS: u32 = LISTS.trailing_zeros();
/// Their turns take 4 ms, 268 ms, 17 s, 18 min and 20 h.
const LEVELS: usize = 5;
/// Ticks that a deadline is ahead at most: a turn of the highest level but for one list, so that the
/// list whose time it is holds nothing of the next turn. What is due later is asked then, and says so.
const HORIZON: u64 = (LISTS as u64 - 1) << (LIST_BITS * (LEVELS as u32 - 1));
/// Sockets that are taken out under the lock at once.
const AT_ONCE: usize = 64;
/// Nodes that memory is taken for at once.
const PAGE: usize = 256;
/// No node.
const NONE: u32 = u32::MAX;

/// The deadlines of all sockets.
pub(crate) struct Timers {
    shards: Box<[CacheLine<Shard>]>,
}

struct Shard {
    wheel: ShortLock<Wheel>,
    /// Nothing is due before this tick.
    earliest: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        let shard = || {
            CacheLine(Shard {
                wheel: ShortLock::new(Wheel::default()),
                earliest: AtomicU64::new(u64::MAX),
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
        }
    }

    /// Has the socket asked at the deadline, or earlier if it is to be asked earlier already. Who
    /// sleeps must be told ([`Alarm::is_late`]).
    pub(crate) fn schedule(&self, id: SocketId, deadline: Instant, now: Instant) {
        let shard = &self.shards[id.slot as usize % SHARDS];
        let mut wheel = shard.wheel.lock();
        wheel.catch_up(now.as_nanos() >> TICK_BITS);
        wheel.schedule(id, tick_of(deadline));
        let earliest = wheel.next();
        shard.earliest.store(earliest, Ordering::Release);
    }

    /// When somebody may have to be asked.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let ticks = self
            .shards
            .iter()
            .map(|shard| shard.earliest.load(Ordering::Acquire));
        let tick = ticks.min().filter(|tick| *tick != u64::MAX)?;
        Some(Instant::from_nanos(tick.saturating_mul(1 << TICK_BITS)))
    }

    /// Calls `f` with every socket that is to be asked by now. It may have been closed.
    pub(crate) fn expire(&self, now: Instant, mut f: impl FnMut(SocketId)) {
        let now = now.as_nanos() >> TICK_BITS;
        for (nth, shard) in self.shards.iter().enumerate() {
            if shard.earliest.load(Ordering::Acquire) > now {
                continue;
            }
            let mut due = [None; AT_ONCE];
            loop {
                let mut wheel = shard.wheel.lock();
                let mut len = 0;
                while let Some(place) = due.get_mut(len)
                    && let Some((node, generation)) = wheel.pop(now)
                {
                    let slot = node * SHARDS as u32 + nth as u32;
                    *place = Some(SocketId { slot, generation });
                    len += 1;
                }
                shard.earliest.store(wheel.next(), Ordering::Release);
                drop(wheel);
                // Nobody is asked under the lock: who is asked schedules.
                due.iter_mut().filter_map(Option::take).for_each(&mut f);
                if len < AT_ONCE {
                    break;
                }
            }
        }
    }
}

/// The first tick that is not before the deadline.
fn tick_of(deadline: Instant) -> u64 {
    deadline.as_nanos().div_ceil(1 << TICK_BITS)
}

/// The deadlines of some sockets.
#[derive(Default)]
struct Wheel {
    /// All ticks before this are over, and in the first list of no level is anything of them.
    now: u64,
    levels: [Level; LEVELS],
    nodes: Vec<Box<[Node; PAGE]>>,
}

struct Level {
    /// Bit `i`: list `i` is not empty.
    taken: u64,
    first: [u32; LISTS],
}

/// A socket's place.
#[derive(Debug, Clone, Copy)]
struct Node {
    /// When it is to be asked.
    tick: u64,
    /// Of the socket, which is not to be asked if another has its slot by then.
    generation: u32,
    next: u32,
    before: u32,
    /// Its list, level by level, or [`NO_LIST`].
    list: u16,
}

const NO_LIST: u16 = u16::MAX;

impl Default for Level {
    fn default() -> Self {
        Self {
            taken: 0,
            first: [NONE; LISTS],
        }
    }
}

impl Node {
    const NEW: Self = Self {
        tick: 0,
        generation: 0,
        next: NONE,
        before: NONE,
        list: NO_LIST,
    };
}

impl Wheel {
    /// Turns an empty wheel on: one that stands still would put deadlines further up than they
    /// belong.
    fn catch_up(&mut self, now: u64) {
        if self.levels.iter().all(|level| level.taken == 0) {
            self.now = self.now.max(now);
        }
    }

    fn schedule(&mut self, id: SocketId, tick: u64) {
        let at = id.slot / SHARDS as u32;
        while self.nodes.len() <= at as usize / PAGE {
            self.nodes.push(Box::new([Node::NEW; PAGE]));
        }
        let Some(node) = self.node(at) else { return };
        let generation = id.generation.get();
        let is_scheduled = node.list != NO_LIST && node.generation == generation;
        if is_scheduled && node.tick <= tick {
            return;
        }
        self.unlink(at);
        if let Some(node) = self.node(at) {
            node.generation = generation;
        }
        self.link(at, tick);
    }

    /// Takes out one that is due by `now`.
    fn pop(&mut self, now: u64) -> Option<(u32, NonZeroU32)> {
        loop {
            let Some((level, list, tick)) = self.first_list().filter(|(.., tick)| *tick <= now)
            else {
                self.now = self.now.max(now);
                return None;
            };
            self.now = self.now.max(tick);
            let at = self.levels[level].first[list];
            let node = *self.node(at)?;
            self.unlink(at);
            // On the lowest level, all of a list are of one tick. Those from above move down, or are
            // due in this very tick.
            if level == 0 || node.tick <= self.now {
                return Some((at, NonZeroU32::new(node.generation)?));
            }
            self.link(at, node.tick);
        }
    }

    /// The tick at which something has to be done next.
    fn next(&self) -> u64 {
        self.first_list().map_or(u64::MAX, |(.., tick)| tick)
    }

    /// The list whose time comes next: its level, its number, its first tick. Of lists whose time
    /// comes at once, that of the highest level: what it holds may belong into the others.
    fn first_list(&self) -> Option<(usize, usize, u64)> {
        let levels = self.levels.iter().enumerate();
        let firsts = levels
            .filter(|(_, level)| level.taken != 0)
            .map(|(nth, level)| {
                let shift = LIST_BITS * nth as u32;
                let own = self.now >> shift;
                let rotated = level.taken.rotate_right(own as u32 % LISTS as u32);
                let turn = own + u64::from(rotated.trailing_zeros());
                (nth, turn as usize % LISTS, (turn << shift).max(self.now))
            });
        firsts.min_by_key(|(level, _, tick)| (*tick, LEVELS - level))
    }

    fn link(&mut self, at: u32, tick: u64) {
        let stands_for = tick.clamp(self.now, self.now + HORIZON);
        // The highest digit in which it differs from now.
        let differs = (stands_for ^ self.now) | 1;
        let level = (differs.ilog2() / LIST_BITS).min(LEVELS as u32 - 1);
        let list = (stands_for >> (LIST_BITS * level)) as usize % LISTS;
        let Some(in_level) = self.levels.get_mut(level as usize) else {
            return;
        };
        let first = core::mem::replace(&mut in_level.first[list], at);
        in_level.taken |= 1 << list;
        if let Some(node) = self.node(at) {
            node.tick = stands_for;
            node.list = (level as usize * LISTS + list) as u16;
            (node.before, node.next) = (NONE, first);
        }
        if let Some(behind) = self.node(first) {
            behind.before = at;
        }
    }

    fn unlink(&mut self, at: u32) {
        let Some(node) = self.node(at) else { return };
        let left = core::mem::replace(
            node,
            Node {
                list: NO_LIST,
                ..*node
            },
        );
        if left.list == NO_LIST {
            return;
        }
        let list = usize::from(left.list);
        if let Some(next) = self.node(left.next) {
            next.before = left.before;
        }
        if let Some(before) = self.node(left.before) {
            before.next = left.next;
            return;
        }
        let level = &mut self.levels[list / LISTS];
        level.first[list % LISTS] = left.next;
        if left.next == NONE {
            level.taken &= !(1 << (list % LISTS));
        }
    }

    fn node(&mut self, at: u32) -> Option<&mut Node> {
        let page = self.nodes.get_mut(at as usize / PAGE)?;
        Some(&mut page[at as usize % PAGE])
    }
}

/// Wakes who sleeps too long.
///
/// One thread sleeps until the next deadline, and others set deadlines. Who sets one asks afterwards
/// whether it [is late](Self::is_late); who goes to sleep [says until when](Self::sleep_until), and
/// looks again whether that still holds. One of the two sees the other: what either has written
/// comes before its fence, and what it reads behind it.
#[derive(Debug, Default)]
pub(crate) struct Alarm {
    /// Nanoseconds that who sleeps sleeps until; 0 while it is awake.
    asleep_until: CacheLine<AtomicU64>,
}

impl Alarm {
    /// Says that the caller sleeps until the deadline that `next` gives, which is returned. `next`
    /// is asked more than once.
    pub(crate) fn sleep_until(&self, next: impl Fn() -> Option<Instant>) -> Option<Instant> {
        let mut deadline = next();
        loop {
            let until = deadline.map_or(u64::MAX, Instant::as_nanos);
            self.asleep_until.store(until, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let now = next();
            if now == deadline {
                return deadline;
            }
            deadline = now;
        }
    }

    /// Says that nobody sleeps.
    pub(crate) fn is_up(&self) {
        self.asleep_until.store(0, Ordering::Relaxed);
    }

    /// Whether somebody sleeps longer than this deadline, which `next` of
    /// [`sleep_until`](Self::sleep_until) gives by now.
    #[must_use = "somebody may sleep too long"]
    pub(crate) fn is_late(&self, deadline: Instant) -> bool {
        fence(Ordering::SeqCst);
        self.asleep_until.load(Ordering::Relaxed) > deadline.as_nanos()
    }
}

#[cfg(all(test, loom))]
mod interleavings;
#[cfg(all(test, not(loom)))]
mod tests;
