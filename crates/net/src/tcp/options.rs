//! Options, and what they are set to.

use std::io;
use std::time::Duration;

use forebay_stack::tcp::{Algorithm, TcpOption};

use super::handle::Handle;
use super::listener::TcpListener;
use super::socket::TcpSocket;
use super::stream::TcpStream;

/// The options that all kinds of sockets have.
macro_rules! options {
    ($($kind:ident)*) => {$(
        /// Options. Those that both families have are one setting for both. A connection that is
        /// accepted begins with its listener's.
        impl $kind {
            /// Whether small segments leave at once, and don't wait for what was sent to be
            /// acknowledged (`TCP_NODELAY`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
                self.handle.set(TcpOption::NoDelay(on))
            }

            /// What was set by [`set_nodelay`](Self::set_nodelay).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn nodelay(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.no_delay)
            }

            /// Whether an idle peer is asked now and then if it is still there (`SO_KEEPALIVE`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_keepalive(&self, on: bool) -> io::Result<()> {
                self.handle.set(TcpOption::KeepAlive(on))
            }

            /// What was set by [`set_keepalive`](Self::set_keepalive).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn keepalive(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.keep_alive)
            }

            /// How long a connection is idle before the peer is asked (`TCP_KEEPIDLE`); whole seconds,
            /// 1 to 32,767. `net.ipv4.tcp_keepalive_time` unless set.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::InvalidInput`] for anything else.
            pub fn set_keepalive_idle(&self, idle: Duration) -> io::Result<()> {
                self.handle.set(TcpOption::KeepIdle(idle))
            }

            /// What was set by [`set_keepalive_idle`](Self::set_keepalive_idle).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn keepalive_idle(&self) -> io::Result<Duration> {
                Ok(self.handle.options()?.keep_idle)
            }

            /// Time between one question and the next (`TCP_KEEPINTVL`); whole seconds, 1 to 32,767.
            /// `net.ipv4.tcp_keepalive_intvl` unless set.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::InvalidInput`] for anything else.
            pub fn set_keepalive_interval(&self, interval: Duration) -> io::Result<()> {
                self.handle.set(TcpOption::KeepInterval(interval))
            }

            /// What was set by [`set_keepalive_interval`](Self::set_keepalive_interval).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn keepalive_interval(&self) -> io::Result<Duration> {
                Ok(self.handle.options()?.keep_interval)
            }

            /// Questions without an answer before the connection is given up (`TCP_KEEPCNT`); 1 to
            /// 127. `net.ipv4.tcp_keepalive_probes` unless set.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::InvalidInput`] for anything else.
            pub fn set_keepalive_count(&self, count: u8) -> io::Result<()> {
                self.handle.set(TcpOption::KeepCount(count))
            }

            /// What was set by [`set_keepalive_count`](Self::set_keepalive_count).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn keepalive_count(&self) -> io::Result<u8> {
                Ok(self.handle.options()?.keep_count)
            }

            /// What closing does about bytes that the peer has not acknowledged (`SO_LINGER`): with a
            /// time of zero it throws them away and resets the connection; with `None`, or any other
            /// time, they are sent on in the background. Closing never waits.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
                self.handle.set(TcpOption::Linger(linger))
            }

            /// What was set by [`set_linger`](Self::set_linger).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn linger(&self) -> io::Result<Option<Duration>> {
                Ok(self.handle.options()?.linger)
            }

            /// How long bytes that were sent may wait for their acknowledgement before the connection
            /// is given up (`TCP_USER_TIMEOUT`), in whole milliseconds. Zero leaves it to
            /// `net.ipv4.tcp_retries2`.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::InvalidInput`] for more than [`i32::MAX`] milliseconds.
            pub fn set_user_timeout(&self, timeout: Duration) -> io::Result<()> {
                self.handle.set(TcpOption::UserTimeout(timeout))
            }

            /// What was set by [`set_user_timeout`](Self::set_user_timeout).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn user_timeout(&self) -> io::Result<Duration> {
                Ok(self.handle.options()?.user_timeout)
            }

            /// The congestion control (`TCP_CONGESTION`); `net.ipv4.tcp_congestion_control` unless
            /// set.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_congestion(&self, algorithm: Algorithm) -> io::Result<()> {
                self.handle.set(TcpOption::Congestion(algorithm))
            }

            /// What was set by [`set_congestion`](Self::set_congestion).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn congestion(&self) -> io::Result<Algorithm> {
                Ok(self.handle.options()?.congestion)
            }

            /// Bytes a second that are sent at most; `None` is no limit (`SO_MAX_PACING_RATE`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_max_pacing_rate(&self, rate: Option<u64>) -> io::Result<()> {
                let rate = rate.unwrap_or(u64::MAX);
                self.handle.set(TcpOption::MaxPacingRate(rate))
            }

            /// What was set by [`set_max_pacing_rate`](Self::set_max_pacing_rate).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn max_pacing_rate(&self) -> io::Result<Option<u64>> {
                let rate = self.handle.options()?.max_pacing_rate;
                Ok(Some(rate).filter(|rate| *rate != u64::MAX))
            }

            /// Asks for a receive buffer of this many bytes (`SO_RCVBUF`) and returns what Linux's
            /// `getsockopt` would: twice that, within `net.core.rmem_max`. It then no longer grows by
            /// itself.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_recv_buffer_size(&self, bytes: u32) -> io::Result<u32> {
                self.handle.set(TcpOption::ReceiveBuffer(bytes))?;
                self.recv_buffer_size()
            }

            /// Bytes that the receive buffer may hold; by `net.ipv4.tcp_rmem`, and growing with use,
            /// unless set.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn recv_buffer_size(&self) -> io::Result<u32> {
                Ok(self.handle.options()?.receive_buffer)
            }

            /// Asks for a send buffer of this many bytes (`SO_SNDBUF`) and returns what Linux's
            /// `getsockopt` would: twice that, within `net.core.wmem_max`. It then no longer grows by
            /// itself.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_send_buffer_size(&self, bytes: u32) -> io::Result<u32> {
                self.handle.set(TcpOption::SendBuffer(bytes))?;
                self.send_buffer_size()
            }

            /// Bytes that the send buffer may hold; by `net.ipv4.tcp_wmem`, and growing with use,
            /// unless set.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn send_buffer_size(&self) -> io::Result<u32> {
                Ok(self.handle.options()?.send_buffer)
            }

            /// Largest payload of a segment, in bytes, that is sent and that the peer is told
            /// (`TCP_MAXSEG`); before the handshake, and no more than the path's MTU leaves.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::InvalidInput`] for what Linux refuses.
            pub fn set_max_segment(&self, bytes: u16) -> io::Result<()> {
                self.handle.set(TcpOption::MaxSegment(bytes))
            }

            /// What was set by [`set_max_segment`](Self::set_max_segment); 0 if nothing was. What a
            /// connection sends is in [`TcpStream::info`].
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn max_segment(&self) -> io::Result<u16> {
                Ok(self.handle.options()?.max_segment)
            }

            /// TTL or hop limit of packets sent: 1 to 255 (`IP_TTL`, `IPV6_UNICAST_HOPS`).
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::InvalidInput`] for anything else.
            pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
                let ttl = u8::try_from(ttl).map_err(|_| io::ErrorKind::InvalidInput)?;
                self.handle.set(TcpOption::Ttl(Some(ttl)))
            }

            /// What was set by [`set_ttl`](Self::set_ttl), or else by `net.ipv4.ip_default_ttl` or
            /// `net.ipv6.conf.*.hop_limit`.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn ttl(&self) -> io::Result<u32> {
                Ok(self.handle.options()?.ttl.into())
            }

            /// Type of service or traffic class of packets sent (`IP_TOS`, `IPV6_TCLASS`). Its ECN
            /// bits are TCP's own.
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_tos(&self, tos: u8) -> io::Result<()> {
                self.handle.set(TcpOption::Tos(tos))
            }

            /// What was set by [`set_tos`](Self::set_tos).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn tos(&self) -> io::Result<u8> {
                Ok(self.handle.options()?.tos)
            }

            /// Whether urgent bytes stay where they are in the stream (`SO_OOBINLINE`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn set_oob_inline(&self, on: bool) -> io::Result<()> {
                self.handle.set(TcpOption::OobInline(on))
            }

            /// What was set by [`set_oob_inline`](Self::set_oob_inline).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn oob_inline(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.oob_inline)
            }

            /// The interface that the socket is bound to, if any.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::NotFound`] if it is there no more.
            pub fn device(&self) -> io::Result<Option<String>> {
                self.handle.device()
            }

            /// Whether the local address may be that of connections which are not quite over
            /// (`SO_REUSEADDR`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn reuse_address(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.reuse_addr)
            }

            /// Whether the socket may be one of a group (`SO_REUSEPORT`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn reuse_port(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.reuse_port)
            }

            /// Whether an IPv6 socket takes no IPv4 (`IPV6_V6ONLY`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn only_v6(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.v6only)
            }

            /// Whether any address will do as the local one (`IP_TRANSPARENT`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn transparent(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.transparent)
            }

            /// Whether the local address may be one that is not there yet (`IP_FREEBIND`).
            ///
            /// # Errors
            ///
            /// None that a program can cause.
            pub fn freebind(&self) -> io::Result<bool> {
                Ok(self.handle.options()?.freebind)
            }
        }
    )*};
}

