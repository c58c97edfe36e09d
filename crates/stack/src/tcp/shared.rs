//! What all cores and applications share of TCP.

use core::task::Waker;
use std::sync::Mutex;

use forebay_sync::rcu::Domain;

use super::chunks::ChunkStore;
use super::connection::Wake;
use super::cookies::Cookies;
use super::isn::FirstNumbers;
use super::listeners::Listeners;
use super::ports::Ports;
use super::request::Requests;
use super::socket::{Role, Socket, with_socket};
use super::table::Connections;
use super::table::slots::Slots;
use super::time_wait::Ended;
use super::timers::{Alarm, Timers};
use super::{TcpSocketInfo, TcpState, TcpTimer};
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::siphash::Key;
use crate::socket::{SocketId, lock};
use crate::stack::Stack;
use crate::time::Instant;

/// Every TCP socket and connection of a stack.
pub(crate) struct Tcp {
    pub(super) slots: Slots<Box<Socket>>,
    pub(crate) connections: Connections,
    pub(super) ports: Ports,
    pub(super) listeners: Listeners,
    pub(super) requests: Requests,
    pub(super) timers: Timers,
    pub(super) first_numbers: FirstNumbers,
    pub(super) cookies: Cookies,
    alarm: Alarm,
    /// Woken by an [`Alarm`] that is late.
    sleeper: Mutex<Option<Waker>>,
    pub(crate) memory: ChunkStore,
}

impl Tcp {
    /// None yet. `key` is what strangers must not know.
    pub(crate) fn new(domain: &Domain, key: Key, tcp_mem: [u32; 3]) -> Self {
        Self {
            slots: Slots::new(domain),
            connections: Connections::new(key),
            ports: Ports::new(key),
            listeners: Listeners::new(key),
            requests: Requests::new(key),
            timers: Timers::new(),
            first_numbers: FirstNumbers::new(key),
            cookies: Cookies::new(key),
            alarm: Alarm::default(),
            sleeper: Mutex::default(),
            memory: ChunkStore::new(tcp_mem),
        }
    }
}

/// Deadlines, which any thread may set while the one that sees to them sleeps.
impl Tcp {
    /// Has the socket looked at by then.
    pub(super) fn schedule(&self, id: SocketId, deadline: Instant, now: Instant) {
        self.timers.schedule(id, deadline, now);
        if self.alarm.is_late(deadline)
            && let Some(sleeper) = &*lock(&self.sleeper)
        {
            sleeper.wake_by_ref();
        }
    }

    /// When something may be due.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [
            self.timers.next_deadline(),
            self.requests.next_deadline(),
            self.connections.next_deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}

/// Who calls [`Stack::poll`].
impl Stack {
    /// Has `waker` woken when a deadline is set that is earlier than the one that
    /// [`going_to_sleep`](Self::going_to_sleep) was told.
    pub fn set_deadline_waker(&self, waker: Waker) {
        *lock(&self.tcp.sleeper) = Some(waker);
    }

    /// Whoever sleeps until `deadline` and polls then says so: it may have to be earlier by now.
    pub fn going_to_sleep(&self, deadline: Option<Instant>) -> Option<Instant> {
        self.tcp.alarm.sleep_until(|| {
            let deadlines = [deadline, self.tcp.next_deadline()];
            deadlines.into_iter().flatten().min()
        })
    }

    /// It sleeps no more.
    pub fn woken_up(&self) {
        self.tcp.alarm.is_up();
    }
}

/// Frees a socket that nothing leads to any more.
pub(super) fn free(cx: &mut Context<'_>, id: SocketId) {
    let Some(mut socket) = cx.stack.tcp.slots.close(id) else {
        return;
    };
    socket.leave_everything(cx, id);
    if let Role::Connected(connection) = &mut socket.role {
        connection.free(&mut cx.core.chunks);
    }
}

/// Resets a connection that nobody will accept any more.
pub(super) fn abandon(cx: &mut Context<'_>, id: SocketId) {
    let _ = with_socket(cx, id, |cx, socket| {
        if let Role::Connected(connection) = &mut socket.role {
            connection.abort(cx.now);
            cx.with_hands(|hands| connection.close(hands));
        }
        ((), Wake::BOTH)
    });
}

/// What is shown beside sockets.
impl Tcp {
    pub(super) fn for_each_half_open(&self, mut f: impl FnMut(TcpSocketInfo)) {
        self.requests.for_each(|flow, _| {
            f(TcpSocketInfo::of_flow(TcpState::SynRecv, flow));
        });
    }

    pub(super) fn for_each_time_wait(&self, now: Instant, mut f: impl FnMut(TcpSocketInfo)) {
        self.connections
            .for_each_time_wait(now, |flow, entry, left| {
                let state = match entry.state {
                    Ended::FinWait2 => TcpState::FinWait2,
                    Ended::TimeWait => TcpState::TimeWait,
                };
                let timer = TcpTimer {
                    name: "timewait",
                    left,
                    retransmits: 0,
                };
                f(TcpSocketInfo {
                    timer: Some(timer),
                    ..TcpSocketInfo::of_flow(state, flow)
                });
            });
    }
}

impl TcpSocketInfo {
    /// One that has no socket.
    fn of_flow(state: TcpState, flow: &Flow) -> Self {
        Self {
            id: None,
            state,
            local: flow.local().into(),
            peer: flow.remote().into(),
            device: None,
            recv_queue: 0,
            send_queue: 0,
            receive_memory: (0, 0),
            send_memory: (0, 0),
            timer: None,
            info: None,
        }
    }
}
