//! How packets name sockets.

/// A socket, by its slot and the slot's generation.
///
/// A packet may carry an id past the socket's end: slots are used again under a new generation, so
/// whoever follows an id checks the generation under the socket's lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SocketId {
    /// Index of the slot.
    pub(crate) slot: u32,
    /// Odd while the slot is in use.
    pub(crate) generation: core::num::NonZeroU32,
}
