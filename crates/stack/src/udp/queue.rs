//! A socket's receive queue and the memory it may take.
//!
//! Two queues with a lock each: cores put datagrams into the producers', and a reader whose own is
//! empty takes over all that waits there at once. So reader and cores meet once for many datagrams.

use core::fmt;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use core::task::Waker;
use std::sync::{Mutex, MutexGuard};

use forebay_sync::cache_line::CacheLine;
use forebay_sync::prefetch::prefetch_read;

use crate::packet::{Packet, PacketQueue};
use crate::socket::{SocketError, lock};

/// What a socket's queue holds and may hold, in bytes of buffers (Linux's `sk_rmem_alloc` and
/// `sk_rcvbuf`).
#[derive(Debug, Default)]
pub(crate) struct ReceiveMemory {
    alloc: AtomicU32,
    limit: AtomicU32,
    drops: AtomicU32,
}

impl ReceiveMemory {
    pub(crate) fn alloc(&self) -> u32 {
        self.alloc.load(Ordering::Relaxed)
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Sets the limit; below 2^31, so that the charge can't wrap.
    pub(crate) fn set_limit(&self, bytes: u32) {
        self.limit
            .store(bytes.min(i32::MAX as u32), Ordering::Relaxed);
    }

    /// Datagrams that found no room.
    pub(crate) fn drops(&self) -> u32 {
        self.drops.load(Ordering::Relaxed)
    }

    /// Counts a datagram that the socket does not want.
    pub(crate) fn count_drop(&self) {
        self.drops.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn reset(&self, limit: u32) {
        self.set_limit(limit);
        self.drops.store(0, Ordering::Relaxed);
    }

    /// A queue takes a datagram as long as what it held before is within its limit: so one always
    /// fits an empty queue, however large. Under the producers' lock.
    fn charge(&self, bytes: u32, share: &SocketMemory) -> Result<(), Refusal> {
        if self.alloc() > self.limit() {
            return Err(Refusal::QueueFull);
        }
        if !share.charge(bytes as usize) {
            return Err(Refusal::NoMemory);
        }
        self.alloc.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn uncharge(&self, bytes: u32, share: &SocketMemory) {
        self.alloc.fetch_sub(bytes, Ordering::Relaxed);
        share.uncharge(bytes as usize);
    }
}

/// The buffers that all sockets together may hold, in bytes: the pool less its reserve.
#[derive(Debug)]
pub(crate) struct SocketMemory {
    used: CacheLine<AtomicUsize>,
    limit: usize,
}

impl SocketMemory {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            used: CacheLine::default(),
            limit,
        }
    }

    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn charge(&self, bytes: usize) -> bool {
        let before = self.used.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.limit;
        if !fits {
            self.uncharge(bytes);
        }
        fits
    }

    fn uncharge(&self, bytes: usize) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Why a queue did not take a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The socket is closed, or no longer where the datagram was sent to.
    Moved,
    /// The socket's own limit.
    QueueFull,
    /// The limit of all sockets.
    NoMemory,
    /// The socket's filter keeps nothing of it.
    Filtered,
}

/// The queues.
#[derive(Debug, Default)]
pub(crate) struct ReceiveQueue {
    producers: CacheLine<Mutex<Producers>>,
    reader: CacheLine<ReaderLine>,
}

#[derive(Default)]
struct Producers {
    packets: PacketQueue,
    /// Who waits for something to read.
    wakers: Vec<Waker>,
}

#[derive(Debug, Default)]
struct ReaderLine {
    reader: Mutex<Reader>,
    /// The error that the next call returns, as [`code_of`] says it; 0 is none.
    error: AtomicU32,
}

#[derive(Default)]
struct Reader {
    packets: PacketQueue,
    /// Bytes taken out of the queue whose charge has not been given back yet.
    deficit: u32,
}

impl ReceiveQueue {
    /// Fetches the line that [`push`](Self::push) will write.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch_read(&self.producers);
    }

