//! A socket's receive queue and the memory it may take.
//!
//! Two queues with a lock each: cores put datagrams into the producers', and a reader whose own is
//! empty takes over all that waits there at once. So reader and cores meet once for many datagrams.
//! One that waits alone is taken from the producers' queue itself, which costs one lock, and the
//! line that its arrival has touched.
//!
//! The charge (Linux's `sk_rmem_alloc`) lies beside the producers' queue, under its lock: whoever
//! adds to it or takes from it has the lock anyway. A reader gives back what it has read when it
//! comes for more, when nothing is left, and when it owes a quarter of the limit (Linux's
//! `udp_rmem_release` and its forward deficit).

use core::fmt;
use core::task::Waker;

use forebay_sync::cache_line::CacheLine;
use forebay_sync::loom::atomic::{AtomicU8, AtomicU64, Ordering};
use forebay_sync::prefetch::prefetch_read;
use forebay_sync::short_lock::{ShortGuard, ShortLock};

use super::memory::Allowance;
use crate::drop::DropReason;
use crate::packet::{ChecksumState, Packet, PacketQueue, Verdict};
use crate::socket::{Options, SocketError};
use crate::sysctl::Sysctls;

/// Two cache lines: one that cores touch for a burst of datagrams, one that readers touch as long as
/// there is something in it.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    inbox: CacheLine<Inbox>,
    outbox: CacheLine<ShortLock<Reader>>,
}

#[derive(Debug, Default)]
struct Inbox {
    /// The socket's state, changed under the producers' lock.
    state: AtomicU64,
    options: Options,
    /// The error that the next call returns, as [`code_of`] says it; 0 is none.
    error: AtomicU8,
    /// Which queues have something: [`INBOX`], [`OUTBOX`]. Written under the producers' lock; the
    /// bit of the outbox stays until its reader has looked for more.
    filled: AtomicU8,
    producers: ShortLock<Producers>,
}

/// The producers' queue has something.
const INBOX: u8 = 1;
/// The reader's queue has something.
const OUTBOX: u8 = 2;

#[derive(Default)]
struct Producers {
    packets: PacketQueue,
    /// Bytes of buffers that are charged: those of both queues, and what the reader owes.
    alloc: u32,
    /// Bytes that may be charged (`sk_rcvbuf`).
    limit: u32,
    /// Who waits for something to read.
    wakers: Option<Box<Wakers>>,
}

/// Mostly one waits, so one takes a single allocation.
struct Wakers {
    first: Waker,
    others: Vec<Waker>,
}

#[derive(Default)]
struct Reader {
    packets: PacketQueue,
    /// Bytes taken out of the queue whose charge has not been given back yet.
    deficit: u32,
    /// So many are given back at once.
    threshold: u32,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<ReceiveQueue>() == 2 * 64);

/// What a queue holds and may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    /// Bytes of buffers that wait to be read.
    pub(crate) used: u32,
    /// Bytes that may be charged.
    pub(crate) limit: u32,
}

/// The socket is closed, or no longer where the datagrams were sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved;

/// Filling.
impl ReceiveQueue {
    /// Fetches the line that [`push`](Self::push) will write.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_read(&self.inbox);
    }

    /// Puts datagrams at the end, in order, as far as there is room, and wakes who waits. All of
    /// them are charged against `allowance`, too. What is refused stays in `datagrams`, the reason
    /// for its verdict.
    ///
    /// # Errors
    ///
    /// [`Moved`], with nothing taken, if the socket's state is not `state` under the lock.
    #[inline(always)]
    pub(crate) fn push(
        &self,
        datagrams: &mut PacketQueue,
        allowance: &mut Allowance,
        sysctls: &Sysctls,
        state: u64,
    ) -> Result<(), Moved> {
        let mut producers = self.inbox.producers.lock();
        if self.inbox.state.load(Ordering::Relaxed) != state {
            return Err(Moved);
        }
        producers.take(datagrams, allowance, sysctls);
        if producers.packets.is_empty() {
            return Ok(());
        }
        let filled = self.inbox.filled.load(Ordering::Relaxed);
        self.inbox.filled.store(filled | INBOX, Ordering::Relaxed);
        if producers.wakers.is_some() {
            let wakers = producers.wakers.take();
            drop(producers);
            wake(wakers);
        }
        Ok(())
    }

    /// Sets the limit; below 2^31, so that the charge can't wrap.
    pub(crate) fn set_limit(&self, bytes: u32) {
        self.inbox.producers.lock().limit = bytes.min(i32::MAX as u32);
    }

    pub(crate) fn memory(&self) -> Memory {
        let reader = self.outbox.lock();
        let producers = self.inbox.producers.lock();
        Memory {
            used: producers.alloc - reader.deficit,
            limit: producers.limit,
        }
    }

    /// The socket's state.
    #[inline]
    pub(crate) fn state(&self) -> u64 {
        self.inbox.state.load(Ordering::Acquire)
    }

    /// Calls `change` with what sets the socket's state, while no datagram can get in.
    pub(crate) fn change_state(&self, change: impl FnOnce(&dyn Fn(u64))) {
        let _producers = self.inbox.producers.lock();
        change(&|state| self.inbox.state.store(state, Ordering::Release));
    }
}

