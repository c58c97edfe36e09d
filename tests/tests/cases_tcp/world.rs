//! A scenario in every way that must not matter: family, early demux, and where sequence numbers lie.

use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::time::Duration;

use forebay_stack::StackConfig;
use forebay_stack::packet::IpVersion;
use forebay_stack::socket::SocketId;
use forebay_stack::tcp::{SendFlags, TcpError, TcpOption, TcpState};
use forebay_tests::{Net, Rig};

use crate::peer::{ACK, Peer, RST, Segment};

pub(crate) const OWN_PORT: u16 = 80;
pub(crate) const PEER_PORT: u16 = 40_000;

/// Initial numbers of the stack's side and of the peer's: near where sums go round, near where signs
/// change, and 0.
const ISNS: [(u32, u32); 5] = [
    (0xffff_fff0, 0x7fff_fff0),
    (0x7fff_fff0, 0xffff_fff0),
    (0, 0),
    (0xffff_ffff, 0xffff_ffff),
    (1_000_000, 2_000_000),
];

/// A rig, one of its families, and where numbers begin.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) rig: Rig,
    pub(crate) net: Net,
    /// The stack's initial number towards the usual peer's port, if the handshake begins now.
    pub(crate) iss: u32,
    pub(crate) irs: u32,
}

/// Runs a scenario in every world. Afterwards nothing is left of its connections.
pub(crate) fn everywhere(mut scenario: impl FnMut(&mut World)) {
    for net in [Net::V4, Net::V6] {
        for early_demux in [true, false] {
            for (iss, irs) in ISNS {
                // Shown if the scenario fails.
                println!(
                    "IPv4: {}, early demux: {early_demux}, {iss:#x}, {irs:#x}",
                    net.is_v4()
                );
                let mut world = World::new(net, early_demux, iss, irs);
                scenario(&mut world);
                world.clear();
            }
        }
    }
}

impl World {
    fn new(net: Net, early_demux: bool, iss: u32, irs: u32) -> Self {
        let rig = Rig::with(&StackConfig {
            buffers: 1_024,
            reserve: 256,
            seed: [1, 2],
            ..StackConfig::default()
        });
        rig.set("net.ipv4.ip_early_demux", i64::from(early_demux));
        let mut world = Self { rig, net, iss, irs };
        world.wait_for_iss();
        world
    }

    /// Lets time pass until the stack's next connection with the usual peer begins at `iss`: first
    /// numbers of one flow go on by one in four microseconds (RFC 9293 section 3.4.1).
    fn wait_for_iss(&mut self) {
        let listener = self.listen(1);
        let mut peer = self.peer();
        let answer = peer.begin(&mut self.rig);
        peer.send(&mut self.rig, &peer.segment(0, RST));
        self.close(listener);
        let steps = self.iss.wrapping_sub(answer.seq);
        self.rig.advance(Duration::from_micros(4) * steps);
        assert!(self.rig.is_silent());
    }

    /// The usual peer.
    pub(crate) fn peer(&self) -> Peer {
        self.peer_at(PEER_PORT)
    }

    /// The same at another port.
    pub(crate) fn peer_at(&self, port: u16) -> Peer {
        Peer::new(self.net.peer(port), self.net.own(OWN_PORT), self.irs)
    }

    pub(crate) fn open(&self) -> SocketId {
        let version = self.net.pick(IpVersion::V4, IpVersion::V6);
        self.rig.stack.tcp_open(version).expect("a socket")
    }

    /// A listener on the usual port.
    pub(crate) fn listen(&self, backlog: u32) -> SocketId {
        self.listen_on(self.net.own(OWN_PORT), backlog)
    }

    pub(crate) fn listen_on(&self, addr: SocketAddr, backlog: u32) -> SocketId {
        let id = self.open();
        self.set(id, TcpOption::ReuseAddr(true));
        self.rig.stack.tcp_bind(id, addr).expect("an address");
        self.rig.stack.tcp_listen(id, backlog).expect("a listener");
        id
    }

    /// A socket bound to the usual port whose SYN to the peer is under way.
    pub(crate) fn connecting(&self) -> SocketId {
        let id = self.open();
        self.set(id, TcpOption::ReuseAddr(true));
        let (own, peer) = (self.net.own(OWN_PORT), self.net.peer(PEER_PORT));
        self.rig.stack.tcp_bind(id, own).expect("an address");
        let now = self.rig.now();
        self.rig.stack.tcp_connect(now, id, peer).expect("a route");
        id
    }

    /// A connection that the usual peer began, and the listener that it is from.
    #[track_caller]
    pub(crate) fn accepted(&mut self) -> (Peer, SocketId, SocketId) {
        let listener = self.listen(8);
        let mut peer = self.peer();
        let id = peer.connect(&mut self.rig, listener);
        assert_eq!(peer.ack, self.iss.wrapping_add(1));
        (peer, id, listener)
    }

    /// The same, of the peer's choice of options and without a listener.
    #[track_caller]
    pub(crate) fn connection_with(&mut self, peer: &mut Peer) -> SocketId {
        let listener = self.listen(8);
        let id = peer.connect(&mut self.rig, listener);
        self.close(listener);
        id
    }

    /// An established connection.
    #[track_caller]
    pub(crate) fn connection(&mut self) -> (Peer, SocketId) {
        let mut peer = self.peer();
        let id = self.connection_with(&mut peer);
        (peer, id)
    }

