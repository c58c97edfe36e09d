//! A TUN device whose queues come later: the stack is complete before the command runs that makes
//! its network.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use forebay::device::tun::{Tun, TunDevice};
use forebay::device::{Device, DeviceStats, Instant, Offload, PacketCache, PacketQueue};

/// The device. Until it is plugged in, nothing comes, and what is sent waits.
pub(super) struct LateTun {
    mtu: u32,
    offload: bool,
    device: Option<TunDevice>,
    slot: Arc<Slot>,
}

/// What the queues are plugged into.
#[derive(Clone)]
pub(super) struct Plug(Arc<Slot>);

type Slot = Mutex<Waiting>;

#[derive(Default)]
struct Waiting {
    tun: Option<Tun>,
    /// Of who drives the device.
    waker: Option<Waker>,
}

impl LateTun {
    pub(super) fn new(mtu: u32, offload: bool) -> (Self, Plug) {
        let slot = Arc::<Slot>::default();
        let plug = Plug(Arc::clone(&slot));
        let device = Self {
            mtu,
            offload,
            device: None,
            slot,
        };
        (device, plug)
    }

    fn device(&mut self) -> Option<&mut TunDevice> {
        if self.device.is_none() {
            let tun = lock(&self.slot).tun.take();
            self.device = tun.map(|tun| TunDevice::new(tun, self.mtu, self.offload));
        }
        self.device.as_mut()
    }
}

impl Plug {
    pub(super) fn insert(&self, tun: Tun) {
        let mut waiting = lock(&self.0);
        waiting.tun = Some(tun);
        let waker = waiting.waker.take();
        drop(waiting);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Device for LateTun {
    fn mtu(&self) -> u32 {
        self.mtu
    }

    /// What a [`TunDevice`] opened like this one will have at least: whether the kernel segments UDP
    /// it will tell when there is one.
    fn offload(&self) -> Offload {
        Offload {
            checksum: self.offload,
            tcp_segmentation: self.offload,
            udp_segmentation: false,
        }
    }

    fn receive(
        &mut self,
        now: Instant,
        cache: &mut PacketCache,
        out: &mut PacketQueue,
        budget: usize,
    ) -> io::Result<usize> {
        match self.device() {
            Some(device) => device.receive(now, cache, out, budget),
            None => Ok(0),
        }
    }

    fn transmit(
        &mut self,
        now: Instant,
        packets: &mut PacketQueue,
        cache: &mut PacketCache,
    ) -> io::Result<()> {
        match self.device() {
            Some(device) => device.transmit(now, packets, cache),
            None => Ok(()),
        }
    }

    fn next_event(&self) -> Option<Instant> {
        self.device.as_ref().and_then(Device::next_event)
    }

    fn fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        if let Some(device) = &self.device {
            device.fds(fds);
        }
    }

    fn set_waker(&mut self, waker: Waker) {
        lock(&self.slot).waker = Some(waker);
    }

    fn stats(&self) -> DeviceStats {
        self.device.as_ref().map(Device::stats).unwrap_or_default()
    }
}

fn lock(slot: &Slot) -> MutexGuard<'_, Waiting> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}
