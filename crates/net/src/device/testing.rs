//! What the tests of several devices need.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

use super::{Packet, PacketCache, frame};

/// A packet of these bytes.
pub(super) fn packet(cache: &mut PacketCache, bytes: &[u8]) -> Packet {
    frame::copy_in(cache, [bytes].into_iter()).expect("the test's pool is large enough")
}

/// A packet's bytes.
pub(super) fn bytes(packet: &Packet) -> Vec<u8> {
    packet.chunks().collect::<Vec<_>>().concat()
}

/// Counts wake-ups.
#[derive(Default)]
pub(super) struct Wakes(AtomicUsize);

impl Wakes {
    pub(super) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(super) fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    /// Wake-ups since the last call.
    pub(super) fn take(&self) -> usize {
        self.0.swap(0, Ordering::Relaxed)
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
