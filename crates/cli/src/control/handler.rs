//! What a stack does about a request.

use forebay::Stack;
use forebay::interface::{Interface, InterfaceAddress, LOOPBACK};
use forebay::multicast::{self, GroupInfo};
use forebay::watch::Watch;

use super::protocol::{
    Counters, Drops, Errno, Failure, Family, Group, Link, LinkAddress, Network, Reply, Request,
    SourceMode, UdpSocket,
};

mod activity;
mod failure;
mod routing;

use routing::Routing;

type Result<T> = std::result::Result<T, Failure>;

/// What is asked for over one connection.
pub(super) struct Session<'s> {
    stack: &'s Stack,
    /// Names this run of the stack.
    run: &'s str,
    /// As long as the command listens that wants to know, however it ends.
    watch: Option<Watch>,
}

impl<'s> Session<'s> {
    pub(super) fn new(stack: &'s Stack, run: &'s str) -> Self {
        Self {
            stack,
            run,
            watch: None,
        }
    }

    /// Does what is asked for.
    pub(super) fn handle(&mut self, request: Request) -> Reply {
        dispatch(self, request).unwrap_or_else(Reply::Failed)
    }
}

fn dispatch(session: &mut Session<'_>, request: Request) -> Result<Reply> {
    let Session { stack, run, .. } = *session;
    let inner = stack.inner();
    match request {
        Request::Sysctls => Ok(Reply::Sysctls(inner.sysctls())),
        Request::Sysctl { name } => Ok(Reply::Value(inner.sysctl(&name)?)),
        Request::SetSysctl { name, value } => done(inner.set_sysctl(&name, &value)?),
        Request::Links => Ok(Reply::Links(inner.interfaces().iter().map(link).collect())),
        Request::SetLink { dev, up, mtu } => done(set_link(stack, &dev, up, mtu)?),
        Request::AddAddress {
            dev,
            address: Network { addr, len },
        } => done(inner.add_address(ifindex(stack, &dev)?, addr, len)?),
        Request::DeleteAddress {
            dev,
            address: Network { addr, len },
        } => done(inner.remove_address(ifindex(stack, &dev)?, addr, len)?),
        Request::Routes { family, table } => {
            Ok(Reply::Routes(routing(stack, family).routes(table)))
        }
        Request::AddRoute { route, conflict } => {
            done(routing(stack, Family::of(route.prefix.addr)).add_route(&route, conflict)?)
        }
        Request::DeleteRoute(selector) => {
            done(routing(stack, Family::of(selector.prefix.addr)).delete_route(&selector)?)
        }
        Request::LookUp(lookup) => Ok(Reply::Path(routing::look_up(stack, &lookup)?)),
        Request::Rules { family } => Ok(Reply::Rules(routing(stack, family).rules())),
        Request::AddRule(rule) => done(routing(stack, rule.family).add_rule(&rule)?),
        Request::DeleteRule(rule) => done(routing(stack, rule.family).delete_rule(&rule)?),
        Request::Counters => Ok(Reply::Counters(counters(stack, run))),
        Request::UdpSockets => Ok(Reply::UdpSockets(udp_sockets(stack))),
        Request::Groups => {
            let groups = inner.multicast_groups().into_iter();
            Ok(Reply::Groups(groups.map(group).collect()))
        }
        Request::Activity => {
            let watch = session.watch.get_or_insert_with(|| stack.watch());
            Ok(Reply::Activity(activity::activity(stack, run, watch)))
        }
    }
}

fn done((): ()) -> Result<Reply> {
    Ok(Reply::Done)
}

fn routing(stack: &Stack, family: Family) -> Box<dyn Routing + '_> {
    match family {
        Family::Inet => Box::new(routing::FamilyRouting::new(stack, stack.inner().fib4())),
        Family::Inet6 => Box::new(routing::FamilyRouting::new(stack, stack.inner().fib6())),
    }
}

fn ifindex(stack: &Stack, name: &str) -> Result<u32> {
    let found = stack.inner().interface_named(name);
    found.map(|interface| interface.index).ok_or_else(|| {
        let what = format!("there is no interface {name:?}; `forebay link` lists them");
        Failure::new(Errno::NoDev, what)
    })
}

fn set_link(stack: &Stack, dev: &str, up: Option<bool>, mtu: Option<u32>) -> Result<()> {
    let ifindex = ifindex(stack, dev)?;
    if let Some(mtu) = mtu {
        stack.inner().set_mtu(ifindex, mtu)?;
    }
    if let Some(up) = up {
        stack.inner().set_interface_up(ifindex, up)?;
    }
    Ok(())
}

fn link(interface: &Interface) -> Link {
    Link {
        index: interface.index,
        name: interface.name.clone(),
        mtu: interface.mtu,
        up: interface.up,
        loopback: interface.index == LOOPBACK,
        addresses: interface
            .addresses
            .iter()
            .map(|own| address(interface, own))
            .collect(),
    }
}

fn address(interface: &Interface, own: &InterfaceAddress) -> LinkAddress {
    LinkAddress {
        network: Network {
            addr: own.addr,
            len: own.prefix_len,
        },
        broadcast: own
            .broadcast()
            .filter(|_| interface.index != LOOPBACK)
            .map(Into::into),
    }
}

fn counters(stack: &Stack, run: &str) -> Counters {
    let snapshot = stack.inner().counters();
    let snmp = snapshot
        .counters()
        .map(|(counter, value)| (counter.name().to_owned(), value));
    let drops = snapshot.drops().map(|(reason, packets)| Drops {
        reason: reason.name().to_owned(),
        packets,
        doc: reason.doc().trim().to_owned(),
    });
    Counters {
        run: run.to_owned(),
        snmp: snmp.collect(),
        drops: drops.collect(),
    }
}

fn group(info: GroupInfo) -> Group {
    Group {
        ifindex: info.ifindex,
        addr: info.group,
        users: info.users,
        mode: match info.mode {
            multicast::SourceMode::Include => SourceMode::Include,
            multicast::SourceMode::Exclude => SourceMode::Exclude,
        },
        sources: info.sources,
    }
}

fn udp_sockets(stack: &Stack) -> Vec<UdpSocket> {
    let names = InterfaceNames::of(stack);
    let sockets = stack.inner().udp_sockets().into_iter();
    let sockets = sockets.map(|socket| UdpSocket {
        local: socket.local,
        peer: socket.peer,
        dev: socket.device.map(|ifindex| names.get(ifindex)),
        v6only: socket.v6only,
        transparent: socket.transparent,
        rmem: socket.recv_q.into(),
        rcvbuf: socket.rcvbuf.into(),
        drops: socket.drops.into(),
    });
    sockets.collect()
}

/// What people call the interfaces at this moment.
struct InterfaceNames(Vec<(u32, String)>);

impl InterfaceNames {
    fn of(stack: &Stack) -> Self {
        let interfaces = stack.inner().interfaces().into_iter();
        Self(
            interfaces
                .map(|interface| (interface.index, interface.name))
                .collect(),
        )
    }

    /// As iproute2 does, calls an interface that is gone by its index.
    fn get(&self, ifindex: u32) -> String {
        let found = self.0.iter().find(|(index, _)| *index == ifindex);
        found.map_or_else(|| format!("if{ifindex}"), |(_, name)| name.clone())
    }
}

#[cfg(test)]
mod tests;