impl Producers {
    /// A queue takes a datagram that fits its limit, and an empty one takes any.
    #[inline(always)]
    fn take(&mut self, datagrams: &mut PacketQueue, allowance: &mut Allowance, sysctls: &Sysctls) {
        let bytes = datagrams.bytes();
        let all_fit = self.fits(bytes) || (self.alloc == 0 && datagrams.len() == 1);
        if all_fit && allowance.charge(bytes, self.alloc as usize, sysctls) {
            self.alloc += u32::try_from(bytes).unwrap_or(u32::MAX);
            self.packets.append(datagrams);
        } else {
            self.take_some(datagrams, allowance, sysctls);
        }
    }

    #[cold]
    fn take_some(
        &mut self,
        datagrams: &mut PacketQueue,
        allowance: &mut Allowance,
        sysctls: &Sysctls,
    ) {
        let mut refused = PacketQueue::new();
        while let Some(mut datagram) = datagrams.pop() {
            let bytes = datagram.truesize();
            let reason = if self.alloc != 0 && !self.fits(bytes) {
                DropReason::SocketRcvbuff
            } else if !allowance.charge(bytes, self.alloc as usize, sysctls) {
                DropReason::ProtoMem
            } else {
                self.alloc += truesize(&datagram);
                self.packets.push(datagram);
                continue;
            };
            datagram.verdict = Verdict::Drop(reason);
            refused.push(datagram);
        }
        datagrams.append(&mut refused);
    }

    /// Takes a datagram out, with its charge.
    #[inline]
    fn pop(&mut self) -> Option<Packet> {
        let packet = self.packets.pop()?;
        self.alloc -= truesize(&packet);
        Some(packet)
    }

    fn fits(&self, bytes: usize) -> bool {
        self.alloc as usize + bytes <= self.limit as usize
    }
}

/// A reader's hold on the queue: others wait, cores don't.
pub(crate) struct Reading<'a> {
    inbox: &'a Inbox,
    reader: ShortGuard<'a, Reader>,
}

/// Reading.
impl ReceiveQueue {
    /// Takes the datagram at the front, if `is_right` says under a lock that the queue is still the
    /// caller's socket's: as [`read`](Self::read) and [`Reading::pop`] do.
    #[inline]
    pub(crate) fn pop(&self, is_right: impl Fn() -> bool) -> Option<Packet> {
        match self.inbox.filled.load(Ordering::Relaxed) {
            0 => return None,
            INBOX => {
                let mut producers = self.inbox.producers.lock();
                let is_all = self.inbox.filled.load(Ordering::Relaxed) == INBOX;
                if is_all && producers.packets.len() == 1 {
                    return if is_right() {
                        self.inbox.filled.store(0, Ordering::Relaxed);
                        producers.pop()
                    } else {
                        None
                    };
                }
            }
            _ => {}
        }
        self.read(is_right)?.pop()
    }

    /// Begins to read, if `is_right` says under the lock that the queue is still the caller's
    /// socket's. A socket is closed only under this lock, so its slot serves no other one meanwhile.
    pub(crate) fn read(&self, is_right: impl FnOnce() -> bool) -> Option<Reading<'_>> {
        let reader = self.outbox.lock();
        is_right().then_some(Reading {
            inbox: &self.inbox,
            reader,
        })
    }

    /// Empties the queue of a socket that takes nothing any more, and gives its charge back.
    pub(crate) fn purge(&self) -> PacketQueue {
        let mut reader = self.outbox.lock();
        let mut packets = core::mem::take(&mut reader.packets);
        let mut producers = self.inbox.producers.lock();
        packets.append(&mut producers.packets);
        reader.deficit = 0;
        producers.alloc = 0;
        self.inbox.filled.store(0, Ordering::Relaxed);
        self.inbox.error.store(0, Ordering::Relaxed);
        packets
    }

    pub(crate) fn options(&self) -> &Options {
        &self.inbox.options
    }
}

impl Reading<'_> {
    /// The datagram at the front.
    pub(crate) fn front(&mut self) -> Option<&Packet> {
        if self.reader.packets.is_empty() {
            self.refill();
        }
        self.reader.packets.peek()
    }

    /// The datagram at the front, marked as verified.
    pub(crate) fn verified_front(&mut self) -> Option<&Packet> {
        if let Some(meta) = self.reader.packets.peek_mut() {
            meta.checksum = ChecksumState::Verified;
        }
        self.reader.packets.peek()
    }

    /// Takes the datagram at the front.
    pub(crate) fn pop(&mut self) -> Option<Packet> {
        let reader = &mut *self.reader;
        if reader.packets.is_empty() {
            return self.refill_and_pop();
        }
        let packet = reader.packets.pop()?;
        reader.deficit += truesize(&packet);
        if reader.packets.is_empty() || reader.deficit > reader.threshold {
            self.refill();
        }
        Some(packet)
    }

    /// A datagram that was alone leaves no debt: its charge goes with the lock that found it.
    fn refill_and_pop(&mut self) -> Option<Packet> {
        let mut producers = self.reader.refill(self.inbox);
        let packet = self.reader.packets.pop()?;
        if self.reader.packets.is_empty() {
            producers.alloc -= truesize(&packet);
            self.inbox.filled.store(0, Ordering::Relaxed);
        } else {
            self.reader.deficit = truesize(&packet);
        }
        Some(packet)
    }

    fn refill(&mut self) {
        drop(self.reader.refill(self.inbox));
    }
}