    /// A connection that the stack began.
    #[track_caller]
    pub(crate) fn connected(&mut self) -> (Peer, SocketId) {
        let id = self.connecting();
        let mut peer = self.peer();
        peer.accept(&mut self.rig);
        assert_eq!(peer.ack, self.iss.wrapping_add(1));
        assert_eq!(self.rig.stack.tcp_is_connected(id), Ok(true));
        (peer, id)
    }

    pub(crate) fn set(&self, id: SocketId, option: TcpOption) {
        let now = self.rig.now();
        self.rig.stack.tcp_set(now, id, option).expect("an option");
    }

    /// Reads what is there.
    pub(crate) fn read(&self, id: SocketId) -> Result<Option<Vec<u8>>, TcpError> {
        let mut buf = vec![0; 100_000];
        let mut bufs = [IoSliceMut::new(&mut buf)];
        let len = self
            .rig
            .stack
            .tcp_recv(self.rig.now(), id, &mut bufs, false)?;
        Ok(len.map(|len| {
            buf.truncate(len);
            buf
        }))
    }

    /// Reads all that is there, in as many calls as it takes; `None` at its end if more may come.
    #[track_caller]
    pub(crate) fn read_all(&self, id: SocketId) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(bytes) = self.read(id).expect("no error") {
            if bytes.is_empty() {
                break;
            }
            all.extend(bytes);
        }
        all
    }

    #[track_caller]
    pub(crate) fn write(&self, id: SocketId, bytes: &[u8]) -> usize {
        let sent = self.try_write(id, bytes).expect("no error");
        sent.unwrap_or(0)
    }

    pub(crate) fn try_write(&self, id: SocketId, bytes: &[u8]) -> Result<Option<usize>, TcpError> {
        let bufs = [IoSlice::new(bytes)];
        let flags = SendFlags::default();
        self.rig.stack.tcp_send(self.rig.now(), id, &bufs, flags)
    }

    pub(crate) fn close(&self, id: SocketId) {
        self.rig
            .stack
            .tcp_close(self.rig.now(), id)
            .expect("an open socket");
    }

    /// The stack closes first, and the peer answers each step: the connection waits for its end.
    #[track_caller]
    pub(crate) fn close_first(&mut self, peer: &mut Peer, id: SocketId) {
        self.close(id);
        peer.take_fin(&mut self.rig);
        assert_eq!(self.states(), [TcpState::FinWait1]);
        let ack = peer.segment(0, ACK);
        self.unanswered(peer, &ack);
        assert_eq!(self.states(), [TcpState::FinWait2]);
        let last = peer.finish(&mut self.rig);
        assert_eq!(last.brief(), peer.plain_ack());
        assert_eq!(self.states(), [TcpState::TimeWait]);
    }

    pub(crate) fn shutdown(&self, id: SocketId, how: std::net::Shutdown) -> Result<(), TcpError> {
        self.rig.stack.tcp_shutdown(self.rig.now(), id, how)
    }

    /// States of all sockets, half-open and ended connections but listeners, sorted by name.
    pub(crate) fn states(&self) -> Vec<TcpState> {
        let sockets = self.rig.stack.tcp_sockets(self.rig.now());
        let mut states: Vec<_> = sockets.iter().map(|socket| socket.state).collect();
        states.retain(|state| *state != TcpState::Listen);
        states.sort_by_key(|state| format!("{state:?}"));
        states
    }

    /// The state of a socket.
    #[track_caller]
    pub(crate) fn state(&self, id: SocketId) -> TcpState {
        let sockets = self.rig.stack.tcp_sockets(self.rig.now());
        let found = sockets.iter().find(|socket| socket.id == Some(id));
        found.expect("a socket").state
    }

    /// Sends a segment from the peer; checks that nothing comes back.
    #[track_caller]
    pub(crate) fn unanswered(&mut self, peer: &mut Peer, segment: &Segment) {
        let answers = peer.exchange(&mut self.rig, segment);
        assert!(answers.is_empty(), "{answers:x?} to {segment:x?}");
    }

    /// The same of a segment that is to get one answer.
    #[track_caller]
    pub(crate) fn answered(&mut self, peer: &mut Peer, segment: &Segment) -> Segment {
        let mut answers = peer.exchange(&mut self.rig, segment);
        assert_eq!(answers.len(), 1, "{answers:x?} to {segment:x?}");
        answers.remove(0)
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, duration: Duration) {
        self.rig.advance(duration);
    }

    /// Ends all that is left, and checks that it leaves nothing.
    fn clear(&mut self) {
        let sockets = self.rig.stack.tcp_sockets(self.rig.now());
        for id in sockets.iter().filter_map(|socket| socket.id) {
            let _ =
                self.rig
                    .stack
                    .tcp_set(self.rig.now(), id, TcpOption::Linger(Some(Duration::ZERO)));
            // It is refused to who closed its socket already.
            let _ = self.rig.stack.tcp_close(self.rig.now(), id);
        }
        // Half-open connections last for 63 s, what has ended for a minute, and what goes on alone
        // until it has been repeated often enough.
        for _ in 0..300 {
            self.pass(Duration::from_secs(1));
        }
        self.rig.output("tun0");
        self.rig.output("tun1");
        let left = self.rig.stack.tcp_sockets(self.rig.now());
        assert!(left.is_empty(), "{left:?}");
        assert_eq!(self.rig.buffers_in_use(), 0);
        assert_eq!(self.rig.stack.tcp_memory(), 0);
    }
}
