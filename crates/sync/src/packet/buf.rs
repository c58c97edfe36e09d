//! The owning handle of one packet.

use std::fmt;
use std::iter::successors;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::slice;

use super::slot::{Chain, FRAME, HEAD, Slot};
use super::{HEADROOM, STRIDE, pool};
use crate::prefetch::fetch;

/// A packet: a head buffer with headroom and tailroom, and perhaps further
/// buffers (fragments) that continue its data. One pointer wide.
///
/// Dereferences to the metadata `M`. Dropping it gives the buffers back to
/// their pool under a lock; [`Cache::free`](super::Cache::free) is the fast
/// way.
pub struct Buf<M> {
    slot: NonNull<Slot<M>>,
    owns: PhantomData<M>,
}

// SAFETY: a `Buf` owns its slots alone, like a `Box<M>`; giving them back from
// any thread is what the pool's lock is for.
unsafe impl<M: Send> Send for Buf<M> {}
// SAFETY: a shared `Buf` gives nothing but shared access.
unsafe impl<M: Sync> Sync for Buf<M> {}

impl<M> Buf<M> {
    /// Has the processor fetch the metadata, and the first bytes of a packet with the usual
    /// [`HEADROOM`], without waiting for either: for packets that another core has written.
    #[inline]
    pub fn prefetch(&self) {
        let slot = self.slot.as_ptr().cast::<u8>();
        for at in [0, HEAD / 2, HEAD + HEADROOM] {
            fetch(slot.wrapping_add(at));
        }
    }

