//! Who occupies one local address and port.

use crate::socket::SocketId;

/// What decides whether two sockets can have one address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Class {
    /// The interface that the socket is bound to, or 0.
    pub(crate) device: u32,
    /// `SO_REUSEADDR`: beside others that say so.
    pub(crate) share: bool,
    /// `SO_REUSEPORT`: in a group with others that say so.
    pub(crate) group: bool,
}

impl Class {
    /// Whether a socket keeps another off its address and port: Linux's `inet_rcv_saddr_equal`
    /// leads here, when the addresses overlap.
    pub(crate) fn conflicts(self, other: Self) -> bool {
        let same_device = self.device == 0 || other.device == 0 || self.device == other.device;
        same_device && !(self.share && other.share) && !(self.group && other.group)
    }
}

/// A socket that takes datagrams from anybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Listener {
    pub(crate) id: SocketId,
    pub(crate) class: Class,
    /// An `AF_INET6` socket, also where it takes IPv4.
    pub(crate) inet6: bool,
}

impl Listener {
    /// Whether the other stands for the same: a member of the same `SO_REUSEPORT` group.
    fn is_grouped_with(&self, other: &Self) -> bool {
        self.class.group && (self.class, self.inet6) == (other.class, other.inet6)
    }
}

/// The occupants. Mostly there is one, which costs no memory of its own.
#[derive(Debug)]
pub(super) enum Row {
    One(Occupant),
    Many(Box<Group>),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Occupant {
    pub(super) listener: Listener,
    /// Packets find it by all four addresses and ports: here it only keeps others off.
    pub(super) connected: bool,
}

#[derive(Debug, Default)]
pub(super) struct Group {
    listeners: Vec<Listener>,
    /// Connected sockets by class: there may be very many.
    connected: Vec<(Class, u32)>,
}

impl Row {
    pub(super) fn add(&mut self, occupant: Occupant) {
        if let Self::One(first) = *self {
            let mut group = Group::default();
            group.add(first);
            *self = Self::Many(Box::new(group));
        }
        if let Self::Many(group) = self {
            group.add(occupant);
        }
    }

    /// Takes an occupant out. True if the row is empty now.
    pub(super) fn remove(&mut self, occupant: &Occupant) -> bool {
        match self {
            Self::One(_) => true,
            Self::Many(group) => {
                group.remove(occupant);
                match (&group.listeners[..], &group.connected[..]) {
                    ([], []) => return true,
                    ([listener], []) => {
                        *self = Self::One(Occupant {
                            listener: *listener,
                            connected: false,
                        });
                    }
                    _ => {}
                }
                false
            }
        }
    }

    /// Whether an occupant keeps `class` off.
    pub(super) fn conflicts(&self, class: Class) -> bool {
        match self {
            Self::One(occupant) => occupant.listener.class.conflicts(class),
            Self::Many(group) => {
                group
                    .listeners
                    .iter()
                    .any(|listener| listener.class.conflicts(class))
                    || group
                        .connected
                        .iter()
                        .any(|(other, _)| other.conflicts(class))
            }
        }
    }

    /// Those that take datagrams from anybody, in the order in which they were bound.
    pub(super) fn listeners(&self) -> &[Listener] {
        match self {
            Self::One(Occupant {
                listener,
                connected: false,
            }) => core::slice::from_ref(listener),
            Self::One(_) => &[],
            Self::Many(group) => &group.listeners[..],
        }
    }
}

/// What a row has for a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Best {
    pub(crate) id: SocketId,
    /// Chosen from a group: another datagram may go to another member.
    pub(crate) is_member: bool,
}

/// The listener with the highest score: of equals, the last one bound; of a group, the member that
/// `choose` picks, by its place, or the next that has a score.
pub(super) fn best(
    listeners: &[Listener],
    mut score: impl FnMut(&Listener) -> Option<u32>,
    choose: impl FnOnce(&mut dyn Iterator<Item = &Listener>, usize) -> usize,
) -> Option<Best> {
    let mut best: Option<(u32, &Listener)> = None;
    for listener in listeners.iter().rev() {
        // Members of a group score alike, and a group may be large.
        if best.is_some_and(|(_, found)| found.is_grouped_with(listener)) {
            continue;
        }
        if let Some(score) = score(listener)
            && best.is_none_or(|(highest, _)| score > highest)
        {
            best = Some((score, listener));
        }
    }
    let (_, found) = best?;
    let members = || {
        listeners
            .iter()
            .filter(|other| found.is_grouped_with(other))
    };
    let count = members().count();
    if count < 2 {
        return Some(Best {
            id: found.id,
            is_member: false,
        });
    }
    let chosen = choose(&mut members(), count);
    let from_chosen = members().cycle().skip(chosen).take(count);
    let member = from_chosen
        .into_iter()
        .find(|member| score(member).is_some());
    member.map(|member| Best {
        id: member.id,
        is_member: true,
    })
}

impl Group {
    fn add(
        &mut self,
        Occupant {
            listener,
            connected,
        }: Occupant,
    ) {
        if connected {
            add(&mut self.connected, listener.class);
        } else {
            self.listeners.push(listener);
        }
    }

    fn remove(
        &mut self,
        Occupant {
            listener,
            connected,
        }: &Occupant,
    ) {
        if *connected {
            remove(&mut self.connected, listener.class);
        } else {
            self.listeners.retain(|other| other != listener);
        }
    }
}

/// Counts one more of its kind.
pub(super) fn add<K: PartialEq>(counts: &mut Vec<(K, u32)>, kind: K) {
    match counts.iter_mut().find(|(other, _)| *other == kind) {
        Some((_, count)) => *count += 1,
        None => counts.push((kind, 1)),
    }
}

/// Counts one less of its kind.
#[expect(clippy::needless_pass_by_value, reason = "the pair of `add`")]
pub(super) fn remove<K: PartialEq>(counts: &mut Vec<(K, u32)>, kind: K) {
    if let Some(at) = counts.iter().position(|(other, _)| *other == kind) {
        counts[at].1 -= 1;
        if counts[at].1 == 0 {
            counts.swap_remove(at);
        }
    }
}
