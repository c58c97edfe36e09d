//! The knobs: name, default, range and meaning in one table. Everything else derives from it.
//!
//! The names are Linux's, so are defaults and ranges; what Linux has no knob for is under
//! `net.forebay`. A stack has its own set; a snapshot is
//! immutable, the packet path reads it under its guard, and a write is in force when it returns.

mod format;
mod table;
#[cfg(test)]
mod tests;
mod triple;

use self::table::{CONF_KNOBS, KNOBS};
pub use self::table::{ConfKnob, Definition, Knob};
use self::triple::{TRIPLES, Triple};
use crate::tcp::Algorithm;

/// What `net.ipv4.tcp_congestion_control` may be set to. Nobody sets this one: it says what there is.
const AVAILABLE: &str = "net.ipv4.tcp_available_congestion_control";

/// Packs a port range into a knob's value.
pub const fn port_range(first: u16, last: u16) -> i64 {
    ((first as i64) << 16) | last as i64
}

type Conf = [i64; CONF_KNOBS.len()];

/// Why a knob could not be read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SysctlError {
    /// ENOENT.
    #[error("no knob is called {0:?}; `forebay sysctl -a` lists them")]
    NotFound(String),
    /// EINVAL.
    #[error("{name} takes {expected}, not {value:?}")]
    Invalid {
        /// The knob.
        name: String,
        /// What was written.
        value: String,
        /// What would have been right.
        expected: String,
    },
    /// EACCES.
    #[error("{0} can only be read")]
    ReadOnly(&'static str),
}

/// The values of all knobs: one immutable snapshot.
#[derive(Debug, Clone)]
pub struct Sysctls {
    values: [i64; KNOBS.len()],
    triples: [[u32; 3]; TRIPLES.len()],
    all: Conf,
    default: Conf,
    /// By interface index; `None` where there is no such interface.
    interfaces: Vec<Option<(String, Conf)>>,
}

impl Default for Sysctls {
    fn default() -> Self {
        let mut conf = [0; CONF_KNOBS.len()];
        for (value, (_, definition)) in conf.iter_mut().zip(CONF_KNOBS) {
            *value = definition.default;
        }
        let mut values = [0; KNOBS.len()];
        for (value, (_, definition)) in values.iter_mut().zip(KNOBS) {
            *value = definition.default;
        }
        Self {
            values,
            triples: TRIPLES.each_ref().map(|(_, definition)| definition.default),
            all: conf,
            default: conf,
            interfaces: Vec::new(),
        }
    }
}

impl Sysctls {
    /// A knob's value.
    pub fn get(&self, knob: Knob) -> i64 {
        self.values[knob as usize]
    }

    /// Whether a knob is not 0.
    pub fn is_on(&self, knob: Knob) -> bool {
        self.get(knob) != 0
    }

    /// The ephemeral ports, first and last.
    pub fn local_port_range(&self) -> (u16, u16) {
        unpack_ports(self.get(Knob::IpLocalPortRange))
    }

    /// `net.ipv4.udp_mem`: min, pressure and max, in pages.
    pub(crate) fn udp_mem(&self) -> [u32; 3] {
        self.triple(Triple::UdpMem)
    }

    /// Sets what `net.ipv4.udp_mem` starts from.
    pub(crate) fn set_udp_mem(&mut self, pages: [u32; 3]) {
        self.triples[Triple::UdpMem as usize] = pages;
    }

    /// `net.ipv4.tcp_mem`: low, pressure and high, in pages.
    pub(crate) fn tcp_mem(&self) -> [u32; 3] {
        self.triple(Triple::TcpMem)
    }

    /// `net.ipv4.tcp_rmem`: min, default and max, in bytes.
    pub(crate) fn tcp_rmem(&self) -> [u32; 3] {
        self.triple(Triple::TcpRmem)
    }

    /// `net.ipv4.tcp_wmem`: the same for sending.
    pub(crate) fn tcp_wmem(&self) -> [u32; 3] {
        self.triple(Triple::TcpWmem)
    }

    /// `net.ipv4.tcp_congestion_control`.
    pub(crate) fn tcp_congestion_control(&self) -> Algorithm {
        format::algorithm(self.get(Knob::TcpCongestionControl))
    }

    fn triple(&self, triple: Triple) -> [u32; 3] {
        self.triples[triple as usize]
    }