    /// The head's bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        let (start, len) = self.span();
        // SAFETY: `span` is inside the frame, which is initialised and which
        // this `Buf` owns.
        unsafe { slice::from_raw_parts(start.as_ptr(), len) }
    }

    /// The head's bytes, to be changed.
    pub fn data_mut(&mut self) -> &mut [u8] {
        let (start, len) = self.span();
        // SAFETY: as in `data`, and `self` is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(start.as_ptr(), len) }
    }

    /// Bytes of the head.
    #[must_use]
    pub fn len(&self) -> usize {
        usize::from(self.head().len)
    }

    /// Whether the head has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the head and of all fragments.
    #[must_use]
    pub fn total_len(&self) -> usize {
        self.len() + self.chain().bytes as usize
    }

    /// Free bytes in front of the head's data.
    #[must_use]
    pub fn headroom(&self) -> usize {
        usize::from(self.head().offset)
    }

    /// Free bytes behind the head's data.
    #[must_use]
    pub fn tailroom(&self) -> usize {
        FRAME - self.headroom() - self.len()
    }

    /// Grows the head by `n` bytes at the front and returns them, with
    /// whatever they held before. `None`, and no change, if the headroom is
    /// shorter.
    pub fn push(&mut self, n: usize) -> Option<&mut [u8]> {
        let offset = self.headroom().checked_sub(n)?;
        self.set_span(offset, self.len() + n);
        Some(&mut self.data_mut()[..n])
    }

    /// Drops `n` bytes at the front of the head. False, and no change, if the
    /// head is shorter.
    #[must_use = "the head may be shorter"]
    pub fn pull(&mut self, n: usize) -> bool {
        let Some(len) = self.len().checked_sub(n) else {
            return false;
        };
        self.set_span(self.headroom() + n, len);
        true
    }

    /// Grows the head by `n` bytes at its end and returns them, with whatever
    /// they held before. `None`, and no change, if the tailroom is shorter.
    pub fn put(&mut self, n: usize) -> Option<&mut [u8]> {
        if n > self.tailroom() {
            return None;
        }
        let len = self.len();
        self.set_span(self.headroom(), len + n);
        Some(&mut self.data_mut()[len..])
    }

    /// Cuts the whole packet to its first `total` bytes; fragments left empty
    /// are freed. No change if it is not longer.
    #[inline]
    pub fn truncate(&mut self, total: usize) {
        if total < self.total_len() {
            self.cut(total);
        }
    }

    fn cut(&mut self, total: usize) {
        let Some(kept) = total.checked_sub(self.len()).filter(|&kept| kept > 0) else {
            self.head_mut().frag = None;
            self.set_span(self.headroom(), total.min(self.len()));
            return;
        };
        let mut chain = Chain {
            last: self.slot,
            bytes: kept as u32,
            count: 0,
        };
        let mut left = kept;
        let mut at = self.head_mut().frag.as_mut();
        while let Some(frag) = at {
            chain.last = frag.slot;
            chain.count += 1;
            if left <= frag.len() {
                frag.set_span(frag.headroom(), left);
                frag.head_mut().frag = None;
                break;
            }
            left -= frag.len();
            at = frag.head_mut().frag.as_mut();
        }
        self.head_mut().chain = chain;
    }

    /// The free bytes behind the head's data, for a device to read into;
    /// [`set_len`](Self::set_len) then says how many it did.
    pub fn spare_mut(&mut self) -> &mut [u8] {
        let (start, len) = self.span();
        let spare = self.tailroom();
        // SAFETY: `len` bytes from `start` are inside the frame.
        let end = unsafe { start.add(len) };
        // SAFETY: `spare` more end where the frame does; the frame is
        // initialised, and `self` owns it and is borrowed mutably.
        unsafe { slice::from_raw_parts_mut(end.as_ptr(), spare) }
    }

    /// Sets how many bytes the head has. False, and no change, if the buffer
    /// has not that many behind its headroom.
    #[must_use = "the buffer may be shorter"]
    pub fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= FRAME - self.headroom();
        if fits {
            self.set_span(self.headroom(), len);
        }
        fits
    }

    /// Moves the start of an empty head to `n` bytes behind the start of its
    /// frame. False, and no change, if the head has data or the frame is
    /// shorter.
    #[must_use = "the buffer may be shorter"]
    pub fn set_headroom(&mut self, n: usize) -> bool {
        let fits = self.is_empty() && n <= FRAME;
        if fits {
            self.set_span(n, 0);
        }
        fits
    }

    /// Appends `frag`, and the fragments it has itself, to the packet.
    pub fn push_frag(&mut self, frag: Self) {
        let (front, back) = (self.chain(), frag.chain());
        let chain = Chain {
            last: back.last,
            bytes: front.bytes + back.bytes + u32::from(frag.head().len),
            count: front.count + back.count + 1,
        };
        // SAFETY: `last` is a slot of this packet, which `self` owns and
        // borrows mutably; no other reference into it exists. It is the end of
        // the chain, so nothing is overwritten.
        unsafe { (*front.last.as_ptr()).frag = Some(frag) };
        self.head_mut().chain = chain;
    }

    /// Detaches the fragments: the first becomes the head of the others.
    pub fn take_frags(&mut self) -> Option<Self> {
        let Chain { last, bytes, count } = self.chain();
        let mut first = self.head_mut().frag.take()?;
        let bytes = bytes - u32::from(first.head().len);
        first.head_mut().chain = Chain {
            last,
            bytes,
            count: count - 1,
        };
        Some(first)
    }

    /// Whether the packet is more than its head.
    #[must_use]
    pub fn has_frags(&self) -> bool {
        self.head().frag.is_some()
    }

    /// Buffers of the packet: the head and the fragments.
    #[must_use]
    pub fn buffers(&self) -> usize {
        1 + self.chain().count as usize
    }

    /// Bytes of memory that the packet holds, as Linux's `skb->truesize`.
    #[must_use]
    pub fn truesize(&self) -> usize {
        self.buffers() * STRIDE
    }

    /// The packet's bytes buffer by buffer: the head's, then each fragment's.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        successors(Some(self), |buf| buf.head().frag.as_ref()).map(Self::data)
    }

    /// Calls `f` with the bytes of each buffer, in order.
    pub fn for_each_chunk_mut(&mut self, mut f: impl FnMut(&mut [u8])) {
        let mut at = Some(self);
        while let Some(buf) = at {
            f(buf.data_mut());
            at = buf.head_mut().frag.as_mut();
        }
    }

    /// Copies from byte `offset` of the packet on, across fragments, until
    /// `out` is full or the packet ends. Returns the number of bytes copied.
    #[inline]
    pub fn copy_to(&self, offset: usize, out: &mut [u8]) -> usize {
        if self.has_frags() {
            return self.copy_chunks_to(offset, out);
        }
        let from = self.data().get(offset..).unwrap_or_default();
        let n = from.len().min(out.len());
        copy(&from[..n], &mut out[..n]);
        n
    }

    #[cold]
    fn copy_chunks_to(&self, offset: usize, out: &mut [u8]) -> usize {
        let mut skip = offset;
        let mut copied = 0;
        for chunk in self.chunks() {
            let from = skip.min(chunk.len());
            let n = (chunk.len() - from).min(out.len() - copied);
            out[copied..copied + n].copy_from_slice(&chunk[from..from + n]);
            skip -= from;
            copied += n;
        }
        copied
    }

    /// Makes the first `n` bytes lie in the head, as Linux's `pskb_may_pull`:
    /// moves what is missing out of the fragments into the tailroom and frees
    /// fragments left empty. False, and no change, if the packet or the
    /// tailroom is too short.
    #[must_use = "it may be impossible"]
    #[inline]
    pub fn linearize(&mut self, n: usize) -> bool {
        n <= self.len() || self.pull_up(n)
    }

    #[cold]
    fn pull_up(&mut self, n: usize) -> bool {
        if n > self.total_len() || n - self.len() > self.tailroom() {
            return false;
        }
        while self.len() < n {
            let Some(mut frag) = self.take_frags() else {
                return false;
            };
            let moved = frag.len().min(n - self.len());
            if let Some(room) = self.put(moved) {
                room.copy_from_slice(&frag.data()[..moved]);
            }
            let left = if frag.len() > moved {
                frag.set_span(frag.headroom() + moved, frag.len() - moved);
                Some(frag)
            } else {
                frag.take_frags()
            };
            if let Some(left) = left {
                self.push_frag(left);
            }
        }
        true
    }

    /// # Safety
    ///
    /// `slot` is carved and linked to nothing, and the caller gives it away.
    pub(super) unsafe fn from_slot(slot: NonNull<Slot<M>>) -> Self {
        Self {
            slot,
            owns: PhantomData,
        }
    }

    /// The slot without its owner. The chain, if there is one, is lost.
    pub(super) fn into_slot(self) -> NonNull<Slot<M>> {
        ManuallyDrop::new(self).slot
    }

    /// Where the slot lies, for a list to remember its end.
    pub(super) fn slot(&self) -> NonNull<Slot<M>> {
        self.slot
    }

    pub(super) fn head(&self) -> &Slot<M> {
        // SAFETY: the slot is carved, and owned by `self`.
        unsafe { self.slot.as_ref() }
    }

    pub(super) fn head_mut(&mut self) -> &mut Slot<M> {
        // SAFETY: as in `head`, and `self` is borrowed mutably.
        unsafe { self.slot.as_mut() }
    }

    /// What is known of the fragments; without any, the chain ends at the head.
    fn chain(&self) -> Chain<M> {
        if self.has_frags() {
            self.head().chain
        } else {
            Chain {
                last: self.slot,
                bytes: 0,
                count: 0,
            }
        }
    }

    fn span(&self) -> (NonNull<u8>, usize) {
        // SAFETY: `set_span` keeps the offset inside the frame.
        let start = unsafe { Slot::frame(self.slot).add(self.headroom()) };
        (start, self.len())
    }

    /// Sets where the data lies. All that moves the data comes through here,
    /// for soundness rests on its bounds.
    fn set_span(&mut self, offset: usize, len: usize) {
        assert!(
            offset <= FRAME && len <= FRAME - offset,
            "data beyond the frame"
        );
        let head = self.head_mut();
        head.offset = offset as u16;
        head.len = len as u16;
    }
}

