//! What a connection starts from: the knobs, its socket's options, the path to the peer.

use core::time::Duration;

use super::connection::handshake::{Agreed, Offer};
use super::connection::{Connection, Manners, TIMESTAMPS_LEN};
use super::receiver::ReceiverConfig;
use super::sender::{SenderConfig, SenderKnobs};
use super::socket::settings::Settings;
use crate::core::Context;
use crate::sysctl::{Knob, Sysctls};
use crate::wire::TcpHeader;
use crate::wire::seq::Seq;

/// Packets of the first flight (RFC 6928).
const INITIAL_CWND: u32 = 10;
/// Retransmissions of a connection without a socket, unless the knob says otherwise (Linux's
/// `tcp_orphan_retries`).
const ORPHAN_RETRIES: u8 = 8;
/// Largest shift of a window (RFC 7323 section 2.3).
const MAX_SCALE: u8 = 14;

/// What this side says in its SYN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    /// Largest payload that we take in one segment.
    pub(super) mss: u16,
    /// The window, not scaled: SYNs have no other.
    pub(super) window: u16,
    pub(super) window_scale: Option<u8>,
    pub(super) sack: bool,
    pub(super) timestamps: bool,
    /// Ask for it, and agree to it.
    pub(super) asks_ecn: bool,
    pub(super) takes_ecn: bool,
}

impl Terms {
    /// Towards a peer that packets of `mtu` bytes get to; `ip_header` of them are the IP header's.
    pub(super) fn new(sysctls: &Sysctls, settings: &Settings, mtu: u32, ip_header: usize) -> Self {
        let mss = payload(mtu, ip_header);
        let mss = match settings.max_segment {
            0 => mss,
            most => mss.min(most),
        };
        let (buffer, max_buffer) = receive_buffer(sysctls, settings);
        let scaling = sysctls.is_on(Knob::TcpWindowScaling);
        Self {
            mss,
            window: initial_window(buffer, mss),
            window_scale: scaling.then(|| scale(max_buffer)),
            sack: sysctls.is_on(Knob::TcpSack),
            timestamps: sysctls.is_on(Knob::TcpTimestamps),
            asks_ecn: sysctls.get(Knob::TcpEcn) == 1,
            takes_ecn: sysctls.is_on(Knob::TcpEcn),
        }
    }

    /// The same as an offer to begin with.
    pub(super) fn offer(&self, iss: Seq, timestamp_offset: u32, retries: u8) -> Offer {
        Offer {
            iss,
            mss: self.mss,
            window: self.window,
            window_scale: self.window_scale,
            sack: self.sack,
            timestamps: self.timestamps.then_some(timestamp_offset),
            ecn: self.asks_ecn,
            retries,
        }
    }
}

/// Payload of a segment without options, in packets of `mtu` bytes.
pub(super) fn payload(mtu: u32, ip_header: usize) -> u16 {
    let headers = (ip_header + TcpHeader::LEN) as u32;
    u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX)
}

/// The connection that both ends have agreed on.
pub(super) fn connection(
    cx: &Context<'_>,
    settings: &Settings,
    agreed: &Agreed,
    mtu: u32,
    ip_header: usize,
) -> Connection {
    let sysctls = cx.view.sysctls;
    let options = match agreed.clock {
        Some(_) => TIMESTAMPS_LEN,
        None => 0,
    };
    // What the application asks for bounds the peer's, now and when the path changes.
    let agreed = &Agreed {
        mss: match settings.max_segment {
            0 => agreed.mss,
            most => agreed.mss.min(most),
        },
        ..*agreed
    };
    let min_mss = u16::try_from(sysctls.get(Knob::TcpMinSndMss)).unwrap_or(u16::MAX);
    let mss = agreed.mss.min(payload(mtu, ip_header)).max(min_mss);
    let mss = mss.saturating_sub(options).max(1);
    let [_, wmem, wmem_max] = sysctls.tcp_wmem();
    let sender = SenderConfig {
        first: agreed.iss + 1,
        window: agreed.window,
        window_seq: agreed.irs,
        mss,
        buffer: settings.send_buffer.unwrap_or(wmem),
        max_buffer: settings.send_buffer.unwrap_or(wmem_max),
        sack: agreed.sack,
        timestamps: agreed.clock.is_some(),
        ecn: agreed.ecn,
        algorithm: settings.congestion,
        initial_cwnd: INITIAL_CWND,
        handshake_rtt: agreed.round_trip,
        syn_retransmitted: agreed.was_retransmitted,
        knobs: sender_knobs(sysctls),
    };
    let (buffer, max_buffer) = receive_buffer(sysctls, settings);
    let own_mss = payload(mtu, ip_header);
    let receiver = ReceiverConfig {
        next: agreed.irs + 1,
        window: agreed.own_window.into(),
        window_scale: agreed.scales.map_or(0, |(_, ours)| ours),
        buffer,
        max_buffer,
        sack: agreed.sack,
        dsack: sysctls.is_on(Knob::TcpDsack),
        mss: own_mss,
        now: cx.now,
    };
    let manners = Manners {
        min_mss,
        stdurg: sysctls.is_on(Knob::TcpStdurg),
        orphan_retries: match sysctls.get(Knob::TcpOrphanRetries) {
            0 => ORPHAN_RETRIES,
            retries => u8::try_from(retries).unwrap_or(u8::MAX),
        },
        keepalive: settings.keepalive,
        fin_timeout: Duration::from_secs(sysctls.get(Knob::TcpFinTimeout).unsigned_abs()),
        invalid_ratelimit: Duration::from_millis(
            sysctls.get(Knob::TcpInvalidRatelimit).unsigned_abs(),
        ),
    };
    let mut connection = Connection::new(agreed, &sender, &receiver, manners, cx.now);
    let receiver = connection.receiver_mut();
    receiver.set_oob_inline(settings.flags.oob_inline);
    let sender = connection.sender_mut();
    sender.set_nodelay(settings.flags.no_delay);
    sender.set_cork(settings.flags.cork);
    sender.set_user_timeout(settings.user_timeout);
    sender.set_max_pacing_rate(settings.max_pacing_rate);
    connection
}

