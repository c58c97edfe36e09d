//! One turn of the crank: devices in, stack, devices out.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;

use forebay_stack::core::Core;
use forebay_stack::interface::TransmitQueue;
use forebay_stack::packet::PacketQueue;
use forebay_stack::steer::RxId;
use forebay_stack::time::Instant;
use forebay_sync::cache_line::CacheLine;

use crate::device::{Device, DeviceStats};
use crate::watch::Sampler;

/// Frames taken from one queue of a device before the others have their turn (Linux's NAPI weight).
const BUDGET: usize = 64;

/// A device that the driver owns, or a queue of one, and where it belongs.
pub(crate) struct Attached {
    pub(crate) rx: RxId,
    pub(crate) device: Box<dyn Device>,
    /// What waits for the device in the stack.
    pub(crate) waiting: Arc<TransmitQueue>,
    /// What the device could not take yet.
    pub(crate) unsent: PacketQueue,
    pub(crate) status: Arc<SharedStatus>,
}

/// What others may know of a device while the driver has it.
#[derive(Debug, Clone, Default)]
pub struct DeviceStatus {
    /// Counts as of the driver's last turn.
    pub stats: DeviceStats,
    /// Why the device was given up, if it was: its interface is down.
    pub error: Option<String>,
}

/// Written at every turn, each by its own driver.
pub(crate) type SharedStatus = CacheLine<Mutex<DeviceStatus>>;

impl DeviceStatus {
    /// Two queues of a device together.
    pub(crate) fn with(mut self, other: Self) -> Self {
        self.stats += other.stats;
        self.error = self.error.or(other.error);
        self
    }
}

/// What drives the devices: one core, and the devices themselves.
pub(crate) struct Driver {
    number: u16,
    core: Core,
    devices: Vec<Attached>,
    /// The device that is looked at first next time.
    first: usize,
    received: PacketQueue,
    sampler: Sampler,
}

/// What a turn found.
pub(crate) struct Turn {
    /// There may be more to do at once.
    pub(crate) busy: bool,
    /// When the next turn is due at the latest.
    pub(crate) deadline: Option<Instant>,
    /// Readers or other workers could not keep up.
    pub(crate) has_overrun: bool,
}

impl Driver {
    pub(crate) fn new(number: u16, core: Core, sampler: Sampler) -> Self {
        Self {
            number,
            core,
            devices: Vec::new(),
            first: 0,
            received: PacketQueue::new(),
            sampler,
        }
    }

    pub(crate) fn attach(&mut self, mut attached: Attached, waker: Option<Waker>) {
        if let Some(waker) = waker {
            attached.set_waker(&waker);
        }
        self.devices.push(attached);
    }

    pub(crate) fn detach(&mut self, ifindex: u32) {
        self.devices
            .retain(|attached| attached.rx.ifindex != ifindex);
    }

    pub(crate) fn set_waker(&mut self, waker: &Waker) {
        for attached in &mut self.devices {
            attached.set_waker(waker);
        }
    }

    /// Descriptors to sleep on.
    pub(crate) fn fds<'a>(&'a self, fds: &mut Vec<BorrowedFd<'a>>) {
        for attached in &self.devices {
            attached.device.fds(fds);
        }
    }

    /// Receives from every device, lets the stack work, sends what came of it.
    pub(crate) fn turn(&mut self, stack: &forebay_stack::Stack, now: Instant) -> Turn {
        let mut gone = Vec::new();
        let overruns = self.core.overruns();
        let mut busy = self.receive(stack, now, &mut gone);
        let has_overrun = self.core.overruns() != overruns;
        // What belongs to no device is the first driver's: the loopback, and what is due.
        let mut deadline = match self.number {
            0 => stack.poll(&mut self.core, now),
            _ => None,
        };
        busy |= deadline.is_some_and(|deadline| deadline <= now);
        for attached in &mut self.devices {
            match attached.transmit(&mut self.core, now) {
                Ok(sent) => busy |= sent,
                Err(error) => gone.push((attached.rx.ifindex, error)),
            }
            deadline = deadline
                .into_iter()
                .chain(attached.device.next_event())
                .min();
        }
        if busy {
            self.publish_status();
        }
        for (ifindex, error) in gone {
            self.give_up(stack, ifindex, &error);
        }
        Turn {
            busy,
            deadline,
            has_overrun,
        }
    }

    /// Takes packets from the devices, and what other cores have left, up to `netdev_budget`
    /// together. Says whether there may be more.
    fn receive(
        &mut self,
        stack: &forebay_stack::Stack,
        now: Instant,
        gone: &mut Vec<(u32, io::Error)>,
    ) -> bool {
        let mut busy = false;
        let mut timer = self.sampler.begin(stack, now);
        let mut budget = stack.netdev_budget(&self.core);
        // Each device is the first in turn, so that none goes hungry when the budget is small.
        let devices = self.devices.len();
        self.first = (self.first + 1) % devices.max(1);
        let (later, sooner) = self.devices.split_at_mut(self.first.min(devices));
        for attached in sooner.iter_mut().chain(later) {
            let most = BUDGET.min(budget);
            let cache = self.core.cache();
            let received = attached
                .device
                .receive(now, cache, &mut self.received, most);
            budget -= self.received.len().min(budget);
            let (core, from, packets) = (&mut self.core, attached.rx, &mut self.received);
            match &mut timer {
                None => stack.receive_from(core, now, from, packets),
                Some(timer) => stack.receive_from_observed(core, now, from, packets, timer),
            }
            match received {
                Ok(frames) => busy |= frames > 0,
                Err(error) => gone.push((attached.rx.ifindex, error)),
            }
        }
        // However much the devices had, others wait for what they have left here.
        let (core, budget) = (&mut self.core, budget.max(BUDGET));
        match timer {
            None => busy | stack.receive_backlog(core, now, budget),
            Some(mut timer) => {
                busy |= stack.receive_backlog_observed(core, now, budget, &mut timer);
                self.sampler.end(timer, now);
                busy
            }
        }
    }

    fn publish_status(&self) {
        for attached in &self.devices {
            let mut status = attached
                .status
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            status.stats = attached.device.stats();
        }
    }

    /// A device that failed for good takes its interface down and leaves the others alone.
    fn give_up(&mut self, stack: &forebay_stack::Stack, ifindex: u32, error: &io::Error) {
        let Some(index) = self.devices.iter().position(|a| a.rx.ifindex == ifindex) else {
            return;
        };
        let attached = self.devices.swap_remove(index);
        let mut status = attached
            .status
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *status = DeviceStatus {
            stats: attached.device.stats(),
            error: Some(error.to_string()),
        };
        // The interface may have been removed meanwhile.
        let _ = stack.set_interface_up(ifindex, false);
    }
}

impl Attached {
    /// Packets from either side wake the driver.
    fn set_waker(&mut self, waker: &Waker) {
        self.device.set_waker(waker.clone());
        self.waiting.set_waker(waker.clone());
    }

    /// Offers the device what it left last time, then what has come since. Says whether the device
    /// took anything.
    fn transmit(&mut self, core: &mut Core, now: Instant) -> io::Result<bool> {
        if self.unsent.is_empty() {
            self.waiting.take(&mut self.unsent);
        }
        let before = self.unsent.len();
        self.device.transmit(now, &mut self.unsent, core.cache())?;
        Ok(self.unsent.len() < before)
    }
}