impl Reader {
    /// Gives back what is owed and takes over what waits.
    fn refill<'a>(&mut self, inbox: &'a Inbox) -> ShortGuard<'a, Producers> {
        let mut producers = inbox.producers.lock();
        producers.alloc -= core::mem::take(&mut self.deficit);
        self.threshold = producers.limit / 4;
        self.packets.append(&mut producers.packets);
        let filled = if self.packets.is_empty() { 0 } else { OUTBOX };
        inbox.filled.store(filled, Ordering::Relaxed);
        producers
    }
}

/// Telling.
impl ReceiveQueue {
    /// Has `waker` woken when there is something to read; at once if there is.
    pub(crate) fn register(&self, waker: &Waker) {
        let reader = self.outbox.lock();
        let mut producers = self.inbox.producers.lock();
        let is_ready =
            !reader.packets.is_empty() || !producers.packets.is_empty() || self.has_error();
        if is_ready {
            drop((reader, producers));
            waker.wake_by_ref();
            return;
        }
        producers.add_waker(waker);
    }

    /// Has `waker` woken when something comes, whatever is there already.
    pub(crate) fn arm(&self, waker: &Waker) {
        self.inbox.producers.lock().add_waker(waker);
    }

    /// Forgets a waker that nobody listens to any more.
    pub(crate) fn disarm(&self, waker: &Waker) {
        let mut producers = self.inbox.producers.lock();
        let kept = producers.wakers.take();
        producers.wakers = kept.and_then(|wakers| wakers.without(waker));
    }

    /// Wakes everybody who waits.
    pub(crate) fn wake(&self) {
        let wakers = self.inbox.producers.lock().wakers.take();
        wake(wakers);
    }

    /// Remembers an error for the next call.
    pub(crate) fn set_error(&self, error: SocketError) {
        self.inbox.error.store(code_of(error), Ordering::Release);
        self.wake();
    }

    /// Whether the next call returns an error.
    pub(crate) fn has_error(&self) -> bool {
        self.inbox.error.load(Ordering::Relaxed) != 0
    }

    /// The error that happened since the last call; it is told once.
    #[inline]
    pub(crate) fn take_error(&self) -> Option<SocketError> {
        if !self.has_error() {
            return None;
        }
        let code = self.inbox.error.swap(0, Ordering::Acquire);
        ERRORS.into_iter().find(|error| code_of(*error) == code)
    }
}

impl Producers {
    fn add_waker(&mut self, waker: &Waker) {
        match &mut self.wakers {
            Some(wakers) => wakers.add(waker),
            none => {
                *none = Some(Box::new(Wakers {
                    first: waker.clone(),
                    others: Vec::new(),
                }));
            }
        }
    }
}

impl Wakers {
    fn add(&mut self, waker: &Waker) {
        let mut all = core::iter::once(&self.first).chain(&self.others);
        if !all.any(|other| other.will_wake(waker)) {
            self.others.push(waker.clone());
        }
    }

    /// What is left without one of them.
    fn without(mut self: Box<Self>, waker: &Waker) -> Option<Box<Self>> {
        self.others.retain(|other| !other.will_wake(waker));
        if self.first.will_wake(waker) {
            self.first = self.others.pop()?;
        }
        Some(self)
    }
}

fn wake(wakers: Option<Box<Wakers>>) {
    if let Some(wakers) = wakers {
        let Wakers { first, others } = *wakers;
        first.wake();
        others.into_iter().for_each(Waker::wake);
    }
}

/// Every error that a socket can be told of.
const ERRORS: [SocketError; 9] = [
    SocketError::ConnectionRefused,
    SocketError::HostUnreachable,
    SocketError::HostProhibited,
    SocketError::NetworkUnreachable,
    SocketError::NetworkProhibited,
    SocketError::PermissionDenied,
    SocketError::ProtocolError,
    SocketError::ProtocolUnavailable,
    SocketError::MessageTooLong,
];

fn code_of(error: SocketError) -> u8 {
    error as u8 + 1
}

fn truesize(packet: &Packet) -> u32 {
    u32::try_from(packet.truesize()).unwrap_or(u32::MAX)
}

impl fmt::Debug for Producers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producers")
            .field("packets", &self.packets.len())
            .field("alloc", &self.alloc)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("packets", &self.packets.len())
            .finish_non_exhaustive()
    }
}
