//! What follows when something has happened to a connection: its segments leave, it leaves the
//! tables when it is over, its deadline is set, and who waits for it is woken.

use core::net::IpAddr;
use core::task::Waker;
use core::time::Duration;

use super::connection::segment::Outgoing;
use super::connection::{Connection, State, Wake};
use super::output::Path;
use super::place::release_port_of;
use super::socket::{Role, Socket};
use super::terms;
use super::time_wait::{Ended, OldClock, TIME_WAIT_LEN, TimeWait};
use crate::core::Context;
use crate::counters::Counter;
use crate::family::{Family, V4, V6};
use crate::socket::SocketId;
use crate::sysctl::Knob;
use crate::transmit;

/// What is to be done when the socket's lock is free again.
#[must_use = "somebody may wait"]
pub(super) struct Aftermath {
    wakers: [Vec<Waker>; 2],
    is_over: bool,
}

/// Does what can be done under the socket's lock.
pub(super) fn of(cx: &mut Context<'_>, id: SocketId, socket: &mut Socket, wake: Wake) -> Aftermath {
    match socket.peer {
        Some((IpAddr::V4(_), _)) => flush::<V4>(cx, socket),
        Some((IpAddr::V6(_), _)) => flush::<V6>(cx, socket),
        None => {}
    }
    leave_table(cx, id, socket);
    if let Some(deadline) = socket.deadline()
        && socket.armed.is_none_or(|armed| deadline < armed)
    {
        socket.armed = Some(deadline);
        cx.stack.tcp.schedule(id, deadline, cx.now);
    }
    Aftermath {
        wakers: socket.take_wakers(wake),
        is_over: socket.is_over(),
    }
}

impl Aftermath {
    pub(super) fn carry_out(self, cx: &mut Context<'_>, id: SocketId) {
        if self.is_over {
            super::shared::free(cx, id);
        }
        for waker in self.wakers.into_iter().flatten() {
            waker.wake();
        }
    }
}

/// Sends all that may leave now.
fn flush<F: Family>(cx: &mut Context<'_>, socket: &mut Socket) {
    let mut path = None;
    while let Some(outgoing) = cx.with_hands(|hands| socket.transmit(hands)) {
        let path = path.get_or_insert_with(|| socket.path::<F>(cx));
        // Where there is no way, it is as if it were lost on it.
        if let Some(path) = path {
            socket.send(cx, path, &outgoing);
        }
    }
}

impl Socket {
    /// The addresses, the peer's first.
    pub(super) fn ends<F: Family>(&self) -> Option<(F::Addr, F::Addr)> {
        Some((F::from_ip(self.peer?.0)?, F::from_ip(self.local.0)?))
    }

    /// The way to the peer as it is now.
    pub(super) fn path<'g, F: Family>(&mut self, cx: &mut Context<'g>) -> Option<Path<'g, F>> {
        let (dst, src) = self.ends::<F>()?;
        let device = (self.settings.device != 0).then_some(self.settings.device);
        let route = transmit::route_output::<F>(cx, dst, Some(src), device).ok()?;
        self.note_path_mtu::<F>(cx, route.mtu);
        Some(Path {
            route,
            src_port: self.local.1,
            dst_port: self.peer?.1,
            ttl: self.settings.ttl,
            tos: self.settings.tos,
        })
    }

    /// Segments fit the path as it is known now.
    pub(super) fn note_path_mtu<F: Family>(&mut self, cx: &mut Context<'_>, mtu: u32) {
        if self.path_mtu == mtu {
            return;
        }
        self.path_mtu = mtu;
        if let Role::Connected(connection) = &mut self.role {
            let payload = terms::payload(mtu, F::HEADER_LEN);
            cx.with_hands(|hands| connection.set_payload(payload, hands));
        }
    }

    fn send<F: Family>(&self, cx: &mut Context<'_>, path: &Path<'_, F>, outgoing: &Outgoing) {
        // What can't be sent is as good as lost.
        let _ = match &self.role {
            Role::Connected(connection) if outgoing.len > 0 => {
                let payload = connection.sender().slices(outgoing.seq, outgoing.len);
                path.send(cx, outgoing, payload)
            }
            _ => path.send(cx, outgoing, []),
        };
    }
}

/// A connection that is over is found no more, or what is left of it instead.
fn leave_table(cx: &mut Context<'_>, id: SocketId, socket: &mut Socket) {
    if !socket.is_in_table {
        return;
    }
    let remains = match &mut socket.role {
        Role::Connected(connection) => match connection.state() {
            State::TimeWait => Some((Ended::TimeWait, TIME_WAIT_LEN)),
            State::FinWait2 if connection.is_orphan() => {
                Some((Ended::FinWait2, connection.fin_timeout()))
            }
            State::Closed => None,
            _ => return,
        },
        Role::Failed(_) => None,
        Role::Idle | Role::Listener(_) | Role::Connecting(_) => return,
    };
    socket.is_in_table = false;
    if let Some((state, stays)) = remains
        && remain(cx, id, socket, state, stays)
    {
        return;
    }
    cx.stack.tcp.connections.remove(id);
}

/// Leaves what is left of a connection in its place. False if there are too many such.
fn remain(
    cx: &mut Context<'_>,
    id: SocketId,
    socket: &mut Socket,
    state: Ended,
    stays: Duration,
) -> bool {
    let Role::Connected(connection) = &mut socket.role else {
        return false;
    };
    connection.end();
    let mut entry = connection.remains(state);
    entry.tos = socket.settings.tos;
    entry.device = socket.settings.device;
    socket.bequeath_port(&mut entry);
    let max = cx.view.sysctls.get(Knob::TcpMaxTwBuckets);
    let max = usize::try_from(max).unwrap_or(0);
    let until = cx.now + stays;
    let has_place = cx
        .stack
        .tcp
        .connections
        .to_time_wait(id, &entry, until, max);
    if !has_place {
        cx.core.count(Counter::TcpExtTCPTimeWaitOverflow);
        release_port_of(cx, socket.local, &entry);
    }
    has_place
}

impl Connection {
    fn remains(&self, state: Ended) -> TimeWait {
        let receiver = self.receiver();
        let (rcv_nxt, snd_nxt) = (receiver.next(), self.sender().next());
        let clock = self.clock().map(|clock| OldClock {
            recent: clock.recent(),
            recent_at: super::time_wait::seconds(clock.recent_at()),
            offset: clock.offset(),
        });
        let mut entry = TimeWait::new(state, rcv_nxt, snd_nxt, receiver.window());
        entry.rcv_wscale = self.scales().map_or(0, |(_, ours)| ours);
        entry.clock = clock;
        entry
    }
}
