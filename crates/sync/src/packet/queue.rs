//! A list of packets through the packets themselves.

use std::iter::successors;
use std::mem::take;
use std::ptr::NonNull;

use super::slot::Slot;
use super::{Buf, STRIDE};
use crate::prefetch::fetch;

/// A first-in-first-out queue of packets, linked through their buffers: it
/// allocates nothing, and [`append`](Self::append) splices in constant time.
pub struct Queue<M> {
    head: Option<Buf<M>>,
    /// The last packet's slot, while there is one.
    tail: Option<NonNull<Slot<M>>>,
    len: u32,
    /// Buffers beyond one for each packet.
    frags: u32,
}

// SAFETY: the queue owns its packets alone; `tail` is one of them.
unsafe impl<M: Send> Send for Queue<M> {}
// SAFETY: a shared queue gives nothing but shared access to its packets.
unsafe impl<M: Sync> Sync for Queue<M> {}

impl<M> Queue<M> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            head: None,
            tail: None,
            len: 0,
            frags: 0,
        }
    }

    /// Puts a packet at the end.
    #[inline(always)]
    pub fn push(&mut self, packet: Buf<M>) {
        if packet.has_frags() {
            self.frags += packet.buffers() as u32 - 1;
        }
        let last = packet.slot();
        self.link(packet, last);
        self.len += 1;
    }

    /// Takes the packet at the front.
    pub fn pop(&mut self) -> Option<Buf<M>> {
        let mut packet = self.head.take()?;
        self.head = packet.head_mut().next.take();
        match &self.head {
            // Whoever takes this one will soon take the next, which only its links lead to.
            Some(next) => fetch(next.slot().as_ptr().cast()),
            None => self.tail = None,
        }
        self.len -= 1;
        self.frags -= packet.buffers() as u32 - 1;
        Some(packet)
    }

    /// Takes up to `max` packets at the front, to the end of `out`.
    pub fn pop_many(&mut self, max: usize, out: &mut Vec<Buf<M>>) {
        if self.len() > max {
            out.extend((0..max).map_while(|_| self.pop()));
            return;
        }
        // All of them: nothing left to account for.
        out.reserve(self.len());
        let mut written = 0;
        let mut all = take(self);
        let mut next = all.head.take();
        for place in &mut out.spare_capacity_mut()[..all.len()] {
            let Some(mut packet) = next else { break };
            next = packet.head_mut().next.take();
            if let Some(next) = &next {
                fetch(next.slot().as_ptr().cast());
            }
            place.write(packet);
            written += 1;
        }
        // SAFETY: that many places behind the vector's elements were written.
        unsafe { out.set_len(out.len() + written) };
    }

    /// Moves all packets of `other` to the end, in constant time.
    #[inline(always)]
    pub fn append(&mut self, other: &mut Self) {
        if let (Some(first), Some(last)) = (other.head.take(), other.tail.take()) {
            self.link(first, last);
            self.len += take(&mut other.len);
            self.frags += take(&mut other.frags);
        }
    }

    /// Packets in the queue.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Bytes of memory its packets hold: the sum of [`Buf::truesize`].
    #[must_use]
    pub fn bytes(&self) -> usize {
        (self.len + self.frags) as usize * STRIDE
    }

    /// Whether there is no packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// The packet at the front.
    #[must_use]
    pub fn peek(&self) -> Option<&Buf<M>> {
        self.head.as_ref()
    }

    /// The metadata of the packet at the front. Not the packet: swapped for
    /// another, it would take the rest of the queue with it.
    pub fn peek_mut(&mut self) -> Option<&mut M> {
        self.head.as_deref_mut()
    }

    /// The packets from front to end.
    pub fn iter(&self) -> impl Iterator<Item = &Buf<M>> {
        successors(self.head.as_ref(), |packet| packet.head().next.as_ref())
    }

    /// Hangs the list from `first` to `last` behind the end.
    #[inline(always)]
    fn link(&mut self, first: Buf<M>, last: NonNull<Slot<M>>) {
        match self.tail {
            None => self.head = Some(first),
            Some(tail) => {
                // SAFETY: `tail` is the last packet of this queue, which is
                // borrowed mutably; no reference to it exists.
                let link = unsafe { &raw mut (*tail.as_ptr()).next };
                // SAFETY: as above; and the link is empty, so that nothing is
                // lost with what it held.
                unsafe { link.write(Some(first)) };
            }
        }
        self.tail = Some(last);
    }
}

impl<M> Default for Queue<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> Drop for Queue<M> {
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}