    /// Puts a datagram at the end, if `is_right` still says so under the lock.
    ///
    /// # Errors
    ///
    /// The datagram, and why it was not taken.
    pub(crate) fn push(
        &self,
        packet: Packet,
        memory: &ReceiveMemory,
        share: &SocketMemory,
        is_right: impl FnOnce() -> bool,
    ) -> Result<(), (Packet, Refusal)> {
        let bytes = truesize(&packet);
        let mut producers = lock(&self.producers);
        if !is_right() {
            return Err((packet, Refusal::Moved));
        }
        if let Err(refusal) = memory.charge(bytes, share) {
            memory.count_drop();
            return Err((packet, refusal));
        }
        let was_empty = producers.packets.is_empty();
        producers.packets.push(packet);
        let wakers = if was_empty {
            core::mem::take(&mut producers.wakers)
        } else {
            Vec::new()
        };
        drop(producers);
        wakers.into_iter().for_each(Waker::wake);
        Ok(())
    }

    /// Takes the datagram at the front, if `is_right` says under the lock that the queue is still
    /// the caller's socket's.
    pub(crate) fn pop(
        &self,
        memory: &ReceiveMemory,
        share: &SocketMemory,
        is_right: impl FnOnce() -> bool,
    ) -> Option<Packet> {
        let mut reader = self.reader(is_right)?;
        let packet = reader.packets.pop()?;
        reader.deficit += truesize(&packet);
        // Given back a quarter of the limit at a time, or when the queue is empty (as Linux's
        // `udp_rmem_release`): cores read and write the counter for every datagram.
        if reader.packets.is_empty() || reader.deficit > memory.limit() / 4 {
            memory.uncharge(core::mem::take(&mut reader.deficit), share);
        }
        Some(packet)
    }

    /// Looks at the datagram at the front and leaves it there; `is_right` as in [`Self::pop`].
    pub(crate) fn peek<R>(
        &self,
        is_right: impl FnOnce() -> bool,
        look: impl FnOnce(&Packet) -> R,
    ) -> Option<R> {
        self.reader(is_right)?.packets.peek().map(look)
    }

    /// Has `waker` woken when there is something to read; at once if there is.
    pub(crate) fn register(&self, waker: &Waker) {
        let reader = lock(&self.reader.reader);
        let mut producers = lock(&self.producers);
        let is_ready = !reader.packets.is_empty()
            || !producers.packets.is_empty()
            || self.reader.error.load(Ordering::Relaxed) != 0;
        if is_ready {
            drop((reader, producers));
            waker.wake_by_ref();
        } else if !producers.wakers.iter().any(|other| other.will_wake(waker)) {
            producers.wakers.push(waker.clone());
        }
    }

    /// Wakes everybody who waits.
    pub(crate) fn wake(&self) {
        let wakers = core::mem::take(&mut lock(&self.producers).wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Runs `f` while no datagram can get in.
    pub(crate) fn exclusively(&self, f: impl FnOnce()) {
        let _producers = lock(&self.producers);
        f();
    }

    /// Empties the queue of a socket that takes nothing any more, and gives its charge back.
    pub(crate) fn purge(&self, memory: &ReceiveMemory, share: &SocketMemory) -> PacketQueue {
        let mut reader = lock(&self.reader.reader);
        let mut packets = core::mem::take(&mut reader.packets);
        packets.append(&mut lock(&self.producers).packets);
        reader.deficit = 0;
        memory.uncharge(memory.alloc(), share);
        self.reader.error.store(0, Ordering::Relaxed);
        packets
    }

    /// Remembers an error for the next call.
    pub(crate) fn set_error(&self, error: SocketError) {
        self.reader.error.store(code_of(error), Ordering::Release);
        self.wake();
    }

    /// The error that happened since the last call; it is told once.
    pub(crate) fn take_error(&self) -> Option<SocketError> {
        if self.reader.error.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let code = self.reader.error.swap(0, Ordering::Acquire);
        ERRORS.into_iter().find(|error| code_of(*error) == code)
    }

    /// The reader's queue, filled if anything waits. A socket is closed only under this lock, so its
    /// slot serves no other one while it is held.
    fn reader(&self, is_right: impl FnOnce() -> bool) -> Option<MutexGuard<'_, Reader>> {
        let mut reader = lock(&self.reader.reader);
        if !is_right() {
            return None;
        }
        self.refill(&mut reader);
        Some(reader)
    }

    fn refill(&self, reader: &mut Reader) {
        if reader.packets.is_empty() {
            reader.packets.append(&mut lock(&self.producers).packets);
        }
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

fn code_of(error: SocketError) -> u32 {
    error as u32 + 1
}

fn truesize(packet: &Packet) -> u32 {
    u32::try_from(packet.truesize()).unwrap_or(u32::MAX)
}

impl fmt::Debug for Producers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producers")
            .field("packets", &self.packets.len())
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