/// Copies one slice to another of the same length; a short one's first and last
/// words, which may overlap, instead of a call.
#[inline]
fn copy(from: &[u8], to: &mut [u8]) {
    const WORD: usize = 16;

    if from.len() <= 2 * WORD
        && let (Some(first), Some(last)) = (from.first_chunk::<WORD>(), from.last_chunk::<WORD>())
        && from.len() == to.len()
    {
        to[..WORD].copy_from_slice(first);
        let rest = to.len() - WORD;
        to[rest..].copy_from_slice(last);
    } else {
        to.copy_from_slice(from);
    }
}

impl<M> Drop for Buf<M> {
    fn drop(&mut self) {
        let mut rest = self.head_mut().frag.take();
        // SAFETY: `self` owns the slot and goes away; it has no chain left,
        // and a `Buf` in a queue is not dropped (the queue takes it out first).
        unsafe { pool::give_back(self.slot) };
        // One by one, since a long chain would recurse deep.
        while let Some(mut frag) = rest {
            rest = frag.head_mut().frag.take();
        }
    }
}

impl<M> Deref for Buf<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.head().meta
    }
}

impl<M> DerefMut for Buf<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.head_mut().meta
    }
}

impl<M: fmt::Debug> fmt::Debug for Buf<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buf")
            .field("len", &self.len())
            .field("total_len", &self.total_len())
            .field("buffers", &self.buffers())
            .field("meta", &**self)
            .finish()
    }
}
