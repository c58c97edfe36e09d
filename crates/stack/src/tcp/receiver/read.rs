//! What the application reads: the stream, and the urgent byte.

use std::io::IoSliceMut;

use super::{NoUrgent, Receiver};
use crate::tcp::chunks::Chunks;
use crate::time::Instant;
use crate::wire::seq::Seq;

/// Reading.
impl Receiver {
    /// Bytes that a read gets, up to an urgent one or beyond it.
    #[inline]
    pub(crate) fn readable(&self) -> usize {
        let hidden = match self.urgent.is_none() {
            true => 0,
            false => self.hidden(),
        };
        (self.buffer.len() - hidden) as usize
    }

    /// Whether the FIN has come, and everything before it. That may still have to be read.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Reads into the buffers, or only looks; returns how many bytes. It stops at an urgent byte,
    /// and leaves that out.
    #[inline]
    pub(crate) fn read(
        &mut self,
        now: Instant,
        chunks: &mut Chunks,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> usize {
        let (from, end) = self.stretch();
        let mut at = from;
        for buf in bufs {
            let mut room = &mut buf[..];
            while !room.is_empty() && at != end {
                let bytes = self.buffer.bytes_from(at);
                let len = bytes.len().min((end - at) as usize).min(room.len());
                let (now, later) = room.split_at_mut(len);
                now.copy_from_slice(&bytes[..len]);
                room = later;
                at += len as u32;
            }
        }
        if !peek && at != from {
            self.advance(now, chunks, at);
        }
        (at - from) as usize
    }

    /// What a read would get first, uncopied; empty if there is nothing.
    #[inline]
    pub(crate) fn fill_buf(&self) -> &[u8] {
        let (from, end) = self.stretch();
        let bytes = self.buffer.bytes_from(from);
        &bytes[..bytes.len().min((end - from) as usize)]
    }

    /// So many bytes of [`fill_buf`](Self::fill_buf) were read.
    #[inline]
    pub(crate) fn consume(&mut self, now: Instant, chunks: &mut Chunks, len: usize) {
        let (from, end) = self.stretch();
        let len = len.min((end - from) as usize);
        if len > 0 {
            self.advance(now, chunks, from + len as u32);
        }
    }

    /// Throws away all that is in order.
    pub(crate) fn discard(&mut self, now: Instant, chunks: &mut Chunks) {
        self.advance(now, chunks, self.buffer.next());
    }

    /// What a read gets.
    #[inline]
    fn stretch(&self) -> (Seq, Seq) {
        let (read, next) = (self.buffer.read_at(), self.buffer.next());
        if self.urgent.is_none() {
            return (read, next);
        }
        let from = self.urgent.begin(read, next);
        (from, self.urgent.end(from, next))
    }

    #[inline]
    fn advance(&mut self, now: Instant, chunks: &mut Chunks, read: Seq) {
        if read == self.buffer.read_at() {
            return;
        }
        self.buffer.advance(chunks, read);
        self.urgent.on_read(read);
        self.window.note_pressure(chunks.under_pressure());
        self.window.on_read(now, read);
        let next = self.next();
        self.acks.on_read(next - self.acked, self.buffer.len() == 0);
        if !self.is_finished {
            let segment = self.acks.segment();
            if self.window.is_worth_telling(next, read, segment) {
                self.acks.request();
            }
        }
    }
}

/// Urgent data.
impl Receiver {
    /// A segment says that the stream is urgent up to `pointer` behind `seq`: the byte before that
    /// is the urgent one, or with `tcp_stdurg` that byte.
    pub(crate) fn set_urgent(&mut self, seq: Seq, pointer: u16, stdurg: bool) {
        let pointer = match stdurg {
            true => pointer,
            false => pointer.saturating_sub(1),
        };
        let (read, next) = (self.buffer.read_at(), self.buffer.next());
        self.urgent.announce(seq + pointer.into(), read, next);
    }

    /// `SO_OOBINLINE`.
    pub(crate) fn set_oob_inline(&mut self, is_inline: bool) {
        self.urgent.set_inline(is_inline);
    }

    /// Whether the next byte of the stream is the urgent one (`SIOCATMARK`).
    pub(crate) fn is_at_mark(&self) -> bool {
        self.urgent.is_at(self.buffer.read_at())
    }

    /// Whether an urgent byte waits (`POLLPRI`).
    pub(crate) fn has_urgent(&self) -> bool {
        self.urgent.is_pending(self.buffer.next())
    }

    /// Takes the urgent byte, or looks at it (`MSG_OOB`).
    ///
    /// # Errors
    ///
    /// [`NoUrgent`], if there is none.
    pub(crate) fn take_urgent(&mut self, peek: bool) -> Result<u8, NoUrgent> {
        let at = self.urgent.byte_at(self.buffer.next())?;
        let byte = self.buffer.bytes_from(at).first().copied();
        if !peek {
            self.urgent.take();
        }
        byte.ok_or(NoUrgent::None)
    }

    /// Bytes in order that reads leave out.
    fn hidden(&self) -> u32 {
        u32::from(self.urgent.is_hidden(self.buffer.next()))
    }
}
