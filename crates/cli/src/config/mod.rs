//! The configuration of `forebay run` and `forebay exec`: TOML, checked as a whole before anything
//! is opened. `docs/config.md` is its manual.

mod device;
mod problem;
mod reader;
mod routing;
mod service;
#[cfg(test)]
mod tests;
mod traffic;
mod units;

use std::path::Path;

use anyhow::Context;
use forebay::steer::MAX_CPUS;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::control::is_stack_name;
use crate::text_file;
pub(crate) use device::{Device, Impair, Kind, Pcap, Speed, Tun};
pub(crate) use problem::{ConfigError, Problem, Source};
pub(crate) use reader::suggestion;
use reader::{Table, Value, text, unexpected};
pub(crate) use routing::{Route, Rule, RuleAction};
pub(crate) use service::{Data, Service, ServiceKind, Zone};
pub(crate) use traffic::{Mix, Traffic};
pub(crate) use units::{Net, duration};

/// What a stack is to be.
#[derive(Debug)]
pub(crate) struct Config {
    /// To point into, for what turns out to be wrong later.
    pub(crate) source: Source,
    pub(crate) stack: StackSettings,
    pub(crate) sysctls: Vec<Sysctl>,
    pub(crate) devices: Vec<Device>,
    pub(crate) routes: Vec<Route>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) services: Vec<Service>,
    pub(crate) traffic: Vec<Traffic>,
}

/// `[stack]`. What is not set is left to the library.
#[derive(Debug, Default)]
pub(crate) struct StackSettings {
    /// Name of the control socket.
    pub(crate) name: Option<String>,
    /// Packet buffers of 2,112 bytes.
    pub(crate) buffers: Option<usize>,
    /// Those of them that sockets may never hold.
    pub(crate) reserve: Option<usize>,
    /// Workers, each on a processor of its own.
    pub(crate) workers: Option<u16>,
    /// To repeat a run.
    pub(crate) seed: Option<u64>,
}

/// Buffers of a stack whose configuration says nothing about them.
const DEFAULT_BUFFERS: u64 = 16_384;

/// A line of `[sysctl]`.
#[derive(Debug)]
pub(crate) struct Sysctl {
    pub(crate) name: Spanned<String>,
    pub(crate) value: Spanned<String>,
}

impl Config {
    /// Reads a file.
    pub(crate) fn load(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot read the configuration {}", path.display());
        let text = text_file::read(path).with_context(cannot)?;
        Ok(Self::parse(&path.display().to_string(), text)?)
    }

    /// Reads a text; `name` is what messages call it.
    pub(crate) fn parse(name: &str, text: impl Into<String>) -> Result<Self, ConfigError> {
        let source = Source::new(name, text);
        let parsed = DeTable::parse(source.text()).map_err(|error| {
            let span = error.span().unwrap_or_default();
            Problem::new(span, error.message())
        });
        let checked = parsed.and_then(|root| {
            let root = Table::new("the configuration", root.span(), root.get_ref());
            Self::read(&source, root)
        });
        checked.map_err(|problem| source.explain(problem))
    }

    fn read(source: &Source, mut root: Table<'_, '_>) -> Result<Self, Problem> {
        let config = Self {
            source: source.clone(),
            stack: match root.value("stack") {
                Some(value) => StackSettings::read(Table::of("[stack]", value)?)?,
                None => StackSettings::default(),
            },
            sysctls: match root.value("sysctl") {
                Some(value) => sysctls(value)?,
                None => Vec::new(),
            },
            devices: root.tables("device", "[[device]]", Device::read)?,
            routes: root.tables("route", "[[route]]", Route::read)?,
            rules: root.tables("rule", "[[rule]]", Rule::read)?,
            services: root.tables("service", "[[service]]", Service::read)?,
            traffic: root.tables("traffic", "[[traffic]]", Traffic::read)?,
        };
        root.finish()?;
        config.check()?;
        Ok(config)
    }

    /// What one entry says about another.
    fn check(&self) -> Result<(), Problem> {
        for (index, device) in self.devices.iter().enumerate() {
            let name = &device.name;
            let before = self.devices.get(..index).unwrap_or_default();
            if name.get_ref() == "lo" || before.iter().any(|other| other.name == *name) {
                let what = format!("a second device called {name}");
                return Err(Problem::new(name.span(), what));
            }
        }
        let routes = self.routes.iter().flat_map(|route| &route.dev);
        let rules = self.rules.iter().flat_map(|rule| &rule.iif);
        for name in routes.chain(rules).filter(|name| name.get_ref() != "lo") {
            self.device(name)?;
        }
        for traffic in &self.traffic {
            self.check_traffic(traffic)?;
        }
        Ok(())
    }

