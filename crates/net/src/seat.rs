//! A place for a worker: what it drives, and what it is told from outside.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use forebay_stack::core::Core;
use forebay_stack::interface::LOOPBACK;
use forebay_sync::static_key::StaticKey;

use crate::driver::{Attached, Driver};
use crate::stack::lock;
use crate::watch::{IdleTime, Sampled, Sampler};

/// One of a stack's places for workers. Whoever has the lock of the driver is the worker.
///
/// On lines of its own: whoever drives it writes to it for every packet.
#[repr(align(128))]
pub(crate) struct Seat {
    /// The seat's number, under which packets are steered to it.
    number: u16,
    driver: Mutex<Driver>,
    /// What the driver is to do before its next turn. The driver may be asleep, with its lock held.
    commands: Mutex<Vec<Command>>,
    /// Wakes the worker, if there is one.
    waker: Mutex<Option<Waker>>,
    idle: IdleTime,
    sampled: Arc<Mutex<Sampled>>,
}

enum Command {
    Attach(Attached),
    Detach(u32),
    SetWaker(Waker),
}

impl Seat {
    pub(crate) fn new(number: u16, core: Core, watched: Arc<StaticKey>) -> Self {
        let sampled = Arc::default();
        let sampler = Sampler::new(watched, Arc::clone(&sampled));
        Self {
            number,
            driver: Mutex::new(Driver::new(number, core, sampler)),
            commands: Mutex::default(),
            waker: Mutex::default(),
            idle: IdleTime::default(),
            sampled,
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    /// How long workers have slept here.
    pub(crate) fn idle(&self) -> &IdleTime {
        &self.idle
    }

    /// What was measured here while somebody watched.
    pub(crate) fn sampled(&self) -> Sampled {
        *lock(&self.sampled)
    }

    /// Whether a worker is here.
    pub(crate) fn is_claimed(&self) -> bool {
        lock(&self.waker).is_some()
    }

    /// The driver; waits as long as a worker has it.
    pub(crate) fn driver(&self) -> MutexGuard<'_, Driver> {
        lock(&self.driver)
    }

    /// Has a queue of a device driven here.
    pub(crate) fn attach(&self, attached: Attached) {
        self.command(Command::Attach(attached));
    }

    /// Has the queues of an interface's device dropped that are driven here.
    pub(crate) fn detach(&self, ifindex: u32) {
        self.command(Command::Detach(ifindex));
    }

    /// Carries out what was asked for since the last turn.
    pub(crate) fn obey(&self, driver: &mut Driver) {
        for command in core::mem::take(&mut *lock(&self.commands)) {
            match command {
                Command::Attach(attached) => driver.attach(attached, lock(&self.waker).clone()),
                Command::Detach(ifindex) => driver.detach(ifindex),
                Command::SetWaker(waker) => driver.set_waker(&waker),
            }
        }
    }

    /// Says whom to wake when there is work. `None` if somebody is there already.
    pub(crate) fn claim(&self, stack: &forebay_stack::Stack, waker: &Waker) -> Option<()> {
        let mut claimed = lock(&self.waker);
        if claimed.is_some() {
            return None;
        }
        *claimed = Some(waker.clone());
        drop(claimed);
        stack.set_backlog_waker(self.number, waker.clone());
        if self.number == 0 {
            stack.set_deadline_waker(waker.clone());
        }
        if self.number == 0
            && let Some(loopback) = stack.transmit_queue(LOOPBACK)
        {
            loopback.set_waker(waker.clone());
        }
        self.command(Command::SetWaker(waker.clone()));
        Some(())
    }

    pub(crate) fn release(&self) {
        *lock(&self.waker) = None;
    }

    fn command(&self, command: Command) {
        lock(&self.commands).push(command);
        if let Some(waker) = lock(&self.waker).as_ref() {
            waker.wake_by_ref();
        }
    }
}

/// All places of a stack.
pub(crate) type Seats = Box<[Arc<Seat>]>;
