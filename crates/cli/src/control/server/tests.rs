//! Over a real socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::*;
use crate::control::client::{Client, ClientError};
use crate::control::protocol::{Conflict, ENTRIES_PER_ANSWER, Family, Network, Request, Route};

struct Rig {
    parent: tempfile::TempDir,
    stack: Stack,
}

impl Rig {
    fn new() -> Self {
        let stack = Stack::builder().seed([1, 2]).build().unwrap();
        Self {
            parent: tempfile::tempdir().unwrap(),
            stack,
        }
    }

    fn directory(&self) -> PathBuf {
        self.parent.path().join("forebay")
    }

    fn serve(&self, name: &str) -> io::Result<ControlServer> {
        serve_in(&self.directory(), &self.stack, name)
    }

    fn client(&self, name: Option<&str>) -> Result<Client, ClientError> {
        Client::connect_in(&self.directory(), name)
    }

    fn connect(&self) -> UnixStream {
        UnixStream::connect(self.directory().join("main.sock")).unwrap()
    }

    /// What the stack says to these bytes.
    fn raw(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect();
        // The stack may have had enough before it has read all.
        let _ = stream.write_all(bytes);
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line
    }
}

#[test]
fn a_stack_is_watched_as_long_as_the_connection_lasts() {
    let rig = Rig::new();
    let _server = rig.serve("main").unwrap();
    let mut client = rig.client(None).unwrap();
    assert!(!rig.stack.is_watched());
    client.activity().unwrap();
    assert!(rig.stack.is_watched());
    // As if the command had been killed: nothing is said any more.
    drop(client);
    let deadline = Instant::now() + Duration::from_secs(20);
    while rig.stack.is_watched() {
        assert!(Instant::now() < deadline, "it is watched for ever");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_command_reads_and_changes_the_stack() {
    let rig = Rig::new();
    let _server = rig.serve("main").unwrap();
    let mut client = rig.client(None).unwrap();
    assert_eq!(client.sysctl("net.ipv4.ip_forward").unwrap(), "0");
    let (name, value) = ("net.ipv4.ip_forward".to_owned(), "1".to_owned());
    client.change(Request::SetSysctl { name, value }).unwrap();
    assert_eq!(
        rig.stack.inner().sysctl("net.ipv4.ip_forward").unwrap(),
        "1"
    );
    let error = client.sysctl("net.nonsense").unwrap_err().to_string();
    assert!(
        error.starts_with("forebay answers: No such file or directory: "),
        "{error}"
    );
}

#[test]
fn the_socket_is_for_the_owner_alone_and_goes_with_the_server() {
    let rig = Rig::new();
    let server = rig.serve("main").unwrap();
    let path = rig.directory().join("main.sock");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&path), mode(&rig.directory())), (0o600, 0o700));
    let idle = rig.connect();
    let began = Instant::now();
    drop(server);
    assert!(
        began.elapsed() < Duration::from_secs(2),
        "an idle command holds nobody up"
    );
    assert!(!path.exists());
    drop(idle);
}

#[test]
fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let rig = Rig::new();
    RuntimeDir::create(&rig.directory()).unwrap();
    drop(UnixListener::bind(rig.directory().join("main.sock")).unwrap());
    let _server = rig.serve("main").unwrap();
    rig.client(Some("main")).unwrap();
    let error = rig.serve("main").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(
        error.to_string().contains("give this one another name"),
        "{error}"
    );
    rig.client(Some("main")).unwrap();

    fs::write(rig.directory().join("file.sock"), "precious").unwrap();
    assert!(
        rig.serve("file")
            .unwrap_err()
            .to_string()
            .contains("is no socket")
    );
}

