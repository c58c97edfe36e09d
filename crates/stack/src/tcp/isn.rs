//! TEMP
use crate::demux::flow::Flow;
use crate::siphash::Key;
use crate::time::Instant;
use crate::wire::seq::Seq;
pub(crate) struct FirstNumbers(Key);
impl FirstNumbers {
    pub(crate) fn new(key: Key) -> Self {
        Self(key)
    }
    pub(crate) fn iss(&self, flow: &Flow, now: Instant) -> Seq {
        Seq((flow.hash(self.0) as u32).wrapping_add((now.as_nanos() / 64) as u32))
    }
    pub(crate) fn timestamp_offset(&self, flow: &Flow) -> u32 {
        (flow.hash(self.0) >> 32) as u32
    }
}
