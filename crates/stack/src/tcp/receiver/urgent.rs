//! Urgent data as Linux and BSD have it: one byte that is kept apart from the stream (RFC 6093 tells
//! how that came about, and why new protocols should not use it).

use crate::wire::seq::Seq;

/// The urgent byte, from when it is announced until the stream is read beyond it.
#[derive(Debug, Default)]
pub(super) struct Urgent {
    mark: Option<Mark>,
    /// The byte stays in the stream (`SO_OOBINLINE`).
    is_inline: bool,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Seq,
    is_taken: bool,
}

/// Why there is no urgent byte to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoUrgent {
    /// None is announced, it was taken, or it is in the stream (`EINVAL`).
    None,
    /// It has not come yet (`EAGAIN`).
    NotYet,
}

impl Urgent {
    pub(super) fn set_inline(&mut self, is_inline: bool) {
        self.is_inline = is_inline;
    }

    /// The byte at `at` is urgent. One that was announced before, and not taken, is part of the
    /// stream then, as on Linux.
    pub(super) fn announce(&mut self, at: Seq, read: Seq, next: Seq) {
        let is_known = self.mark.is_some_and(|mark| !at.is_after(mark.at));
        if !is_known && !at.is_before(read) && !at.is_before(next) {
            self.mark = Some(Mark {
                at,
                is_taken: false,
            });
        }
    }

    /// Whether nothing is urgent.
    #[inline]
    pub(super) fn is_none(&self) -> bool {
        self.mark.is_none()
    }

    /// Whether the byte at `read`, the next one to be read, is the urgent one (`SIOCATMARK`).
    pub(super) fn is_at(&self, read: Seq) -> bool {
        self.mark.is_some_and(|mark| mark.at == read)
    }

    /// Where reading begins that has come to `read`: it leaves out the urgent byte.
    pub(super) fn begin(&self, read: Seq, next: Seq) -> Seq {
        match self.is_at(read) && !self.is_inline && read != next {
            true => read + 1,
            false => read,
        }
    }

    /// Where reading ends that begins at `from`: at the urgent byte, if there is something before.
    pub(super) fn end(&self, from: Seq, next: Seq) -> Seq {
        match self.mark {
            Some(mark) if mark.at.is_after(from) => mark.at.min(next),
            _ => next,
        }
    }

    /// Where the byte that may be taken is.
    pub(super) fn byte_at(&self, next: Seq) -> Result<Seq, NoUrgent> {
        let mark = self.mark.ok_or(NoUrgent::None)?;
        if mark.is_taken || self.is_inline {
            return Err(NoUrgent::None);
        }
        match mark.at.is_before(next) {
            true => Ok(mark.at),
            false => Err(NoUrgent::NotYet),
        }
    }

    /// Whether an urgent byte is there that reads leave out.
    pub(super) fn is_hidden(&self, next: Seq) -> bool {
        let is_there = |mark: Mark| mark.at.is_before(next);
        !self.is_inline && self.mark.is_some_and(is_there)
    }

    /// Whether an urgent byte is there that was not taken (`POLLPRI`).
    pub(super) fn is_pending(&self, next: Seq) -> bool {
        let is_there = |mark: Mark| !mark.is_taken && mark.at.is_before(next);
        self.mark.is_some_and(is_there)
    }

    pub(super) fn take(&mut self) {
        if let Some(mark) = &mut self.mark {
            mark.is_taken = true;
        }
    }

    /// The stream was read up to `read`.
    #[inline]
    pub(super) fn on_read(&mut self, read: Seq) {
        if self.mark.is_some_and(|mark| mark.at.is_before(read)) {
            self.mark = None;
        }
    }
}
