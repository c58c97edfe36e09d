//! Errors that the network reports about our datagrams.

use core::net::{IpAddr, SocketAddr};
use std::collections::VecDeque;

use super::info::present;
use super::options::MtuDiscover;
use super::socket::NotOpen;
use crate::core::Context;
use crate::demux::flow::Flow;
use crate::family::Family;
use crate::ip::icmp::Quoted;
use crate::ip::path_mtu::{self, PathMtu};
use crate::packet::IpVersion;
use crate::socket::{Flag, Slot, SocketError, SocketId};
use crate::stack::Stack;
use crate::wire::{UdpHeader, protocol};

/// Most reports that a socket keeps; more are lost.
const MAX_REPORTS: usize = 16;

/// Most bytes of a quoted payload that are kept.
const MAX_PAYLOAD: usize = 512;

/// Who found the error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorOrigin {
    /// This host (`SO_EE_ORIGIN_LOCAL`).
    Local,
    /// A router or the destination, by ICMP (`SO_EE_ORIGIN_ICMP`).
    Icmp,
    /// The same by ICMPv6 (`SO_EE_ORIGIN_ICMP6`).
    Icmp6,
}

/// What is known of an error: Linux's `sock_extended_err`, and what comes with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReport {
    /// The error.
    pub error: SocketError,
    /// Who found it.
    pub origin: ErrorOrigin,
    /// Type of the ICMP message.
    pub kind: u8,
    /// Code of the ICMP message.
    pub code: u8,
    /// What the path takes, if that is the error.
    pub mtu: Option<u32>,
    /// Who sent the ICMP message.
    pub offender: Option<IpAddr>,
    /// Where the datagram was to go.
    pub to: SocketAddr,
    /// As much of its payload as was quoted, 512 bytes at most.
    pub payload: Vec<u8>,
}

/// The reports that a socket has not read yet.
#[derive(Debug, Default)]
pub(crate) struct ErrorQueue(VecDeque<ErrorReport>);

impl ErrorQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An ICMP error, as the sender of the datagram sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IcmpReport<'a, F: Family> {
    pub(crate) quoted: Quoted<F>,
    pub(crate) error: SocketError,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) offender: F::Addr,
    /// The quoted datagram from its header on, as far as it was quoted.
    pub(crate) datagram: &'a [u8],
}

/// Tells the socket that sent the quoted datagram: if it has asked for errors, or is connected to
/// where that went and the error is no soft one, which may pass (RFC 1122 section 4.1.3.3 leaves it
/// to others to ask). The next call on the socket returns it. False if no socket here can have sent
/// the datagram.
pub(crate) fn receive_error<F: Family>(cx: &mut Context<'_>, report: &IcmpReport<'_, F>) -> bool {
    let quoted = &report.quoted;
    let local = (quoted.local.into(), quoted.local_port);
    let remote = (quoted.remote.into(), quoted.remote_port);
    let flow = Flow::new(protocol::UDP, local, remote);
    let stack = cx.stack;
    let sender = stack.demux.lookup(&flow, local, quoted.iif, |_, _| None);
    let Some(slot) = sender.and_then(|best| stack.demux.sockets().get(best.id)) else {
        return false;
    };
    let mut error_counts = report.error.is_hard();
    if let Some(mtu) = quoted.mtu {
        let discover = MtuDiscover::of(slot.options());
        if !path_mtu::is_heard::<F>(cx) || !discover.accepts() {
            return true;
        }
        path_mtu::hear::<F>(cx, quoted, mtu);
        error_counts = discover != MtuDiscover::Dont;
        if F::VERSION == IpVersion::V4 && !error_counts {
            return true;
        }
    }
    if slot.options().has(Flag::RecvErr) {
        slot.report(ErrorReport::of(report, slot));
    } else if error_counts {
        stack.demux.report(&flow, quoted.iif, report.error);
    }
    true
}

impl ErrorReport {
    fn of<F: Family>(report: &IcmpReport<'_, F>, slot: &Slot) -> Self {
        let payload = report.datagram.get(UdpHeader::LEN..).unwrap_or_default();
        let quoted = &report.quoted;
        let inet6 = slot.options().has(Flag::Inet6);
        Self {
            error: report.error,
            origin: match F::VERSION {
                IpVersion::V4 => ErrorOrigin::Icmp,
                IpVersion::V6 => ErrorOrigin::Icmp6,
            },
            kind: report.kind,
            code: report.code,
            mtu: quoted.mtu,
            offender: Some(report.offender.into()),
            to: present(quoted.remote.into(), quoted.remote_port, inet6, quoted.iif),
            payload: payload[..payload.len().min(MAX_PAYLOAD)].to_vec(),
        }
    }
}

impl Slot {
    /// Keeps a report, and has the next call return its error.
    pub(super) fn report(&self, report: ErrorReport) {
        let error = report.error;
        let is_local = report.origin == ErrorOrigin::Local;
        let mut reports = self.reports();
        let ErrorQueue(queue) = &mut **reports.get_or_insert_default();
        if queue.len() < MAX_REPORTS {
            queue.push_back(report);
        }
        drop(reports);
        // Who found out himself has been told already, but a poller may be there to read reports.
        if is_local {
            self.queue.wake();
        } else {
            self.queue.set_error(error);
        }
    }
}

impl Stack {
    /// Takes the oldest report of a socket that [keeps them](Self::udp_set_recv_err)
    /// (`MSG_ERRQUEUE`). The next call on the socket returns the error of the next report, if there
    /// is one, and no longer this one's.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn udp_recv_error(&self, id: SocketId) -> Result<Option<ErrorReport>, NotOpen> {
        let slot = self.demux.sockets().get(id).ok_or(NotOpen)?;
        let mut reports = slot.reports();
        let Some(ErrorQueue(queue)) = reports.as_deref_mut() else {
            return Ok(None);
        };
        let report = queue.pop_front();
        if report.is_some() {
            let next = queue
                .front()
                .filter(|next| next.origin != ErrorOrigin::Local);
            match next.map(|next| next.error) {
                Some(error) => slot.queue.set_error(error),
                None => drop(slot.queue.take_error()),
            }
        }
        Ok(report)
    }

    /// What is known of the path to a destination, if it takes less than its first link.
    pub fn path_mtu(&self, now: crate::time::Instant, dst: IpAddr) -> Option<PathMtu> {
        self.path_mtus.get(dst.to_canonical(), now)
    }
}
