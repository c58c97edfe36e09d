//! What a segment carries, and what becomes of it.

use super::Pieces;
use crate::wire::seq::Seq;

/// What a segment carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Text<'a> {
    pub(crate) seq: Seq,
    pub(crate) payload: Pieces<'a>,
    /// Bytes of each segment, where several were joined; else of the payload.
    pub(crate) segment_size: u32,
    pub(crate) fin: bool,
    pub(crate) psh: bool,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Arrival {
    /// Bytes that can be read now and could not before.
    pub(crate) bytes: u32,
    /// The FIN is in order now, and was not before.
    pub(crate) finished: bool,
    pub(crate) kind: ArrivalKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ArrivalKind {
    InOrder,
    /// Ahead of bytes that are missing.
    OutOfOrder,
    /// All of it had come before.
    Old,
    /// It is beyond the window, or there is no memory for it.
    NoRoom,
}