    /// What is written under `all`.
    pub fn conf_all(&self, knob: ConfKnob) -> i64 {
        self.all[knob as usize]
    }

    /// The interface's own value; `default`'s for an unknown interface.
    pub fn conf(&self, ifindex: u32, knob: ConfKnob) -> i64 {
        let conf = self
            .interfaces
            .get(ifindex as usize)
            .and_then(Option::as_ref);
        conf.map_or(&self.default, |(_, conf)| conf)[knob as usize]
    }

    /// Linux's `IN_DEV_MAXCONF`: the larger of `all` and the interface's.
    pub fn conf_max(&self, ifindex: u32, knob: ConfKnob) -> i64 {
        self.conf_all(knob).max(self.conf(ifindex, knob))
    }

    /// Linux's `IN_DEV_ORCONF`: `all` or the interface's.
    pub fn conf_or(&self, ifindex: u32, knob: ConfKnob) -> bool {
        self.conf_all(knob) != 0 || self.conf(ifindex, knob) != 0
    }

    /// Linux's `IN_DEV_ANDCONF`: `all` and the interface's.
    pub fn conf_and(&self, ifindex: u32, knob: ConfKnob) -> bool {
        self.conf_all(knob) != 0 && self.conf(ifindex, knob) != 0
    }

    /// Gives a new interface the values of `default`.
    pub(crate) fn add_interface(&mut self, ifindex: u32, name: &str) {
        let index = ifindex as usize;
        if self.interfaces.len() <= index {
            self.interfaces.resize(index + 1, None);
        }
        self.interfaces[index] = Some((name.to_owned(), self.default));
    }

    /// Forgets an interface's values.
    pub(crate) fn remove_interface(&mut self, ifindex: u32) {
        if let Some(conf) = self.interfaces.get_mut(ifindex as usize) {
            *conf = None;
        }
    }

    /// Reads a knob by name, as sysctl(8) prints it.
    ///
    /// # Errors
    ///
    /// [`SysctlError::NotFound`].
    pub fn read(&self, name: &str) -> Result<String, SysctlError> {
        if canonical(name) == AVAILABLE {
            return Ok(format::available_algorithms());
        }
        if let Some(triple) = Triple::called(&canonical(name)) {
            return Ok(Triple::print(self.triple(triple)));
        }
        let place = self.find(name)?;
        Ok(place.print(*self.value(&place)))
    }

    /// Writes a knob by name, on a copy that is then published.
    ///
    /// # Errors
    ///
    /// [`SysctlError`], with nothing changed.
    pub fn write(&mut self, name: &str, text: &str) -> Result<(), SysctlError> {
        let invalid = |expected| SysctlError::Invalid {
            name: canonical(name),
            value: text.to_owned(),
            expected,
        };
        if canonical(name) == AVAILABLE {
            return Err(SysctlError::ReadOnly(AVAILABLE));
        }
        if let Some(triple) = Triple::called(&canonical(name)) {
            let numbers = triple
                .parse(text)
                .ok_or_else(|| invalid(triple.expected()))?;
            self.triples[triple as usize] = numbers;
            return Ok(());
        }
        let place = self.find(name)?;
        let value = place.parse(text).ok_or_else(|| invalid(place.expected()))?;
        match place {
            Place::Conf(Scope::All, knob @ (ConfKnob::V4Forwarding | ConfKnob::V6Forwarding)) => {
                self.set_forwarding_everywhere(knob, value);
            }
            Place::Conf(Scope::Interface(index), knob) => {
                if let Some(Some((_, conf))) = self.interfaces.get_mut(index) {
                    conf[knob as usize] = value;
                }
            }
            Place::Conf(Scope::All, knob) => self.all[knob as usize] = value,
            Place::Conf(Scope::Default, knob) => self.default[knob as usize] = value,
            Place::Stack(knob) => self.values[knob as usize] = value,
        }
        Ok(())
    }