fn sender_knobs(sysctls: &Sysctls) -> SenderKnobs {
    let byte = |knob| u8::try_from(sysctls.get(knob)).unwrap_or(u8::MAX);
    let short = |knob| u16::try_from(sysctls.get(knob)).unwrap_or(u16::MAX);
    let wide = |knob| sysctls.get(knob).unsigned_abs();
    SenderKnobs {
        rto_min: Duration::from_micros(wide(Knob::TcpRtoMinUs)),
        rto_max: Duration::from_millis(wide(Knob::TcpRtoMaxMs)),
        min_rtt_window: Duration::from_secs(wide(Knob::TcpMinRttWlen)),
        retries1: byte(Knob::TcpRetries1),
        retries2: byte(Knob::TcpRetries2),
        reordering: short(Knob::TcpReordering),
        max_reordering: short(Knob::TcpMaxReordering),
        recovery: byte(Knob::TcpRecovery),
        early_retrans: byte(Knob::TcpEarlyRetrans),
        frto: byte(Knob::TcpFrto),
        slow_start_after_idle: sysctls.is_on(Knob::TcpSlowStartAfterIdle),
        thin_linear_timeouts: sysctls.is_on(Knob::TcpThinLinearTimeouts),
        mtu_probing: byte(Knob::TcpMtuProbing),
        base_mss: short(Knob::TcpBaseMss),
        mtu_probe_floor: short(Knob::TcpMtuProbeFloor),
        probe_threshold: short(Knob::TcpProbeThreshold),
        probe_interval: Duration::from_secs(wide(Knob::TcpProbeInterval)),
        pacing_ss_ratio: short(Knob::TcpPacingSsRatio),
        pacing_ca_ratio: short(Knob::TcpPacingCaRatio),
    }
}

/// Bytes that the receive buffer may hold, at first and at most.
fn receive_buffer(sysctls: &Sysctls, settings: &Settings) -> (u32, u32) {
    let [_, rmem, rmem_max] = sysctls.tcp_rmem();
    match settings.receive_buffer {
        Some(bytes) => (bytes, bytes),
        None if sysctls.is_on(Knob::TcpModerateRcvbuf) => (rmem, rmem_max.max(rmem)),
        None => (rmem, rmem),
    }
}

/// The shift by which a window of all the buffer fits 16 bits.
fn scale(max_buffer: u32) -> u8 {
    let bits = u32::BITS - max_buffer.leading_zeros();
    (bits.saturating_sub(16) as u8).min(MAX_SCALE)
}

/// Half the buffer, as far as a SYN can say it, and in whole segments (Linux's
/// `tcp_select_initial_window`).
fn initial_window(buffer: u32, mss: u16) -> u16 {
    let space = (buffer / 2).min(u32::from(u16::MAX));
    let mss = u32::from(mss.max(1));
    let whole = if space > mss {
        space - space % mss
    } else {
        space
    };
    u16::try_from(whole).unwrap_or(u16::MAX)
}
