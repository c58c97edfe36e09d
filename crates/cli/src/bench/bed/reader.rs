//! The application of a bench: it reads what its sockets received, and looks at each datagram.

use std::iter;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;

use anyhow::{bail, ensure};
use forebay::core::Stack;
use forebay::core::socket::SocketId;
use forebay::core::udp::RecvSlot;

use super::chunk::BATCH;
use super::receive::PAYLOAD;
use crate::bench::packet;

/// Bytes of one of the application's buffers.
const ROOM: usize = 64;

/// How an application reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::bench) enum Call {
    /// A datagram a call.
    Single,
    /// As many as there are and as are wanted: recvmmsg(2).
    Batch,
}

/// Which sockets to ask for the datagrams of a batch, and what has to come. A poller would tell a
/// program the first.
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// A socket, and how many datagrams are for it.
    turns: Vec<(SocketId, usize)>,
    /// The datagrams' numbers in the order in which they are read.
    sequences: Vec<u32>,
}

impl Plan {
    /// For datagrams whose numbers go up from `first` on, each for a socket.
    pub(super) fn new(call: Call, sockets: &[SocketId], first: u32) -> Self {
        let mut datagrams: Vec<(SocketId, u32)> = sockets.iter().copied().zip(first..).collect();
        if call == Call::Batch {
            // Stable: a socket's datagrams stay in order.
            datagrams.sort_by_key(|(socket, _)| socket.as_u64());
        }
        let mut turns: Vec<(SocketId, usize)> = Vec::new();
        for (socket, _) in &datagrams {
            match turns.last_mut() {
                Some((last, count)) if call == Call::Batch && last == socket => *count += 1,
                _ => turns.push((*socket, 1)),
            }
        }
        Self {
            turns,
            sequences: datagrams
                .into_iter()
                .map(|(_, sequence)| sequence)
                .collect(),
        }
    }
}

/// What is still to be read, where datagrams of two queues may overtake each other.
#[derive(Debug)]
pub(super) struct Ledger {
    /// By number: whose it is.
    due: Vec<Option<SocketId>>,
}

impl Ledger {
    /// For datagrams whose numbers go up from 0 on, each for a socket.
    pub(super) fn new(sockets: &[SocketId]) -> Self {
        Self {
            due: sockets.iter().copied().map(Some).collect(),
        }
    }

    /// Whether a socket was to read this, and has not yet.
    fn settle(&mut self, payload: &[u8], socket: SocketId) -> bool {
        let due = packet::sequence_of(payload).and_then(|at| self.due.get_mut(at as usize));
        payload.len() == PAYLOAD && due.is_some_and(|due| due.take() == Some(socket))
    }
}

/// The application's buffers.
pub(super) struct Buffers([[u8; ROOM]; BATCH]);

impl Buffers {
    pub(super) fn new() -> Self {
        Self([[0; ROOM]; BATCH])
    }

    pub(super) fn reader<'a>(&'a mut self, stack: &'a Stack, call: Call) -> Reader<'a> {
        Reader {
            stack,
            call,
            slots: self.0.iter_mut().map(|buf| RecvSlot::new(buf)).collect(),
            told: [(0, NOBODY); BATCH],
        }
    }
}

/// Reads batch after batch into the same buffers.
pub(super) struct Reader<'a> {
    stack: &'a Stack,
    call: Call,
    slots: Vec<RecvSlot<'a>>,
    /// What single reads have told of the datagrams: how long they are, and from whom.
    told: [(usize, SocketAddr); BATCH],
}

/// Before anything was read.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

impl Reader<'_> {
    /// Reads what the plan says. Where nothing is there, `wait` may hope for it or fail.
    #[inline]
    pub(super) fn read(
        &mut self,
        plan: &Plan,
        mut wait: impl FnMut() -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let mut filled = 0;
        for (socket, count) in &plan.turns {
            let end = filled + count;
            while filled < end {
                match self.receive(*socket, filled..end)? {
                    0 => wait()?,
                    received => filled += received,
                }
            }
        }
        Ok(())
    }

    /// Looks at what was read, in order.
    pub(super) fn check(&self, plan: &Plan) -> anyhow::Result<()> {
        for (payload, sequence) in self.payloads().zip(&plan.sequences) {
            ensure!(
                payload.len() == PAYLOAD && packet::is_payload(payload, *sequence),
                "something else than datagram {sequence} was received"
            );
        }
        Ok(())
    }

    /// Looks at what was read, whatever came first.
    pub(super) fn settle(&self, plan: &Plan, ledger: &mut Ledger) -> anyhow::Result<()> {
        let turns = plan.turns.iter();
        let sockets = turns.flat_map(|(socket, count)| iter::repeat_n(*socket, *count));
        for (payload, socket) in self.payloads().zip(sockets) {
            ensure!(
                ledger.settle(payload, socket),
                "a datagram was received twice, or by another socket than its own"
            );
        }
        Ok(())
    }

    /// Reads into places of a range, as many as the call takes. Returns how many datagrams came.
    #[inline]
    fn receive(&mut self, socket: SocketId, places: Range<usize>) -> anyhow::Result<usize> {
        let first = places.start;
        match (
            self.call,
            self.slots.get_mut(places),
            self.told.get_mut(first),
        ) {
            (Call::Single, Some([slot, ..]), Some(told)) => {
                let received = self.stack.udp_recv_from(socket, slot.buf)?;
                Ok(received.map_or(0, |received| {
                    *told = received;
                    1
                }))
            }
            (Call::Batch, Some(slots), _) => Ok(self.stack.udp_recv_batch(socket, slots)?),
            _ => bail!("a batch has more datagrams than the application has buffers"),
        }
    }

    /// What was read, in order.
    fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        let call = self.call;
        self.slots.iter().zip(&self.told).map(move |(slot, told)| {
            let len = match call {
                Call::Single => told.0,
                Call::Batch => slot.received.map_or(0, |received| received.len),
            };
            slot.buf.get(..len).unwrap_or_default()
        })
    }
}
