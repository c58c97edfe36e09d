//! Where packets lie: slots inside 2 MiB chunks.
//!
//! A chunk is aligned to its size, so that the address of a slot leads to the
//! chunk's header and from there to the pool. A buffer therefore carries no
//! pointer to its pool and no reference count.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;

use super::pool::Shared;
use super::{Buf, META_MAX, STRIDE};

/// Bytes from the start of a slot to its frame: two cache lines.
pub(super) const HEAD: usize = 128;

/// Bytes of a slot's frame: headroom, data and tailroom together.
pub(super) const FRAME: usize = STRIDE - HEAD;

const CHUNK: usize = 2 << 20;
const CHUNK_LAYOUT: Layout = match Layout::from_size_align(CHUNK, CHUNK) {
    Ok(layout) => layout,
    Err(_) => panic!("a power of two is an alignment"),
};

/// The head of a slot. The frame follows at [`HEAD`] bytes; it is no field, so
/// that a reference to the head claims nothing of the frame.
///
/// The order matters: with 24 bytes in front, the first 40 bytes of `meta`
/// share the first cache line with the links; the tallies of a fragment chain,
/// which few packets have, come last.
#[repr(C)]
pub(super) struct Slot<M> {
    /// The packet behind this one in a `Queue`.
    pub(super) next: Option<Buf<M>>,
    /// The next fragment of the same packet.
    pub(super) frag: Option<Buf<M>>,
    /// Where the data starts in the frame.
    pub(super) offset: u16,
    /// Bytes of data; `offset + len <= FRAME` always.
    pub(super) len: u16,
    /// The pool's id, for a cache to know its own without a look at the chunk.
    pub(super) pool: u32,
    pub(super) meta: M,
    /// Meaningful only in a packet's head, and only while `frag` is some.
    pub(super) chain: Chain<M>,
}

/// What a packet's head knows of its fragments.
pub(super) struct Chain<M> {
    pub(super) last: NonNull<Slot<M>>,
    pub(super) bytes: u32,
    pub(super) count: u32,
}

impl<M> Clone for Chain<M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Chain<M> {}

impl<M> Slot<M> {
    /// Evaluated for each `M` that a pool is made of.
    pub(super) const FITS: () = {
        assert!(size_of::<M>() <= META_MAX, "the metadata is too large");
        assert!(
            align_of::<M>() <= 8,
            "the metadata's alignment is too large"
        );
        assert!(size_of::<Self>() <= HEAD);
        assert!(FRAME <= u16::MAX as usize);
    };

    /// The first byte of a slot's frame.
    pub(super) fn frame(slot: NonNull<Self>) -> NonNull<u8> {
        // SAFETY: every slot is followed by its frame inside the same chunk,
        // and slot pointers keep the provenance of the whole chunk.
        unsafe { slot.cast::<u8>().add(HEAD) }
    }
}

/// One 2 MiB piece of memory, freed on drop.
pub(super) struct Chunk<M> {
    header: NonNull<ChunkHeader<M>>,
}

/// A cache line of its own, so that slots stay aligned to lines.
#[repr(C, align(64))]
struct ChunkHeader<M> {
    shared: *const Shared<M>,
}

impl<M> Chunk<M> {
    pub(super) const SLOTS: usize = (CHUNK - size_of::<ChunkHeader<M>>()) / STRIDE;

    /// Allocates a chunk of the pool at `shared`; `None` if memory is out.
    pub(super) fn new(shared: *const Shared<M>) -> Option<Self> {
        // SAFETY: the layout's size is not zero.
        let memory = unsafe { alloc(CHUNK_LAYOUT) };
        let header = NonNull::new(memory)?.cast::<ChunkHeader<M>>();
        // SAFETY: the memory is ours, aligned to 2 MiB and large enough.
        unsafe { header.write(ChunkHeader { shared }) };
        Some(Self { header })
    }

    /// Makes slot `index` ready to be handed out for the first time: this is
    /// where its memory is first touched.
    ///
    /// # Safety
    ///
    /// `index < SLOTS`, and nobody uses that slot.
    pub(super) unsafe fn carve(&self, index: usize, pool: u32) -> NonNull<Slot<M>>
    where
        M: Default,
    {
        let at = size_of::<ChunkHeader<M>>() + index * STRIDE;
        // SAFETY: the caller keeps index < SLOTS, so all of the slot lies
        // inside the chunk. The pointer is derived from the chunk's own and
        // keeps its provenance, which `owner` needs.
        let slot = unsafe { self.header.cast::<u8>().add(at) }.cast::<Slot<M>>();
        let head = Slot {
            next: None,
            frag: None,
            offset: 0,
            len: 0,
            pool,
            meta: M::default(),
            chain: Chain {
                last: slot,
                bytes: 0,
                count: 0,
            },
        };
        // SAFETY: in bounds as above, unused as the caller says, and aligned:
        // header and stride are whole cache lines, `FITS` bounds the alignment.
        unsafe { slot.write(head) };
        // SAFETY: the frame lies in bounds behind the head. Stale heap bytes
        // must never show through a buffer, so they are zeroed once here.
        unsafe { Slot::frame(slot).write_bytes(0, FRAME) };
        slot
    }

    /// The pool that a slot belongs to.
    ///
    /// # Safety
    ///
    /// `slot` came from [`carve`](Self::carve) of a chunk that still lives.
    pub(super) unsafe fn owner(slot: NonNull<Slot<M>>) -> *const Shared<M> {
        let header = slot
            .as_ptr()
            .map_addr(|addr| addr & !(CHUNK - 1))
            .cast::<ChunkHeader<M>>();
        // SAFETY: chunks are aligned to their size, so this is the header of
        // the slot's chunk; it was written in `new` and never changes.
        unsafe { (*header).shared }
    }
}

impl<M> Drop for Chunk<M> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout. The pool drops its
        // chunks only when no buffer is out (see `Shared`).
        unsafe { dealloc(self.header.as_ptr().cast(), CHUNK_LAYOUT) };
    }
}
