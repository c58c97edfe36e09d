//! What knobs say about reports.

use core::net::IpAddr;
use core::time::Duration;

use super::Version;
use crate::interface::LOOPBACK;
use crate::packet::IpVersion;
use crate::stack::View;
use crate::sysctl::{ConfKnob, Knob};

/// The knobs of one interface.
#[derive(Debug, Clone, Copy)]
pub(in crate::multicast) struct Settings {
    /// Nobody listens on the loopback, nor on an interface that is down.
    pub(super) is_silent: bool,
    /// How often what may get lost is said.
    pub(super) robustness: u8,
    /// The version to speak, whatever queriers do.
    pub(super) forced: Option<Version>,
    /// Longest time until a change is reported again.
    pub(super) interval: Duration,
    /// The same in older versions.
    pub(super) old_interval: Duration,
    /// Whether groups of the link are reported (224.0.0.0/24).
    pub(super) link_local: bool,
}

impl Settings {
    pub(in crate::multicast) fn of(view: &View<'_>, version: IpVersion, ifindex: u32) -> Self {
        let sysctls = view.sysctls;
        let is_v4 = version == IpVersion::V4;
        let pick = |v4, v6| if is_v4 { v4 } else { v6 };
        let conf = |v4, v6| sysctls.conf(ifindex, pick(v4, v6));
        let millis = |v4, v6| {
            let millis = conf(v4, v6);
            Duration::from_millis(u64::try_from(millis).unwrap_or(0))
        };
        let qrv = match version {
            IpVersion::V4 => sysctls.get(Knob::IgmpQrv),
            IpVersion::V6 => sysctls.get(Knob::MldQrv),
        };
        let forced = pick(ConfKnob::ForceIgmpVersion, ConfKnob::ForceMldVersion);
        let forced = match sysctls.conf_all(forced) {
            0 => sysctls.conf(ifindex, forced),
            all => all,
        };
        let interface = view.interfaces.get(ifindex);
        Self {
            is_silent: ifindex == LOOPBACK || !interface.is_some_and(|interface| interface.up),
            robustness: u8::try_from(qrv).unwrap_or(u8::MAX),
            forced: match (forced, is_v4) {
                (1, true) => Some(Version::V1),
                (2, true) | (1, false) => Some(Version::V2),
                (3, true) | (2, false) => Some(Version::V3),
                _ => None,
            },
            interval: millis(
                ConfKnob::Igmpv3UnsolicitedReportInterval,
                ConfKnob::Mldv2UnsolicitedReportInterval,
            ),
            old_interval: millis(
                ConfKnob::Igmpv2UnsolicitedReportInterval,
                ConfKnob::Mldv1UnsolicitedReportInterval,
            ),
            link_local: sysctls.is_on(Knob::IgmpLinkLocalMcastReports),
        }
    }

    /// Whether routers are told about a group: not of those that every node is in, nor of those
    /// that no router could be interested in (RFC 3376 section 6, RFC 3810 section 6).
    pub(super) fn reports(&self, group: IpAddr) -> bool {
        let is_of_interest = match group {
            IpAddr::V4(group) => match group.octets() {
                [224, 0, 0, 1] => false,
                [224, 0, 0, _] => self.link_local,
                _ => true,
            },
            IpAddr::V6(group) => match group.segments() {
                [0xff02, 0, 0, 0, 0, 0, 0, 1] => false,
                [first, ..] => first & 0xf > 1,
            },
        };
        is_of_interest && !self.is_silent
    }
}
