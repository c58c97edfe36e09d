//! Options of a socket, as they are set or come to.

use core::time::Duration;

use super::{Role, Socket, with_socket};
use crate::core::Context;
use crate::family::{Family as _, V4, V6};
use crate::packet::IpVersion;
use crate::socket::SocketId;
use crate::stack::Stack;
use crate::sysctl::{Knob, Sysctls};
use crate::tcp::connection::{Keepalive, Wake};
use crate::tcp::{Algorithm, TcpOption, TcpOptionValues};
use crate::time::Instant;
use crate::udp::{NotOpen, OptionError};

/// Smallest buffers, in bytes (Linux's `SOCK_MIN_RCVBUF` and `SOCK_MIN_SNDBUF`).
const MIN_RCVBUF: u32 = 2_304;
const MIN_SNDBUF: u32 = 4_608;
/// Longest idle time and interval of keepalives, in seconds (Linux's `MAX_TCP_KEEPIDLE`).
const MAX_KEEPALIVE: u64 = 32_767;
/// Most keepalives without an answer (Linux's `MAX_TCP_KEEPCNT`).
const MAX_KEEPALIVES: u8 = 127;
/// Payload of the smallest and largest segment that may be asked for.
const MSS_RANGE: core::ops::RangeInclusive<u16> = 88..=32_767;

/// What a socket was told, and what the knobs said when it was opened.
#[derive(Debug, Clone)]
pub(in crate::tcp) struct Settings {
    pub(in crate::tcp) flags: Flags,
    /// Index of the interface that it is bound to, or 0.
    pub(in crate::tcp) device: u32,
    pub(in crate::tcp) keepalive: Keepalive,
    pub(in crate::tcp) linger: Option<Duration>,
    pub(in crate::tcp) user_timeout: Duration,
    /// Set by the application: no more autotuning.
    pub(in crate::tcp) receive_buffer: Option<u32>,
    pub(in crate::tcp) send_buffer: Option<u32>,
    pub(in crate::tcp) congestion: Algorithm,
    pub(in crate::tcp) ttl: Option<u8>,
    pub(in crate::tcp) tos: u8,
    /// 0: as the path's MTU says.
    pub(in crate::tcp) max_segment: u16,
    pub(in crate::tcp) max_pacing_rate: u64,
}

/// What is on or off.
#[derive(Debug, Clone, Copy, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of its own"
)]
pub(in crate::tcp) struct Flags {
    pub(in crate::tcp) no_delay: bool,
    pub(in crate::tcp) cork: bool,
    pub(in crate::tcp) quick_ack: bool,
    pub(in crate::tcp) reuse_addr: bool,
    pub(in crate::tcp) reuse_port: bool,
    pub(in crate::tcp) v6only: bool,
    pub(in crate::tcp) transparent: bool,
    pub(in crate::tcp) freebind: bool,
    pub(in crate::tcp) oob_inline: bool,
}

impl Settings {
    pub(super) fn new(version: IpVersion, sysctls: &Sysctls) -> Self {
        let seconds = |knob| Duration::from_secs(sysctls.get(knob).unsigned_abs());
        let probes = u8::try_from(sysctls.get(Knob::TcpKeepaliveProbes)).unwrap_or(MAX_KEEPALIVES);
        Self {
            flags: Flags {
                quick_ack: true,
                v6only: version == IpVersion::V6 && sysctls.is_on(Knob::Bindv6only),
                ..Flags::default()
            },
            device: 0,
            keepalive: Keepalive::new(
                false,
                seconds(Knob::TcpKeepaliveTime),
                seconds(Knob::TcpKeepaliveIntvl),
                probes,
            ),
            linger: None,
            user_timeout: Duration::ZERO,
            receive_buffer: None,
            send_buffer: None,
            congestion: sysctls.tcp_congestion_control(),
            ttl: None,
            tos: 0,
            max_segment: 0,
            max_pacing_rate: u64::MAX,
        }
    }

