//! Reassembly of fragments (RFC 791 section 3.2, RFC 8200 section 4.5), shared by all cores.
//!
//! Fragments are not copied: the datagram that comes out is the chain of their buffers. A fragment
//! that is wrong by itself (no data, a length or an end that can't be) is dropped alone, and so is
//! an exact duplicate; fragments that contradict each other cost the whole datagram, in both
//! families (RFC 5722 section 4, and Linux since CVE-2018-5391). Nothing is remembered of a datagram
//! that was given up: its identification can be used again at once.
//!
//! What waits is bounded in memory, in fragments per datagram and in time. Memory is the knob's, and
//! never more than one buffer in [`POOL_SHARE`]. Over it the oldest datagrams go, where Linux
//! refuses new ones until old ones time out: a flood of first fragments then shortens the time that
//! a datagram has, but does not stop reassembly for half a minute.

mod datagram;
#[cfg(test)]
mod tests;

use core::hash::BuildHasher;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_sync::packet::STRIDE;
use zerocopy::FromBytes;

use self::datagram::{Datagram, Refusal};
use crate::core::Context;
use crate::counters::Counter;
use crate::drop::DropReason;
use crate::family::Family;
use crate::ip::icmp::{self, IcmpError};
use crate::packet::{self, IpVersion, Meta, Packet, Verdict};
use crate::siphash;
use crate::time::Instant;
use crate::wire::icmp::v6::PARAM_HEADER_FIELD;
use crate::wire::{FragmentHeader, Ipv4Header, Ipv6Header};

/// Many enough that cores rarely meet, few enough to look into each when time runs out.
const BUCKETS: usize = 64;

/// Each family's fragments hold at most one buffer in this many.
const POOL_SHARE: usize = 16;

/// Most fragments of one datagram: 65,535 bytes over an MTU of 576 take 119.
const MAX_FRAGMENTS: usize = 256;

/// The deadline when nothing waits.
const NEVER: u64 = u64::MAX;

/// The ECN bits of traffic class and type of service (RFC 3168 section 5).
const ECN_MASK: u8 = 3;

/// Largest IPv4 packet and largest IPv6 payload.
const MAX_LEN: usize = 65_535;

/// Reassembles an IPv4 fragment for local delivery, as Linux's `ip_defrag` does. The packet that comes
/// back is whole; `None` if others are missing or it was dropped.
pub(crate) fn local_in_v4(cx: &mut Context<'_>, packet: Packet) -> Option<Packet> {
    let Some(fragment) = Fragment::v4(&packet) else {
        cx.drop(packet, DropReason::PktTooSmall);
        return None;
    };
    let stack = cx.stack;
    stack.reassembly4.push(cx, packet, &fragment)
}

/// What a fragment says of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fragment {
    id: u32,
    /// Place of its data in the datagram, in bytes.
    offset: usize,
    more: bool,
    /// Protocol of the datagram: part of its identity in IPv4, and what the first fragment says in
    /// IPv6.
    protocol: u8,
    /// Bytes in front of its data.
    header_len: usize,
    /// IPv6: which byte says that a fragment header follows.
    next_header_at: usize,
}

impl Fragment {
    /// Reads it from an IPv4 header that validation has seen.
    fn v4(packet: &Packet) -> Option<Self> {
        let (ip, _) = Ipv4Header::ref_from_prefix(packet.data()).ok()?;
        Some(Self {
            id: u32::from(ip.id.get()),
            offset: ip.fragment_offset(),
            more: ip.more_fragments(),
            protocol: ip.protocol,
            header_len: ip.header_len(),
            next_header_at: 0,
        })
    }

    /// The fragment whose header lies at `at`, announced by the byte at `next_header_at`.
    pub(crate) fn v6(header: &FragmentHeader, at: usize, next_header_at: usize) -> Self {
        Self {
            id: header.id.get(),
            offset: header.fragment_offset(),
            more: header.more_fragments(),
            protocol: header.next_header,
            header_len: at + FragmentHeader::LEN,
            next_header_at,
        }
    }

