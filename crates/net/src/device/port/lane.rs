//! One direction of a port: a bounded queue between the device and the program.

use std::io;
use std::mem::take;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use super::ring::Ring;

/// A bounded queue with the stack on one side and any number of the program's threads and tasks
/// on the other.
pub(super) struct Lane {
    /// Bytes that may wait; as long as fewer do, one more packet is taken.
    limit: usize,
    state: Mutex<State>,
    /// Told of every change that the program's threads may wait for.
    changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) ring: Ring,
    /// The device, or the last of the program's handles, is gone.
    pub(super) closed: bool,
    /// The device found no room for a packet.
    pub(super) is_blocked: bool,
    /// The worker on whose processor the program ran when it sent last.
    pub(super) sender_cpu: Option<u16>,
    /// The driver of the device.
    device: Option<Waker>,
    /// The program's tasks that wait.
    tasks: Vec<Waker>,
}

impl Lane {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A packet half in the ring can't be left by a panic: copying bytes does not panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_waker(&self, waker: Waker) {
        self.lock().device = Some(waker);
    }

    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let device = state.device.take();
        self.wake_program(state);
        wake(device);
    }

    pub(super) fn has_room(&self, state: &State) -> bool {
        state.ring.size() < self.limit
    }

    /// The device's side has changed something in `state`: the program may go on.
    pub(super) fn wake_program(&self, mut state: MutexGuard<'_, State>) {
        let tasks = take(&mut state.tasks);
        drop(state);
        self.changed.notify_all();
        tasks.into_iter().for_each(Waker::wake);
    }

    /// Does `attempt` for the program; `None` from it means not now.
    pub(super) fn attempt<T>(
        &self,
        attempt: impl FnOnce(&Self, &mut State) -> Option<io::Result<T>>,
    ) -> Option<io::Result<T>> {
        let mut state = self.lock();
        let was_empty = state.ring.is_empty();
        let done = attempt(self, &mut state)?;
        self.wake_device(state, was_empty);
        Some(done)
    }

    /// As [`attempt`](Self::attempt), and waits until it can be done or `deadline` has passed.
    pub(super) fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut attempt: impl FnMut(&Self, &mut State) -> Option<io::Result<T>>,
    ) -> io::Result<T> {
        let mut state = self.lock();
        loop {
            let was_empty = state.ring.is_empty();
            if let Some(done) = attempt(self, &mut state) {
                self.wake_device(state, was_empty);
                return done;
            }
            state = match deadline {
                None => self
                    .changed
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// As [`attempt`](Self::attempt), and has the task woken when it is worth another try.
    pub(super) fn poll<T>(
        &self,
        context: &mut Context<'_>,
        attempt: impl FnOnce(&Self, &mut State) -> Option<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let mut state = self.lock();
        let was_empty = state.ring.is_empty();
        if let Some(done) = attempt(self, &mut state) {
            self.wake_device(state, was_empty);
            return Poll::Ready(done);
        }
        if !state
            .tasks
            .iter()
            .any(|task| task.will_wake(context.waker()))
        {
            state.tasks.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// The program's side has changed something in `state`: the device may go on, if it had
    /// nothing to take, or no room.
    fn wake_device(&self, mut state: MutexGuard<'_, State>, was_empty: bool) {
        let has_filled = was_empty && !state.ring.is_empty();
        let has_drained = state.is_blocked && self.has_room(&state);
        state.is_blocked &= !has_drained;
        let device = state.device.clone().filter(|_| has_filled || has_drained);
        drop(state);
        wake(device);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