    fn set(&mut self, option: TcpOption, sysctls: &Sysctls) -> Result<(), OptionError> {
        let flags = &mut self.flags;
        match option {
            TcpOption::NoDelay(on) => flags.no_delay = on,
            TcpOption::Cork(on) => flags.cork = on,
            TcpOption::QuickAck(on) => flags.quick_ack = on,
            TcpOption::KeepAlive(on) => self.keepalive.is_on = on,
            TcpOption::KeepIdle(idle) => self.keepalive.idle = keepalive_time(idle)?,
            TcpOption::KeepInterval(interval) => {
                self.keepalive.interval = keepalive_time(interval)?;
            }
            TcpOption::KeepCount(count) => {
                if !(1..=MAX_KEEPALIVES).contains(&count) {
                    return Err(OptionError::InvalidArgument);
                }
                self.keepalive.count = count;
            }
            TcpOption::Linger(linger) => self.linger = linger,
            TcpOption::UserTimeout(timeout) => self.user_timeout = timeout,
            TcpOption::ReuseAddr(on) => flags.reuse_addr = on,
            TcpOption::ReusePort(on) => flags.reuse_port = on,
            TcpOption::ReceiveBuffer(bytes) => {
                let most = limit(sysctls, Knob::RmemMax);
                self.receive_buffer = Some(doubled(bytes.min(most)).max(MIN_RCVBUF));
            }
            TcpOption::SendBuffer(bytes) => {
                let most = limit(sysctls, Knob::WmemMax);
                self.send_buffer = Some(doubled(bytes.min(most)).max(MIN_SNDBUF));
            }
            TcpOption::Congestion(algorithm) => self.congestion = algorithm,
            TcpOption::Ttl(Some(0)) => return Err(OptionError::InvalidArgument),
            TcpOption::Ttl(ttl) => self.ttl = ttl,
            TcpOption::Tos(tos) => self.tos = tos & !3,
            TcpOption::Device(device) => self.device = device.unwrap_or(0),
            TcpOption::V6Only(on) => flags.v6only = on,
            TcpOption::Transparent(on) => flags.transparent = on,
            TcpOption::Freebind(on) => flags.freebind = on,
            TcpOption::OobInline(on) => flags.oob_inline = on,
            TcpOption::MaxSegment(0) => self.max_segment = 0,
            TcpOption::MaxSegment(mss) if MSS_RANGE.contains(&mss) => self.max_segment = mss,
            TcpOption::MaxSegment(_) => return Err(OptionError::InvalidArgument),
            TcpOption::MaxPacingRate(rate) => self.max_pacing_rate = rate,
        }
        Ok(())
    }
}

fn keepalive_time(time: Duration) -> Result<Duration, OptionError> {
    let is_right = (1..=MAX_KEEPALIVE).contains(&time.as_secs());
    is_right.then_some(time).ok_or(OptionError::InvalidArgument)
}

fn limit(sysctls: &Sysctls, knob: Knob) -> u32 {
    u32::try_from(sysctls.get(knob)).unwrap_or(u32::MAX)
}

/// Linux doubles what is asked for: half of it is for what comes with the bytes.
fn doubled(bytes: u32) -> u32 {
    bytes.saturating_mul(2)
}

/// Options.
impl Stack {
    /// Sets an option.
    ///
    /// # Errors
    ///
    /// [`OptionError`]: it is closed, the value is out of range, there is no such interface, or it
    /// is too late: what binding looks at can't be set afterwards.
    pub fn tcp_set(
        &self,
        now: Instant,
        id: SocketId,
        option: TcpOption,
    ) -> Result<(), OptionError> {
        self.with_context(now, |cx| {
            if let TcpOption::Device(Some(device)) = option
                && cx.view.interfaces.get(device).is_none()
            {
                return Err(OptionError::NoDevice);
            }
            let set = with_socket(cx, id, |cx, socket| {
                let set = socket.set(cx.now, option, cx.view.sysctls);
                (set, Wake::default())
            });
            set.ok_or(NotOpen)?
        })
    }

    /// What the options are set to.
    ///
    /// # Errors
    ///
    /// [`NotOpen`].
    pub fn tcp_options(&self, id: SocketId) -> Result<TcpOptionValues, NotOpen> {
        self.with_context(Instant::ZERO, |cx| {
            let socket = self.tcp.slots.lock(id).ok_or(NotOpen)?;
            Ok(socket.option_values(cx))
        })
    }
}

