//! Established TCP connections of the kernel's.

mod shelf;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use forebay::tcp_repair;

use super::refusal::{Refusal, Step};
use crate::bench::net::{Family, Prefixes};
use crate::random::Random;
use shelf::{FULL, Shelf};

/// Local ports, from this one on; more connections than ports share them.
const FIRST_PORT: usize = 1_024;
const PORTS: usize = 60_000;

/// Connections of one family between our address and others anywhere; nothing is ever sent by them.
/// They end when this is dropped.
pub(super) struct Connections {
    family: Family,
    open: usize,
    shelf: Shelf,
    random: Random,
}

impl Connections {
    pub(super) fn none(family: Family) -> Self {
        Self {
            family,
            open: 0,
            shelf: Shelf::new(),
            random: Random::new(3),
        }
    }

    /// Opens connections until there are so many.
    pub(super) fn grow(&mut self, connections: usize) -> Result<(), Refusal> {
        let strangers = Prefixes::new(self.family);
        while self.open < connections {
            let some = FULL.min(connections - self.open);
            let opened: io::Result<Vec<_>> = (0..some).map(|_| self.open_one(&strangers)).collect();
            let put = opened.and_then(|opened| self.shelf.put(&opened));
            put.map_err(Step::Connect(self.family).refused())?;
        }
        Ok(())
    }

    fn open_one(&mut self, strangers: &Prefixes) -> io::Result<OwnedFd> {
        let port = FIRST_PORT + self.open % PORTS;
        let peer = strangers.address(&mut self.random);
        let peer_port = FIRST_PORT + self.random.below(PORTS);
        self.open += 1;
        tcp_repair::connection(
            self.socket_address(self.family.own(), port),
            self.socket_address(peer, peer_port),
        )
    }

    fn socket_address(&self, address: u128, port: usize) -> SocketAddr {
        SocketAddr::new(self.family.address(address), port as u16)
    }
}