    /// What is wrong with it whatever the others are.
    fn problem<F: Family>(&self, len: usize) -> Option<Problem> {
        // In IPv4 the limit counts the header, in IPv6 what follows it.
        let in_front = match F::VERSION {
            IpVersion::V4 => self.header_len,
            IpVersion::V6 => 0,
        };
        if len == 0 {
            Some(Problem::Empty)
        } else if self.more && !len.is_multiple_of(8) {
            Some(Problem::Length)
        } else if in_front + self.offset + len > MAX_LEN {
            Some(Problem::End)
        } else {
            None
        }
    }

    /// RFC 8200 section 4.5: the sender of an impossible fragment is told which field is wrong.
    fn complaint(&self, problem: Problem) -> Option<IcmpError> {
        let offset_field = self.header_len - FragmentHeader::LEN + 2;
        let pointer = match problem {
            Problem::Empty => return None,
            Problem::Length => Ipv6Header::PAYLOAD_LEN_OFFSET,
            Problem::End => u32::try_from(offset_field).ok()?,
        };
        Some(IcmpError::ParameterProblem {
            code: PARAM_HEADER_FIELD,
            pointer,
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Problem {
    /// No data.
    Empty,
    /// More fragments follow, and the data is no multiple of 8 bytes.
    Length,
    /// The datagram would be too long.
    End,
}

/// The incomplete datagrams of one family.
#[derive(Debug)]
pub(crate) struct Reassembler<F: Family> {
    hash_key: siphash::Key,
    buckets: [Mutex<Bucket<F>>; BUCKETS],
    /// Bytes of buffers that wait, Linux's `truesize`.
    memory: AtomicUsize,
    /// Which bucket gives up its oldest datagram next. Going round, what goes is nearly the oldest
    /// of all.
    hand: AtomicUsize,
    /// No datagram expires before this, in nanoseconds. It may be earlier than need be, when what
    /// set it is complete by now.
    earliest: AtomicU64,
}

/// Oldest first.
type Bucket<F> = VecDeque<Waiting<F>>;

#[derive(Debug)]
struct Waiting<F: Family> {
    key: Key<F::Addr>,
    deadline: Instant,
    datagram: Datagram,
}

/// What fragments of one datagram have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key<A> {
    src: A,
    dst: A,
    id: u32,
    /// 0 in IPv6, where only the first fragment's counts.
    protocol: u8,
    /// 0 where addresses mean the same on every link.
    iif: u32,
}

fn key_of<F: Family>(packet: &Packet, fragment: &Fragment) -> Key<F::Addr> {
    let dst = F::dst(packet);
    let is_scoped = match dst.into() {
        IpAddr::V4(_) => false,
        IpAddr::V6(dst) => dst.is_multicast() || dst.is_unicast_link_local(),
    };
    Key {
        src: F::src(packet),
        dst,
        id: fragment.id,
        protocol: if F::VERSION == IpVersion::V4 {
            fragment.protocol
        } else {
            0
        },
        iif: if is_scoped { packet.iif } else { 0 },
    }
}

impl<F: Family> Reassembler<F> {
    /// Holds nothing yet. A stranger who does not know the seed can't choose who shares a bucket.
    pub(crate) fn new(seed: [u64; 2]) -> Self {
        Self {
            hash_key: siphash::Key(seed),
            buckets: [const { Mutex::new(VecDeque::new()) }; BUCKETS],
            memory: AtomicUsize::new(0),
            hand: AtomicUsize::new(0),
            earliest: AtomicU64::new(NEVER),
        }
    }

    /// Takes a fragment in; gives the whole packet if it was the last one missing. Its first buffer
    /// then holds all headers up to the transport's, and nothing is known of its checksum.
    pub(crate) fn push(
        &self,
        cx: &mut Context<'_>,
        mut packet: Packet,
        fragment: &Fragment,
    ) -> Option<Packet> {
        cx.core.count(F::MIB.reasm_reqds);
        // A head that does not hold the headers holds no data either.
        let has_headers = packet.len() >= fragment.header_len;
        let len = if has_headers {
            packet.total_len() - fragment.header_len
        } else {
            0
        };
        if let Some(problem) = fragment.problem::<F>(len) {
            refuse::<F>(cx, packet, fragment, problem);
            return None;
        }
        let key = key_of::<F>(&packet, fragment);
        if !self.make_room(cx, packet.truesize(), &key) {
            cx.core.count(F::MIB.reasm_fails);
            cx.drop(packet, DropReason::FragLimit);
            return None;
        }
        let meta = *packet;
        forget_decisions(&mut packet);
        match self.insert(cx, key, packet, fragment) {
            Outcome::Waits => None,
            Outcome::Complete(datagram) => deliver::<F>(cx, datagram, meta),
            Outcome::Duplicate(packet) => {
                cx.drop(packet, DropReason::FragDuplicate);
                None
            }
            Outcome::GivenUp(datagram, packet, reason) => {
                give_up::<F>(cx, datagram, reason);
                cx.drop(packet, reason);
                None
            }
        }
    }

    /// Gives up the datagrams whose time is over, and tells their senders if the first fragment had
    /// come (RFC 792, RFC 8200 section 4.5): without it an ICMP error could quote no port. Returns
    /// when there may be more to do.
    pub(crate) fn expire(&self, cx: &mut Context<'_>) -> Option<Instant> {
        if self.earliest.load(Relaxed) <= cx.now.as_nanos() {
            self.expire_now(cx);
        }
        match self.earliest.load(Relaxed) {
            NEVER => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    fn expire_now(&self, cx: &mut Context<'_>) {
        // Whoever adds a datagram lowers this again, and does so under its bucket's lock: either
        // before the lock is taken here, and the datagram is seen, or after this store.
        self.earliest.store(NEVER, Relaxed);
        for index in 0..BUCKETS {
            for datagram in self.take_expired(index, cx.now) {
                cx.core.count(F::MIB.reasm_timeout);
                if let Some(first) = datagram.first() {
                    icmp::send_error::<F>(cx, first, IcmpError::ReassemblyTimeExceeded);
                }
                give_up::<F>(cx, datagram, DropReason::FragTimeout);
            }
        }
    }

    fn insert(
        &self,
        cx: &Context<'_>,
        key: Key<F::Addr>,
        packet: Packet,
        fragment: &Fragment,
    ) -> Outcome {
        let truesize = packet.truesize();
        let ecn = F::traffic_class(&packet) & ECN_MASK;
        let mut bucket = self.lock(self.bucket_of(&key));
        let at = match bucket.iter().position(|waiting| waiting.key == key) {
            Some(at) => at,
            None => {
                let deadline = cx.now + timeout::<F>(cx);
                self.earliest.fetch_min(deadline.as_nanos(), Relaxed);
                bucket.push_back(Waiting {
                    key,
                    deadline,
                    datagram: Datagram::default(),
                });
                bucket.len() - 1
            }
        };
        let datagram = &mut bucket[at].datagram;
        match datagram.insert(packet, fragment, ecn) {
            Ok(()) => {
                let is_complete = datagram.is_complete();
                self.memory.fetch_add(truesize, Relaxed);
                if is_complete {
                    Outcome::Complete(self.remove(&mut bucket, at))
                } else {
                    Outcome::Waits
                }
            }
            Err((packet, Refusal::Duplicate)) => Outcome::Duplicate(packet),
            Err((packet, Refusal::Contradiction)) => Outcome::GivenUp(
                self.remove(&mut bucket, at),
                packet,
                DropReason::FragOverlap,
            ),
            Err((packet, Refusal::TooMany)) => {
                Outcome::GivenUp(self.remove(&mut bucket, at), packet, DropReason::FragLimit)
            }
        }
    }

    /// Gives up old datagrams, though not that of `key`, until `truesize` more bytes fit. False if
    /// they never do.
    fn make_room(&self, cx: &mut Context<'_>, truesize: usize, key: &Key<F::Addr>) -> bool {
        let limit = limit::<F>(cx);
        let mut fruitless = 0;
        while self.memory.load(Relaxed) + truesize > limit {
            if fruitless == BUCKETS || truesize > limit {
                return false;
            }
            let mut bucket = self.lock(self.hand.fetch_add(1, Relaxed) % BUCKETS);
            let Some(oldest) = bucket.iter().position(|waiting| waiting.key != *key) else {
                fruitless += 1;
                continue;
            };
            let datagram = self.remove(&mut bucket, oldest);
            drop(bucket);
            give_up::<F>(cx, datagram, DropReason::FragLimit);
        }
        true
    }

    /// The datagrams of a bucket that are due. Those that stay say when to come again.
    fn take_expired(&self, index: usize, now: Instant) -> Vec<Datagram> {
        let mut expired = Vec::new();
        let mut bucket = self.lock(index);
        // Not only at the front: the knob may have changed between one datagram and the next.
        while let Some(at) = bucket.iter().position(|waiting| waiting.deadline <= now) {
            expired.push(self.remove(&mut bucket, at));
        }
        if let Some(next) = bucket.iter().map(|waiting| waiting.deadline).min() {
            self.earliest.fetch_min(next.as_nanos(), Relaxed);
        }
        expired
    }

    fn remove(&self, bucket: &mut Bucket<F>, at: usize) -> Datagram {
        let datagram = bucket
            .remove(at)
            .map(|waiting| waiting.datagram)
            .unwrap_or_default();
        self.memory.fetch_sub(datagram.truesize(), Relaxed);
        datagram
    }

    fn bucket_of(&self, key: &Key<F::Addr>) -> usize {
        #[expect(clippy::cast_possible_truncation, reason = "reduced below BUCKETS")]
        let bucket = (self.hash_key.hash_one(key) % BUCKETS as u64) as usize;
        bucket
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Bucket<F>> {
        // Nothing under this lock leaves a datagram half changed by a panic.
        self.buckets[index]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a fragment.
enum Outcome {
    Waits,
    Complete(Datagram),
    Duplicate(Packet),
    /// The datagram goes, and the fragment that was the reason with it.
    GivenUp(Datagram, Packet, DropReason),
}

/// Bytes of buffers that the family's fragments may hold.
fn limit<F: Family>(cx: &Context<'_>) -> usize {
    let knob = usize::try_from(cx.view.sysctls.get(F::FRAG_HIGH_THRESH)).unwrap_or(usize::MAX);
    knob.min(cx.stack.pool.capacity() / POOL_SHARE * STRIDE)
}

fn timeout<F: Family>(cx: &Context<'_>) -> Duration {
    Duration::from_secs(u64::try_from(cx.view.sysctls.get(F::FRAG_TIME)).unwrap_or(0))
}

/// Takes from a fragment that may wait for long what is good for this batch only: a route may be
/// another's by then.
fn forget_decisions(packet: &mut Packet) {
    packet.route = None;
    packet.socket = None;
    packet.verdict = Verdict::Undecided;
}

/// Drops a fragment that is wrong by itself. IPv6 tells the sender which field it was
/// (RFC 8200 section 4.5).
fn refuse<F: Family>(cx: &mut Context<'_>, packet: Packet, fragment: &Fragment, problem: Problem) {
    let is_told = F::VERSION == IpVersion::V6;
    let error = is_told.then(|| fragment.complaint(problem)).flatten();
    let reason = DropReason::FragInvalid;
    icmp::refuse::<F>(cx, packet, packet::Refusal { reason, error });
}

/// The whole packet, as it would have come in one piece. `last` is the metadata of the fragment
/// that came last: what it says of route and destination is of this batch.
fn deliver<F: Family>(cx: &mut Context<'_>, datagram: Datagram, last: Meta) -> Option<Packet> {
    match datagram.join(last) {
        Ok(packet) => {
            cx.core.count(F::MIB.reasm_oks);
            Some(packet)
        }
        Err(datagram) => {
            give_up::<F>(cx, datagram, DropReason::FragOverlap);
            None
        }
    }
}

/// Drops all fragments of a datagram: one failure, as Linux counts it.
fn give_up<F: Family>(cx: &mut Context<'_>, datagram: Datagram, reason: DropReason) {
    cx.core.count(F::MIB.reasm_fails);
    if reason == DropReason::FragOverlap && F::VERSION == IpVersion::V4 {
        cx.core.count(Counter::IpExtReasmOverlaps);
    }
    for packet in datagram.into_packets() {
        cx.drop(packet, reason);
    }
}