impl Socket {
    fn option_values(&self, cx: &Context<'_>) -> TcpOptionValues {
        let sysctls = cx.view.sysctls;
        let ([_, rmem, _], [_, wmem, _]) = (sysctls.tcp_rmem(), sysctls.tcp_wmem());
        let Settings {
            flags, keepalive, ..
        } = &self.settings;
        let settings = &self.settings;
        let (receive_buffer, send_buffer) = match &self.role {
            Role::Connected(connection) => {
                (connection.receiver().buffer(), connection.sender().buffer())
            }
            _ => (
                settings.receive_buffer.unwrap_or(rmem),
                settings.send_buffer.unwrap_or(wmem),
            ),
        };
        let default_ttl = match self.version {
            IpVersion::V4 => V4::default_ttl(cx.view, settings.device),
            IpVersion::V6 => V6::default_ttl(cx.view, settings.device),
        };
        TcpOptionValues {
            no_delay: flags.no_delay,
            cork: flags.cork,
            quick_ack: flags.quick_ack,
            keep_alive: keepalive.is_on,
            keep_idle: keepalive.idle,
            keep_interval: keepalive.interval,
            keep_count: keepalive.count,
            linger: settings.linger,
            user_timeout: settings.user_timeout,
            reuse_addr: flags.reuse_addr,
            reuse_port: flags.reuse_port,
            receive_buffer,
            send_buffer,
            congestion: settings.congestion,
            ttl: settings.ttl.unwrap_or(default_ttl),
            tos: settings.tos,
            device: (settings.device != 0).then_some(settings.device),
            v6only: flags.v6only,
            transparent: flags.transparent,
            freebind: flags.freebind,
            oob_inline: flags.oob_inline,
            max_segment: settings.max_segment,
            max_pacing_rate: settings.max_pacing_rate,
        }
    }

    fn set(
        &mut self,
        now: Instant,
        option: TcpOption,
        sysctls: &Sysctls,
    ) -> Result<(), OptionError> {
        let is_for_bind = matches!(option, TcpOption::V6Only(_) | TcpOption::Device(_));
        if is_for_bind && (self.is_bound || self.peer.is_some()) {
            return Err(OptionError::InvalidArgument);
        }
        if let TcpOption::V6Only(_) = option
            && self.version == IpVersion::V4
        {
            return Err(OptionError::InvalidArgument);
        }
        self.settings.set(option, sysctls)?;
        self.tell_connection(now, option);
        Ok(())
    }

    /// A connection that stands hears of what concerns it.
    fn tell_connection(&mut self, now: Instant, option: TcpOption) {
        let settings = &self.settings;
        let Role::Connected(connection) = &mut self.role else {
            return;
        };
        match option {
            TcpOption::NoDelay(on) => connection.sender_mut().set_nodelay(on),
            TcpOption::Cork(on) => connection.sender_mut().set_cork(on),
            TcpOption::QuickAck(on) => connection.receiver_mut().set_quick_ack(on),
            TcpOption::KeepAlive(_)
            | TcpOption::KeepIdle(_)
            | TcpOption::KeepInterval(_)
            | TcpOption::KeepCount(_) => connection.keepalive_mut().set(&settings.keepalive),
            TcpOption::UserTimeout(timeout) => connection.sender_mut().set_user_timeout(timeout),
            TcpOption::ReceiveBuffer(_) => {
                if let Some(bytes) = settings.receive_buffer {
                    connection.receiver_mut().set_buffer(bytes);
                }
            }
            TcpOption::SendBuffer(_) => {
                if let Some(bytes) = settings.send_buffer {
                    connection.sender_mut().set_buffer(bytes, bytes);
                }
            }
            TcpOption::Congestion(algorithm) => {
                connection.sender_mut().set_algorithm(now, algorithm);
            }
            TcpOption::OobInline(on) => connection.receiver_mut().set_oob_inline(on),
            TcpOption::MaxPacingRate(rate) => connection.sender_mut().set_max_pacing_rate(rate),
            _ => {}
        }
    }
}
