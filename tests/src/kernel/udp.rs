//! Datagrams of the kernel's in quantity.

use std::net::{IpAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Host;

/// What a drain has received.
#[derive(Debug, Clone, Copy, Default)]
pub struct Heard {
    /// Datagrams.
    pub datagrams: u64,
    /// The longest time without one.
    pub silence: Duration,
}

/// A connected socket of one host, and the one of the other that it sends to.
pub fn stream(from: &Host, to: &Host, at: impl Into<IpAddr>) -> (UdpSocket, UdpSocket) {
    let sink = to.udp(at, 0);
    (from.udp_to(sink.local_addr().expect("address")), sink)
}

/// Sends datagrams of this size as fast as the kernel takes them, until told to stop. Returns how
/// many it took.
pub fn flood(socket: &UdpSocket, size: usize, stop: &AtomicBool) -> u64 {
    let (payload, mut sent) = (vec![0x55; size], 0);
    while !stop.load(Ordering::Relaxed) {
        // The kernel's queue may be full, or an ICMP error pending.
        sent += u64::from(socket.send(&payload).is_ok());
    }
    sent
}

/// Receives until told to stop.
pub fn drain(socket: &UdpSocket, stop: &AtomicBool) -> Heard {
    let tick = Duration::from_millis(50);
    socket.set_read_timeout(Some(tick)).expect("timeout");
    let (mut heard, mut last, mut buf) = (Heard::default(), Instant::now(), vec![0; 2_048]);
    while !stop.load(Ordering::Relaxed) {
        heard.datagrams += u64::from(socket.recv(&mut buf).is_ok_and(|_| {
            heard.silence = heard.silence.max(last.elapsed());
            last = Instant::now();
            true
        }));
    }
    heard.silence = heard.silence.max(last.elapsed());
    heard
}