#[test]
fn what_stacks_leave_behind_is_swept_up() {
    let rig = Rig::new();
    let directory = RuntimeDir::create(&rig.directory()).unwrap();
    drop(UnixListener::bind(rig.directory().join("run-1.sock")).unwrap());
    fs::write(directory.history("run-1"), "{}").unwrap();
    let server = rig.serve("main").unwrap();
    fs::write(directory.history("main"), "{}").unwrap();
    let names = || {
        let entries = fs::read_dir(rig.directory()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(), ["main.nstat", "main.sock"]);
    drop(server);
    assert!(names().is_empty(), "{:?}", names());
}

#[test]
fn a_successors_socket_is_left_alone() {
    let rig = Rig::new();
    let first = rig.serve("main").unwrap();
    fs::remove_file(rig.directory().join("main.sock")).unwrap();
    let _second = rig.serve("main").unwrap();
    drop(first);
    rig.client(None).unwrap();
}

#[test]
fn the_only_stack_needs_no_name() {
    let rig = Rig::new();
    // As a command prints it.
    let why = |name| format!("{:#}", anyhow::Error::from(rig.client(name).err().unwrap()));
    assert!(why(None).contains("start one with `forebay run`"));
    assert!(why(Some("a")).contains("no stack called \"a\" is running"));
    let a = rig.serve("a").unwrap();
    rig.client(None).unwrap();
    assert_eq!(
        why(Some("c")),
        "no stack called \"c\" is running; running: a"
    );
    let b = rig.serve("b").unwrap();
    assert_eq!(
        why(None),
        "several stacks are running: a, b; name one with --stack NAME"
    );
    rig.client(Some("b")).unwrap();
    drop(a);
    rig.client(None).unwrap();
    drop(b);
    assert!(why(None).contains("no stack is running"));
    assert!(why(Some("../a")).contains("can't be a stack's name"));
}

#[test]
fn garbage_gets_an_error_and_hurts_nobody() {
    let rig = Rig::new();
    let _server = rig.serve("main").unwrap();
    for garbage in [
        &b"\n"[..],
        b"hello\n",
        b"{\"version\":1}\n",
        b"{\"version\":1,\"request\":\"nonsense\"}\n",
        b"{\"version\":1,\"request\":{\"sysctl\":7}}\n",
        b"\xff\xfe\x00\n",
        b"[[[[[[[[[[[[[[\n",
    ] {
        let answer = rig.raw(garbage);
        assert!(
            answer.contains("\"errno\":\"EINVAL\""),
            "{garbage:?}: {answer}"
        );
    }
    let answer = rig.raw(b"{\"version\":2,\"something\":\"new\"}\n");
    assert!(answer.contains("EPROTONOSUPPORT"), "{answer}");
    let answer = rig.raw(&vec![b'['; 2 * MAX_CALL]);
    assert!(answer.contains("EMSGSIZE"), "{answer}");
    assert_eq!(
        rig.client(None)
            .unwrap()
            .sysctl("net.ipv4.ip_forward")
            .unwrap(),
        "0"
    );
}

#[test]
fn too_many_commands_are_told_to_try_again() {
    let rig = Rig::new();
    let _server = rig.serve("main").unwrap();
    let idle: Vec<_> = (0..MAX_CONNECTIONS).map(|_| rig.connect()).collect();
    let mut refused = rig.client(Some("main")).unwrap();
    let error = refused.sysctls().unwrap_err().to_string();
    assert!(error.contains("too many commands at a time"), "{error}");
    drop(idle);
    let began = Instant::now();
    while rig.client(Some("main")).unwrap().sysctls().is_err() {
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "places become free"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_long_list_arrives_whole() {
    let rig = Rig::new();
    let _server = rig.serve("main").unwrap();
    let mut client = rig.client(None).unwrap();
    let count = 2 * ENTRIES_PER_ANSWER + 1;
    for host in 0..count {
        let addr = std::net::Ipv4Addr::from_bits(0x0a00_0000 + host as u32).into();
        let route = Route {
            table: 100,
            kind: "blackhole".to_owned(),
            prefix: Network { addr, len: 32 },
            via: None,
            dev: None,
            src: None,
            metric: None,
            scope: None,
            protocol: 4,
            mtu: None,
            onlink: false,
        };
        client
            .change(Request::AddRoute {
                route,
                conflict: Conflict::Refuse,
            })
            .unwrap();
    }
    assert_eq!(client.routes(Family::Inet, Some(100)).unwrap().len(), count);
    assert_eq!(client.routes(Family::Inet, Some(7)).unwrap(), []);
}