options! { TcpSocket TcpListener TcpStream }

/// Options of connections alone.
impl TcpStream {
    /// Whether only full segments leave, until this is undone or 200 ms are over (`TCP_CORK`).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_cork(&self, on: bool) -> io::Result<()> {
        self.handle.set(TcpOption::Cork(on))
    }

    /// What was set by [`set_cork`](Self::set_cork).
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn cork(&self) -> io::Result<bool> {
        Ok(self.handle.options()?.cork)
    }

    /// Whether acknowledgements leave at once (`TCP_QUICKACK`); not for good, as tcp(7) explains.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn set_quickack(&self, on: bool) -> io::Result<()> {
        self.handle.set(TcpOption::QuickAck(on))
    }

    /// Whether acknowledgements leave at once, at the moment.
    ///
    /// # Errors
    ///
    /// None that a program can cause.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(self.handle.options()?.quick_ack)
    }

    /// Sets how long a read looks for bytes itself before it sleeps (`SO_BUSY_POLL`), in whole
    /// microseconds: zero not at all.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for more than [`i32::MAX`] microseconds.
    pub fn set_busy_poll(&self, time: Duration) -> io::Result<()> {
        self.handle.busy_poll.set(time)
    }

    /// How long a read looks for bytes itself before it sleeps: `net.core.busy_read` unless
    /// [set](Self::set_busy_poll).
    pub fn busy_poll(&self) -> Duration {
        self.handle.busy_poll.get(self.handle.inner())
    }
}

impl Handle {
    fn device(&self) -> io::Result<Option<String>> {
        let Some(index) = self.options()?.device else {
            return Ok(None);
        };
        let interface = self.inner().interface(index);
        let interface = interface.ok_or(io::ErrorKind::NotFound)?;
        Ok(Some(interface.name.clone()))
    }
}
