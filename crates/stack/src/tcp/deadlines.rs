//! What time does to connections.

use super::connection::Wake;
use super::socket::{Role, Socket, with_socket};
use super::{TcpError, place};
use crate::core::Context;
use crate::counters::Counter;
use crate::time::Instant;

/// Does what is due; says when something will be, at the latest.
pub(crate) fn expire(cx: &mut Context<'_>) -> Option<Instant> {
    let (stack, now) = (cx.stack, cx.now);
    let mut due = core::mem::take(&mut cx.core.due);
    stack.tcp.timers.expire(now, |id| due.push(id));
    for id in due.drain(..) {
        let _ = with_socket(cx, id, |cx, socket| ((), socket.on_deadline(cx)));
    }
    cx.core.due = due;
    super::listen::expire(cx);
    stack.tcp.connections.expire(now, |flow, entry| {
        cx.core.count(Counter::TcpExtTW);
        place::release_port_of(cx, flow.local(), entry);
    });
    stack.tcp.next_deadline()
}

impl Socket {
    fn on_deadline(&mut self, cx: &mut Context<'_>) -> Wake {
        self.armed = None;
        match &mut self.role {
            Role::Connecting(handshake) => match handshake.on_deadline(cx.now) {
                Ok(()) => Wake::default(),
                Err(error) => {
                    cx.core.count(Counter::TcpAttemptFails);
                    cx.core.count(Counter::TcpExtTCPTimeouts);
                    let error = self.soft_error.map_or(error, TcpError::Network);
                    self.fail(error)
                }
            },
            Role::Connected(connection) => {
                let soft_error = self.soft_error;
                let wake = cx.with_hands(|hands| connection.on_deadline(hands));
                if let Some(error) = soft_error {
                    connection.explain(error);
                }
                wake
            }
            Role::Idle | Role::Listener(_) | Role::Failed(_) => Wake::default(),
        }
    }
}
