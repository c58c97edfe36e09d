//! `[[service]]`: small servers over UDP.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use domain::base::{Name, ToName};
use domain::rdata::{A, Aaaa, Txt};
use toml::Spanned;
use toml::de::DeValue;

use super::problem::Problem;
use super::reader::{Read, Table, Value, unexpected};

/// A small server over UDP.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) kind: ServiceKind,
    pub(crate) listen: Spanned<SocketAddr>,
}

/// What a service does with a datagram.
#[derive(Debug, Clone)]
pub(crate) enum ServiceKind {
    /// Sends it back (RFC 862).
    Echo,
    /// Nothing (RFC 863).
    Discard,
    /// Answers with date and time (RFC 867).
    Daytime,
    /// Answers what is asked about names (RFC 1035).
    Dns(Arc<Zone>),
}

/// What a name server knows, which is all that there is: it has no other to ask.
#[derive(Debug)]
pub(crate) struct Zone {
    /// Names and what they have. Those above a name exist with it, and may have nothing (RFC 8020).
    pub(crate) names: BTreeMap<DomainName, Vec<Data>>,
    /// Seconds for which others may remember it.
    pub(crate) ttl: u32,
    /// Whether answers keep to what the client says that it can take.
    pub(crate) truncate: bool,
}

/// An absolute name. Upper and lower case are equal.
type DomainName = Name<Vec<u8>>;

/// One record's.
#[derive(Debug)]
pub(crate) enum Data {
    A(A),
    Aaaa(Aaaa),
    Txt(Txt<Vec<u8>>),
}

/// Kinds by name; the last one has more to say.
#[derive(Clone, Copy)]
enum Kind {
    Echo,
    Discard,
    Daytime,
    Dns,
}

const KINDS: &[(&str, Kind)] = &[
    ("echo", Kind::Echo),
    ("discard", Kind::Discard),
    ("daytime", Kind::Daytime),
    ("dns", Kind::Dns),
];

/// A minute, unless said.
const TTL: u32 = 60;

/// RFC 2181 section 8.
const MAX_TTL: u64 = (1 << 31) - 1;

impl Service {
    pub(super) fn read(mut table: Table<'_, '_>) -> Result<Self, Problem> {
        let kind = table.word("kind", KINDS)?;
        let service = Self {
            kind: match kind.ok_or_else(|| table.missing("kind"))? {
                Kind::Echo => ServiceKind::Echo,
                Kind::Discard => ServiceKind::Discard,
                Kind::Daytime => ServiceKind::Daytime,
                Kind::Dns => ServiceKind::Dns(Arc::new(Zone::read(&mut table)?)),
            },
            listen: table.required("listen")?,
        };
        table.finish()?;
        Ok(service)
    }
}

impl Zone {
    fn read(table: &mut Table<'_, '_>) -> Result<Self, Problem> {
        let mut zone = Self {
            names: BTreeMap::new(),
            ttl: table.number("ttl", 0..=MAX_TTL)?.unwrap_or(TTL),
            truncate: table.optional("truncate")?.unwrap_or(true),
        };
        if let Some(value) = table.value("addresses") {
            let table = Table::of("[service.addresses]", value)?;
            zone.read_names(table, |addr: IpAddr| Ok(Data::from(addr)))?;
        }
        if let Some(value) = table.value("texts") {
            let table = Table::of("[service.texts]", value)?;
            zone.read_names(table, |text: String| {
                // In strings of 255 bytes, as many as it takes.
                Txt::build_from_slice(text.as_bytes())
                    .map(Data::Txt)
                    .map_err(|error| error.to_string())
            })?;
        }
        Ok(zone)
    }

    /// Names, and an array of values for each.
    fn read_names<T: Read>(
        &mut self,
        table: Table<'_, '_>,
        data: impl Fn(T) -> Result<Data, String>,
    ) -> Result<(), Problem> {
        for (key, value) in table.entries() {
            let name = name(&key, value)?;
            for value in Vec::<Spanned<T>>::read(value)? {
                let span = value.span();
                let data = data(value.into_inner()).map_err(|what| Problem::new(span, what))?;
                self.add(&name, data);
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &DomainName, data: Data) {
        for name in name.iter_suffixes() {
            self.names.entry(name.to_vec()).or_default();
        }
        self.names.entry(name.clone()).or_default().push(data);
    }
}

fn name(key: &Spanned<&str>, value: &Value<'_>) -> Result<DomainName, Problem> {
    if let DeValue::Table(_) = value.get_ref() {
        let help = format!(
            "write names in quotes: \"{}.example\" = [...]",
            key.get_ref()
        );
        return Err(unexpected(value, "an array [...]").help(help));
    }
    key.get_ref().parse().map_err(|error| {
        let what = format!("{:?} is no domain name: {error}", key.get_ref());
        Problem::new(key.span(), what)
    })
}

impl From<IpAddr> for Data {
    fn from(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(addr) => Self::A(A::new(addr)),
            IpAddr::V6(addr) => Self::Aaaa(Aaaa::new(addr)),
        }
    }
}