    /// Every knob with its value, sorted by name.
    pub fn list(&self) -> Vec<(String, String)> {
        let mut list = vec![
            (
                "net.ipv4.ip_forward".to_owned(),
                self.conf_all(ConfKnob::V4Forwarding).to_string(),
            ),
            (AVAILABLE.to_owned(), format::available_algorithms()),
        ];
        for (knob, definition) in KNOBS {
            let place = Place::Stack(**knob);
            list.push((definition.name.to_owned(), place.print(self.get(**knob))));
        }
        for (triple, definition) in &TRIPLES {
            let numbers = Triple::print(self.triple(*triple));
            list.push((definition.name.to_owned(), numbers));
        }
        for (knob, definition) in CONF_KNOBS {
            let name = |scope: &str| definition.name.replace('*', scope);
            list.push((name("all"), self.conf_all(**knob).to_string()));
            list.push((name("default"), self.default[**knob as usize].to_string()));
            for (interface, conf) in self.interfaces.iter().flatten() {
                list.push((name(interface), conf[**knob as usize].to_string()));
            }
        }
        list.sort();
        list
    }

    /// Linux's `inet_forward_change`: a host becomes a router, or stops being one, as a whole.
    fn set_forwarding_everywhere(&mut self, knob: ConfKnob, value: i64) {
        self.all[knob as usize] = value;
        self.default[knob as usize] = value;
        for (_, conf) in self.interfaces.iter_mut().flatten() {
            conf[knob as usize] = value;
        }
    }

    fn find(&self, name: &str) -> Result<Place, SysctlError> {
        let name = canonical(name);
        if name == "net.ipv4.ip_forward" {
            return Ok(Place::Conf(Scope::All, ConfKnob::V4Forwarding));
        }
        if let Some(knob) = knob_called(&name) {
            return Ok(Place::Stack(knob));
        }
        for (knob, definition) in CONF_KNOBS {
            let Some((front, back)) = definition.name.split_once('*') else {
                continue;
            };
            let scope = name
                .strip_prefix(front)
                .and_then(|rest| rest.strip_suffix(back));
            if let Some(scope) = scope.and_then(|scope| self.scope(scope)) {
                return Ok(Place::Conf(scope, **knob));
            }
        }
        Err(SysctlError::NotFound(name))
    }

    fn scope(&self, name: &str) -> Option<Scope> {
        match name {
            "all" => Some(Scope::All),
            "default" => Some(Scope::Default),
            _ => {
                let is_it = |conf: &Option<(String, Conf)>| {
                    conf.as_ref()
                        .is_some_and(|(interface, _)| interface == name)
                };
                self.interfaces.iter().position(is_it).map(Scope::Interface)
            }
        }
    }

    fn value(&self, place: &Place) -> &i64 {
        match place {
            Place::Stack(knob) => &self.values[*knob as usize],
            Place::Conf(Scope::All, knob) => &self.all[*knob as usize],
            Place::Conf(Scope::Default, knob) => &self.default[*knob as usize],
            Place::Conf(Scope::Interface(index), knob) => {
                let conf = self.interfaces.get(*index).and_then(Option::as_ref);
                &conf.map_or(&self.default, |(_, conf)| conf)[*knob as usize]
            }
        }
    }
}

/// Where a name leads.
enum Place {
    Stack(Knob),
    Conf(Scope, ConfKnob),
}

enum Scope {
    All,
    Default,
    Interface(usize),
}

impl Place {
    fn definition(&self) -> &'static Definition {
        match self {
            Self::Stack(knob) => &KNOBS[*knob as usize].1,
            Self::Conf(_, knob) => &CONF_KNOBS[*knob as usize].1,
        }
    }
}

/// The names of all knobs that can be written, for completion.
pub fn names() -> impl Iterator<Item = &'static str> {
    let stack = KNOBS.iter().map(|(_, definition)| definition.name);
    let triples = TRIPLES.iter().map(|(_, definition)| definition.name);
    let conf = CONF_KNOBS.iter().map(|(_, definition)| definition.name);
    stack.chain(triples).chain(conf)
}

/// The knob of the whole stack that has this name.
pub(crate) fn knob_called(name: &str) -> Option<Knob> {
    let name = canonical(name);
    let known = KNOBS.iter().find(|(_, definition)| definition.name == name);
    known.map(|(knob, _)| **knob)
}

/// sysctl(8) takes slashes as well as dots; with slashes, an interface's name may hold dots.
fn canonical(name: &str) -> String {
    let slashes = name
        .find(['.', '/'])
        .is_some_and(|at| name[at..].starts_with('/'));
    if slashes {
        name.replace('/', ".")
    } else {
        name.to_owned()
    }
}

fn unpack_ports(value: i64) -> (u16, u16) {
    let [.., a, b, c, d] = value.to_be_bytes();
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}
