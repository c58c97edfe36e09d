//! Scratch: signatures until the real ones land.
use core::net::SocketAddr;
use core::task::Waker;
use std::io::{IoSlice, IoSliceMut};
use std::net::Shutdown;

use super::*;
use crate::packet::IpVersion;
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::time::Instant;
use crate::udp::{BindError, NotOpen, OptionError, TooManySockets};

#[allow(
    missing_docs,
    clippy::todo,
    clippy::missing_errors_doc,
    unused_variables
)]
impl Stack {
    pub fn tcp_open(&self, version: IpVersion) -> Result<SocketId, TooManySockets> {
        todo!()
    }
    pub fn tcp_bind(&self, id: SocketId, addr: SocketAddr) -> Result<(), BindError> {
        todo!()
    }
    pub fn tcp_bind_any(&self, id: SocketId) -> Result<(), BindError> {
        todo!()
    }
    pub fn tcp_listen(&self, id: SocketId, backlog: u32) -> Result<(), ListenError> {
        todo!()
    }
    pub fn tcp_accept(&self, now: Instant, id: SocketId) -> Result<Option<Accepted>, TcpError> {
        todo!()
    }
    pub fn tcp_connect(
        &self,
        now: Instant,
        id: SocketId,
        peer: SocketAddr,
    ) -> Result<(), TcpConnectError> {
        todo!()
    }
    pub fn tcp_is_connected(&self, id: SocketId) -> Result<bool, TcpError> {
        todo!()
    }
    pub fn tcp_recv(
        &self,
        now: Instant,
        id: SocketId,
        bufs: &mut [IoSliceMut<'_>],
        peek: bool,
    ) -> Result<Option<usize>, TcpError> {
        todo!()
    }
    pub fn tcp_send(
        &self,
        now: Instant,
        id: SocketId,
        bufs: &[IoSlice<'_>],
        flags: SendFlags,
    ) -> Result<Option<usize>, TcpError> {
        todo!()
    }
    pub fn tcp_shutdown(&self, now: Instant, id: SocketId, how: Shutdown) -> Result<(), TcpError> {
        todo!()
    }
    pub fn tcp_close(&self, now: Instant, id: SocketId) -> Result<(), NotOpen> {
        todo!()
    }
    pub fn tcp_local_addr(&self, id: SocketId) -> Result<SocketAddr, NotOpen> {
        todo!()
    }
    pub fn tcp_peer_addr(&self, id: SocketId) -> Result<SocketAddr, TcpError> {
        todo!()
    }
    pub fn tcp_readiness(&self, id: SocketId) -> Result<TcpReadiness, NotOpen> {
        todo!()
    }
    pub fn tcp_arm_waker(&self, id: SocketId, side: Side, waker: &Waker) -> Result<(), NotOpen> {
        todo!()
    }
    pub fn tcp_forget_waker(&self, id: SocketId, waker: &Waker) {
        todo!()
    }
    pub fn tcp_take_error(&self, id: SocketId) -> Result<Option<TcpError>, NotOpen> {
        todo!()
    }
    pub fn tcp_set(
        &self,
        now: Instant,
        id: SocketId,
        option: TcpOption,
    ) -> Result<(), OptionError> {
        todo!()
    }
    pub fn tcp_options(&self, id: SocketId) -> Result<TcpOptionValues, NotOpen> {
        todo!()
    }
    pub fn tcp_info(&self, now: Instant, id: SocketId) -> Result<TcpInfo, TcpError> {
        todo!()
    }
    pub fn tcp_sockets(&self, now: Instant) -> Vec<TcpSocketInfo> {
        todo!()
    }
}
