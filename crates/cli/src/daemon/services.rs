//! Small servers over UDP: echo (RFC 862), discard (RFC 863), daytime (RFC 867), names (RFC 1035).

mod dns;

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use forebay::{Stack, UdpSocket};

use crate::config::{Config, Problem, ServiceKind};

/// Room for the longest datagram.
const LONGEST: usize = 65_535;

/// Ports below are servers' (RFC 6335 section 6).
const FIRST_CLIENT_PORT: u16 = 1_024;

/// A service with its socket.
pub(super) struct Bound {
    kind: ServiceKind,
    socket: UdpSocket,
}

/// Binds the sockets of all services.
pub(super) fn bind(stack: &Stack, config: &Config) -> Result<Vec<Bound>, Problem> {
    let bind = |service: &crate::config::Service| {
        let addr = *service.listen.get_ref();
        let socket = UdpSocket::bind(stack, addr).map_err(|error| {
            let what = format!("cannot serve on {addr}: {error}");
            Problem::new(service.listen.span(), what)
        })?;
        Ok(Bound {
            kind: service.kind.clone(),
            socket,
        })
    };
    config.services.iter().map(bind).collect()
}

/// Starts a thread for each service. It ends with the process.
pub(super) fn start(services: Vec<Bound>) -> io::Result<()> {
    for service in services {
        let name = format!("forebay-{}", service.name());
        thread::Builder::new()
            .name(name)
            .spawn(move || service.serve())?;
    }
    Ok(())
}

impl Bound {
    fn name(&self) -> &'static str {
        match self.kind {
            ServiceKind::Echo => "echo",
            ServiceKind::Discard => "discard",
            ServiceKind::Daytime => "daytime",
            ServiceKind::Dns(_) => "dns",
        }
    }

    fn serve(&self) {
        let mut buf = vec![0; LONGEST];
        loop {
            // An error is one that an ICMP message brought, about an answer of ours: no reason to
            // end, and nobody to tell.
            let Ok((len, from, to)) = self.socket.recv_from_to(&mut buf) else {
                continue;
            };
            let datagram = buf.get(..len).unwrap_or_default();
            self.answer(datagram, from, to);
        }
    }

    /// Answers from the address that was asked, which is not the nearest to the client where there
    /// are several. What does not go out is lost, as UDP may lose it.
    fn answer(&self, datagram: &[u8], client: SocketAddr, own: SocketAddr) {
        // Two servers could keep each other busy for ever (CERT advisory CA-1996-01).
        if client.port() < FIRST_CLIENT_PORT {
            return;
        }
        let sent = match &self.kind {
            ServiceKind::Discard => return,
            ServiceKind::Echo => self.socket.send_from_to(datagram, own, client),
            ServiceKind::Daytime => {
                let line = daytime(SystemTime::now());
                self.socket.send_from_to(line.as_bytes(), own, client)
            }
            ServiceKind::Dns(zone) => match dns::answer(zone, datagram) {
                Some(answer) => self.socket.send_from_to(&answer, own, client),
                None => return,
            },
        };
        drop(sent);
    }
}

/// Date and time in UTC, in the form that RFC 867 shows: `Sunday, May 3, 2026 14:07:09-UTC`.
fn daytime(now: SystemTime) -> String {
    const WEEKDAYS: [&str; 7] = [
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
        "Monday",
        "Tuesday",
        "Wednesday",
    ];
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let word = |words: &[&'static str], index: u64| {
        let index = usize::try_from(index).unwrap_or_default();
        words.get(index).copied().unwrap_or_default()
    };
    format!(
        "{}, {} {day}, {year} {:02}:{:02}:{:02}-UTC\r\n",
        word(&WEEKDAYS, days % 7), // 1 January 1970 was a Thursday
        word(&MONTHS, month - 1),
        second / 3_600,
        second / 60 % 60,
        second % 60,
    )
}

/// Year, month (1 to 12) and day (1 to 31) of a day counted from 1 January 1970.
///
/// Years begin in March here, so that the leap day is the last of its year: the months before
/// any month then have the same number of days every year, (153 m + 2) / 5.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468; // from 1 March of the year 0
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let leap_days = day_of_era / 1_460 - day_of_era / 36_524 + day_of_era / 146_096;
    let year_of_era = (day_of_era - leap_days) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * march_month + 2) / 5 + 1;
    let month = if march_month < 10 {
        march_month + 3
    } else {
        march_month - 9
    };
    let year = 400 * era + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn daytime_tells_date_and_time() {
        let cases = [
            (0, "Thursday, January 1, 1970 00:00:00-UTC\r\n"),
            (951_825_599, "Tuesday, February 29, 2000 11:59:59-UTC\r\n"),
            (
                1_709_251_199,
                "Thursday, February 29, 2024 23:59:59-UTC\r\n",
            ),
            (1_709_251_200, "Friday, March 1, 2024 00:00:00-UTC\r\n"),
            (
                4_102_444_799,
                "Thursday, December 31, 2099 23:59:59-UTC\r\n",
            ),
            (4_107_542_400, "Monday, March 1, 2100 00:00:00-UTC\r\n"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(daytime(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
