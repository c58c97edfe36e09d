//! TEMP
use crate::demux::flow::Flow;
use crate::socket::{SocketId, lock};
use crate::time::Instant;
use crate::wire::seq::Seq;
use std::sync::Mutex;
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) listener: SocketId,
    pub(crate) irs: Seq,
    pub(crate) iss: Seq,
    pub(crate) mss: u16,
    pub(crate) window_scale: Option<u8>,
    pub(crate) sack: bool,
    pub(crate) timestamps: Option<u32>,
    pub(crate) offset: u32,
    pub(crate) window: u16,
    pub(crate) ecn: bool,
    pub(crate) retransmits: u8,
    pub(crate) sent_at: Instant,
    pub(crate) deadline: Instant,
}
#[derive(Default)]
pub(crate) struct Requests(Mutex<Vec<(Flow, Request)>>);
impl Requests {
    pub(crate) fn new(_key: crate::siphash::Key) -> Self {
        Self::default()
    }
    pub(crate) fn insert(&self, flow: Flow, request: Request) {
        lock(&self.0).push((flow, request));
    }
    pub(crate) fn get(&self, flow: &Flow) -> Option<Request> {
        lock(&self.0)
            .iter()
            .find(|(f, _)| f == flow)
            .map(|(_, r)| *r)
    }
    pub(crate) fn remove(&self, flow: &Flow) -> Option<Request> {
        let mut l = lock(&self.0);
        let at = l.iter().position(|(f, _)| f == flow)?;
        Some(l.swap_remove(at).1)
    }
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        lock(&self.0).iter().map(|(_, r)| r.deadline).min()
    }
}
