//! Sockets that come and go while packets flow.

use std::sync::Arc;

use forebay::core::Stack;
use forebay::core::socket::SocketId;
use forebay::core::time::Instant;

use super::{Bed, FIRST_PORT, PORTS, connect, open};
use crate::bench::net::Family;
use crate::bench::packet::Flow;

/// Connected sockets beside the bed's own, for another thread to open and close. No packet is for
/// them.
pub(in crate::bench) struct Crowd {
    stack: Arc<Stack>,
    family: Family,
    now: Instant,
    sockets: Vec<SocketId>,
}

impl Bed {
    /// Nobody yet.
    pub(in crate::bench) fn crowd(&self) -> Crowd {
        Crowd {
            stack: Arc::clone(&self.stack),
            family: self.family,
            now: self.now,
            sockets: Vec::new(),
        }
    }
}

impl Crowd {
    /// Opens sockets until there are so many, each with a peer of its own.
    pub(in crate::bench) fn grow(&mut self, sockets: usize) -> anyhow::Result<()> {
        self.sockets.reserve(sockets);
        for nth in self.sockets.len() as u32..sockets as u32 {
            let flow = Flow {
                src: self.family.peer() + 1 + u128::from(nth / PORTS),
                src_port: 53,
                dst: self.family.own(),
                dst_port: (FIRST_PORT + nth % PORTS) as u16,
            };
            let id = open(&self.stack, self.family, &flow)?;
            connect(&self.stack, self.family, self.now, id, &flow)?;
            self.sockets.push(id);
        }
        Ok(())
    }

    /// Closes all of them.
    pub(in crate::bench) fn shrink(&mut self) -> anyhow::Result<()> {
        for id in self.sockets.drain(..) {
            self.stack.udp_close(id)?;
        }
        Ok(())
    }
}