    fn check_traffic(&self, traffic: &Traffic) -> Result<(), Problem> {
        let device = self.device(&traffic.device)?;
        let Kind::Wire(wire) = &device.kind else {
            let what = format!(
                "{} is no wire: only those have traffic of their own",
                device.name.get_ref()
            );
            return Err(Problem::new(traffic.device.span(), what));
        };
        let family_of = |net: &Spanned<Net>| net.get_ref().addr.is_ipv4();
        let is_usable = |is_ipv4: bool| {
            let has = |nets: &[Spanned<Net>]| nets.iter().any(|net| family_of(net) == is_ipv4);
            has(&device.addresses) && has(&wire.peer_addresses)
        };
        if !is_usable(true) && !is_usable(false) {
            let what = "the wire needs `addresses` and `peer_addresses` of one family at least";
            return Err(Problem::new(traffic.device.span(), what));
        }
        let stranded = traffic
            .transit_to
            .iter()
            .find(|net| !is_usable(family_of(net)));
        match stranded {
            Some(net) => {
                let what = format!(
                    "the wire has no addresses that traffic to {} could come from",
                    net.get_ref()
                );
                Err(Problem::new(net.span(), what))
            }
            None => Ok(()),
        }
    }

    fn device(&self, name: &Spanned<String>) -> Result<&Device, Problem> {
        let found = self.devices.iter().find(|device| device.name == *name);
        found.ok_or_else(|| {
            let names: Vec<&str> = self
                .devices
                .iter()
                .map(|d| d.name.get_ref().as_str())
                .collect();
            let help = match suggestion(name.get_ref(), &names) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None if names.is_empty() => "there are no devices".to_owned(),
                None => format!("the devices are: {}", names.join(", ")),
            };
            Problem::new(
                name.span(),
                format!("there is no device called {:?}", name.get_ref()),
            )
            .help(help)
        })
    }
}

impl StackSettings {
    fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let name = table.value("name").map(stack_name).transpose();
        let buffers = table.number("buffers", 256..=16_777_216)?;
        let below = buffers.unwrap_or(DEFAULT_BUFFERS) - 1;
        let settings = Self {
            name: name.map_err(|problem| problem.of_key("name"))?,
            reserve: table.number("reserve", 0..=below)?,
            buffers: buffers.map(|buffers| usize::try_from(buffers).unwrap_or(usize::MAX)),
            workers: table.number("workers", 1..=u64::from(MAX_CPUS))?,
            seed: table.number("seed", 0..=u64::MAX)?,
        };
        table.finish()?;
        Ok(settings)
    }
}

fn stack_name(value: &Value<'_>) -> Result<String, Problem> {
    let expected = "1 to 32 letters, digits, '-', '_', '.', and no '.' in front";
    text(value, expected, |name| {
        is_stack_name(name).then(|| name.to_owned())
    })
}

/// The knobs in the order of the file. Dotted keys, quoted or not, and tables all spell a name:
/// `net.ipv4.ip_forward = 1`.
fn sysctls(value: &Value<'_>) -> Result<Vec<Sysctl>, Problem> {
    let mut knobs = Vec::new();
    collect_sysctls("", Table::of("[sysctl]", value)?, &mut knobs)?;
    knobs.sort_by_key(|knob| knob.name.span().start);
    Ok(knobs)
}

fn collect_sysctls(
    prefix: &str,
    table: Table<'_, '_>,
    knobs: &mut Vec<Sysctl>,
) -> Result<(), Problem> {
    for (key, value) in table.entries() {
        let name = match prefix {
            "" => (*key.get_ref()).to_owned(),
            _ => format!("{prefix}.{}", key.get_ref()),
        };
        let text = match value.get_ref() {
            DeValue::Table(_) => {
                collect_sysctls(&name, Table::of("[sysctl]", value)?, knobs)?;
                continue;
            }
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(integer) => integer.to_string(),
            _ => {
                let problem = unexpected(value, "a number, or a string (\"32768 60999\")");
                return Err(problem.of_key(&name));
            }
        };
        knobs.push(Sysctl {
            name: Spanned::new(key.span(), name),
            value: Spanned::new(value.span(), text),
        });
    }
    Ok(())
}
