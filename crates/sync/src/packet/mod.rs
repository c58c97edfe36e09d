//! Packet buffers: a pool, a cache of it per core, owning handles and queues.
//!
//! A buffer is one slot of [`STRIDE`] bytes: two cache lines of head (links,
//! offsets and the user's metadata `M`), then the frame. The stride is an odd
//! number of cache lines, because with a power of two every packet's header
//! would fall into the same few sets of the first-level cache.
//!
//! ```
//! use forebay_sync::packet::Pool;
//!
//! #[derive(Clone, Copy, Default)]
//! struct Meta { iif: u32 }
//!
//! let pool = Pool::<Meta>::new(1024);
//! let mut cache = pool.cache();
//! let mut packet = cache.alloc().expect("a fresh pool has buffers");
//! packet.put(4).expect("a fresh buffer has room").copy_from_slice(b"data");
//! packet.push(2).expect("and headroom").copy_from_slice(b"h:");
//! packet.iif = 7;
//! assert_eq!(packet.data(), b"h:data");
//! cache.free(packet);
//! ```

mod buf;
mod pool;
mod queue;
mod slot;
#[cfg(test)]
mod tests;

pub use buf::Buf;
pub use pool::{Cache, Pool};
pub use queue::Queue;

/// Distance from one buffer to the next, in bytes: an odd number of cache lines.
pub const STRIDE: usize = 33 * 64;

/// Bytes kept free in front of a fresh packet, for headers to be pushed.
pub const HEADROOM: usize = 128;

/// Bytes a fresh buffer holds behind its headroom.
pub const CAPACITY: usize = slot::FRAME - HEADROOM;

/// Most bytes that the metadata `M` may have.
pub const META_MAX: usize = 88;
