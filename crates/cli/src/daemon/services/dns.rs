//! A name server (RFC 1035) that knows what its configuration says, with EDNS (RFC 6891).

use domain::base::iana::{Class, Opcode, OptRcode, Rcode, Rtype};
use domain::base::message_builder::{AnswerBuilder, PushError};
use domain::base::opt::{Opt, OptRecord};
use domain::base::{Message, MessageBuilder, ParsedName, Question, StaticCompressor, ToName};

use crate::config::{Data, Zone};

/// What a client can take that says nothing about it (RFC 1035 section 4.2.1), and the least that is
/// believed of one that does (RFC 6891 section 6.2.3).
const LEAST: u16 = 512;

/// The longest datagram over IPv4.
const MOST: u16 = 65_507;

/// What clients are told that we can take: queries are short.
const OURS: u16 = 1_232;

/// An OPT record without options (RFC 6891 section 6.1.2).
const OPT_LEN: usize = 11;

/// The only version of EDNS that there is.
const VERSION: u8 = 0;

type Builder = AnswerBuilder<StaticCompressor<Vec<u8>>>;

/// What a client asks, as far as it can be understood.
struct Query<'q> {
    question: Question<ParsedName<&'q [u8]>>,
    edns: Option<Edns>,
}

struct Edns {
    version: u8,
    udp_payload_size: u16,
}

/// The answer to a datagram, if it is a query.
pub(super) fn answer(zone: &Zone, datagram: &[u8]) -> Option<Vec<u8>> {
    let message = Message::from_octets(datagram).ok()?;
    if message.header().qr() {
        return None;
    }
    match Query::of(&message) {
        Ok(query) => query.answer(&message, zone).ok(),
        Err(rcode) => Some(refuse(&message, rcode)),
    }
}

impl<'q> Query<'q> {
    fn of(message: &Message<&'q [u8]>) -> Result<Self, Rcode> {
        if message.header().opcode() != Opcode::QUERY {
            return Err(Rcode::NOTIMP);
        }
        let malformed = |_| Rcode::FORMERR;
        let question = message.sole_question().map_err(malformed)?;
        let mut opts = message
            .additional()
            .map_err(malformed)?
            .limit_to::<Opt<&[u8]>>();
        let opt = opts.next().transpose().map_err(malformed)?;
        if opts.next().is_some() {
            return Err(Rcode::FORMERR);
        }
        let edns = opt.map(|opt| {
            let opt = OptRecord::from(opt);
            Edns {
                version: opt.version(),
                udp_payload_size: opt.udp_payload_size(),
            }
        });
        Ok(Self { question, edns })
    }

    fn answer(&self, message: &Message<&[u8]>, zone: &Zone) -> Result<Vec<u8>, PushError> {
        let bad_version = self.edns.as_ref().is_some_and(|it| it.version != VERSION);
        let (rcode, found) = match bad_version {
            true => (Rcode::NOERROR, Vec::new()),
            false => self.look_up(zone),
        };
        let mut answer = MessageBuilder::from_target(StaticCompressor::new(Vec::new()))?
            .start_answer(message, rcode)?;
        answer.header_mut().set_aa(true);
        // The limit itself is too long.
        answer.set_push_limit(self.room(zone) + 1);
        let name = self.question.qname();
        let pushed = found
            .into_iter()
            .try_for_each(|data| push(&mut answer, name, zone.ttl, data));
        if pushed.is_err() {
            answer = answer.tc_rewind_into();
        }
        answer.clear_push_limit();

        let mut additional = answer.additional();
        if self.edns.is_some() {
            additional.opt(|opt| {
                opt.set_udp_payload_size(OURS);
                if bad_version {
                    opt.set_rcode(OptRcode::BADVERS);
                }
                Ok(())
            })?;
        }
        Ok(additional.finish().into_target())
    }

    /// What is known of the name; everything if the client wants any (RFC 1035 section 3.2.3).
    fn look_up<'z>(&self, zone: &'z Zone) -> (Rcode, Vec<&'z Data>) {
        if ![Class::IN, Class::ANY].contains(&self.question.qclass()) {
            return (Rcode::REFUSED, Vec::new());
        }
        let Some(data) = zone.names.get(&self.question.qname().to_vec()) else {
            return (Rcode::NXDOMAIN, Vec::new());
        };
        let qtype = self.question.qtype();
        let is_asked = |data: &&Data| qtype == Rtype::ANY || qtype == rtype(data);
        (Rcode::NOERROR, data.iter().filter(is_asked).collect())
    }

    /// Bytes that the answer may take, without the record that says that we know EDNS.
    fn room(&self, zone: &Zone) -> usize {
        let size = match &self.edns {
            _ if !zone.truncate => MOST,
            Some(edns) => edns.udp_payload_size.clamp(LEAST, MOST),
            None => LEAST,
        };
        usize::from(size) - self.edns.as_ref().map_or(0, |_| OPT_LEN)
    }
}

fn rtype(data: &Data) -> Rtype {
    match data {
        Data::A(_) => Rtype::A,
        Data::Aaaa(_) => Rtype::AAAA,
        Data::Txt(_) => Rtype::TXT,
    }
}

fn push(answer: &mut Builder, name: &impl ToName, ttl: u32, data: &Data) -> Result<(), PushError> {
    match data {
        Data::A(data) => answer.push((name, ttl, data)),
        Data::Aaaa(data) => answer.push((name, ttl, data)),
        Data::Txt(data) => answer.push((name, ttl, data)),
    }
}

/// Nothing but the reason.
fn refuse(message: &Message<&[u8]>, rcode: Rcode) -> Vec<u8> {
    let mut refusal = MessageBuilder::new_vec();
    let header = refusal.header_mut();
    header.set_id(message.header().id());
    header.set_qr(true);
    header.set_opcode(message.header().opcode());
    header.set_rd(message.header().rd());
    header.set_rcode(rcode);
    refusal.finish()
}

#[cfg(test)]
mod tests;
