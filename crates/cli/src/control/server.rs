//! A stack's side of the socket: a thread that accepts, and one for each connection.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::Shutdown;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use forebay::Stack;
use serde::de::DeserializeOwned;

use super::handler::Session;
use super::lines::Lines;
use super::protocol::{Answer, Call, Errno, Failure, MAX_CALL, Reply, VERSION, Versioned};
use super::runtime_dir::RuntimeDir;

/// Connections at a time.
const MAX_CONNECTIONS: usize = 16;

/// How long a command may be silent, or leave an answer unread.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Answers commands until it is dropped, which removes the socket.
#[derive(Debug)]
pub(crate) struct ControlServer {
    listener: Arc<UnixListener>,
    connections: Arc<Connections>,
    accepting: Option<JoinHandle<()>>,
    socket: SocketFile,
}

/// Lets commands find the stack under `name`.
///
/// # Errors
///
/// [`io::ErrorKind::AddrInUse`] if a stack of that name is running; what the runtime directory or
/// the name has against it.
pub(crate) fn serve(stack: &Stack, name: &str) -> io::Result<ControlServer> {
    serve_in(&RuntimeDir::path_for_this_user(), stack, name)
}

/// [`serve`] in this directory.
fn serve_in(directory: &Path, stack: &Stack, name: &str) -> io::Result<ControlServer> {
    let directory = RuntimeDir::create(directory)?;
    let (listener, socket) = bind(directory, name)?;
    let listener = Arc::new(listener);
    let connections = Arc::new(Connections::default());
    let accepting = {
        let (listener, connections) = (Arc::clone(&listener), Arc::clone(&connections));
        let stack = stack.clone();
        let run = process_run();
        thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || accept(&listener, &connections, &stack, &run))?
    };
    Ok(ControlServer {
        listener,
        connections,
        accepting: Some(accepting),
        socket,
    })
}

impl Drop for ControlServer {
    fn drop(&mut self) {
        // First the name, so that no command comes in any more and a successor may take it.
        self.socket.remove();
        // Shutting a listening socket down wakes who accepts on it.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        self.connections.stop();
        if let Some(accepting) = self.accepting.take() {
            let _ = accepting.join();
        }
    }
}

/// Takes the name, if it is free.
fn bind(directory: RuntimeDir, name: &str) -> io::Result<(UnixListener, SocketFile)> {
    let path = directory.socket(name)?;
    // Under the lock, nobody is between making a socket and listening on it.
    let _others_wait = directory.lock()?;
    sweep(&directory)?;
    if let Ok(metadata) = fs::symlink_metadata(&path) {
        if metadata.file_type().is_socket() {
            let why = format!(
                "a stack called {name:?} is running already; stop it, or give this one another name"
            );
            return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        }
        let why = format!("{} is no socket; remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    let listener = UnixListener::bind(&path)?;
    RuntimeDir::close_to_others(&path)?;
    let metadata = fs::symlink_metadata(&path)?;
    let inode = (metadata.dev(), metadata.ino());
    let name = name.to_owned();
    Ok((
        listener,
        SocketFile {
            directory,
            name,
            path,
            inode,
        },
    ))
}

/// Removes what stacks have left behind that had no time to clean up.
fn sweep(directory: &RuntimeDir) -> io::Result<()> {
    for name in directory.stacks()? {
        let Ok(path) = directory.socket(&name) else {
            continue;
        };
        let is_socket =
            fs::symlink_metadata(&path).is_ok_and(|found| found.file_type().is_socket());
        let is_refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
        if is_socket && UnixStream::connect(&path).is_err_and(is_refused) {
            let _ = fs::remove_file(&path);
            let _ = fs::remove_file(directory.history(&name));
        }
    }
    Ok(())
}

/// The socket in the file system.
#[derive(Debug)]
struct SocketFile {
    directory: RuntimeDir,
    name: String,
    path: PathBuf,
    inode: (u64, u64),
}

impl SocketFile {
    /// Removes it, with what commands keep about the stack, unless somebody has put another in its
    /// place.
    fn remove(&self) {
        let inode = fs::symlink_metadata(&self.path).map(|found| (found.dev(), found.ino()));
        if inode.is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(self.directory.history(&self.name));
        }
    }
}

/// Different in every run of a stack.
fn process_run() -> String {
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = started.map_or(0, |since| since.as_nanos());
    format!("{}-{nanos}", std::process::id())
}

fn accept(listener: &UnixListener, connections: &Connections, stack: &Stack, run: &str) {
    thread::scope(|scope| {
        while !connections.are_stopped() {
            let Ok((stream, _)) = listener.accept() else {
                // Out of descriptors, most likely: that passes.
                thread::sleep(Duration::from_millis(20));
                continue;
            };
            let Some(connection) = connections.enter(&stream) else {
                refuse(stream);
                continue;
            };
            let talk = move || {
                converse(Lines::new(stream, MAX_CALL, TIMEOUT), stack, run);
                drop(connection);
            };
            let name = "control call".to_owned();
            // A thread that can't be started closes the connection.
            let _ = thread::Builder::new().name(name).spawn_scoped(scope, talk);
        }
    });
}

fn refuse(stream: UnixStream) {
    let why = "too many commands at a time; try again";
    let reply = Reply::Failed(Failure::new(Errno::Again, why));
    let _ = answer(
        &mut Lines::new(stream, MAX_CALL, Duration::from_millis(100)),
        reply,
    );
}

/// Answers call after call; whatever is wrong with the connection ends it.
fn converse(mut lines: Lines, stack: &Stack, run: &str) {
    let mut session = Session::new(stack, run);
    loop {
        let reply = match lines.read() {
            Ok(Some(line)) => match parse_call(&line) {
                Ok(call) => session.handle(call.request),
                Err(failure) => Reply::Failed(failure),
            },
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                let why = format!("a request has at most {MAX_CALL} bytes");
                let _ = answer(&mut lines, Reply::Failed(Failure::new(Errno::MsgSize, why)));
                return;
            }
            Ok(None) | Err(_) => return,
        };
        if answer(&mut lines, reply).is_err() {
            return;
        }
    }
}

fn parse_call(line: &[u8]) -> Result<Call, Failure> {
    let Versioned { version } = parse(line)?;
    if version != VERSION {
        let what = format!(
            "the stack speaks version {VERSION} and the command version {version}; \
             use the `forebay` that the stack was started with"
        );
        return Err(Failure::new(Errno::ProtoNoSupport, what));
    }
    parse(line)
}

fn parse<T: DeserializeOwned>(line: &[u8]) -> Result<T, Failure> {
    let invalid = |error| Failure::new(Errno::Inval, format!("no request: {error}"));
    serde_json::from_slice(line).map_err(invalid)
}

fn answer(lines: &mut Lines, reply: Reply) -> io::Result<()> {
    let mut pieces = reply.into_pieces().into_iter().peekable();
    while let Some(reply) = pieces.next() {
        let more = pieces.peek().is_some();
        let answer = Answer {
            version: VERSION,
            more,
            reply,
        };
        lines.write(serde_json::to_vec(&answer)?)?;
    }
    Ok(())
}

/// The open connections.
#[derive(Debug, Default)]
struct Connections {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    stopped: bool,
    last_key: u64,
    streams: HashMap<u64, UnixStream>,
}

/// Leaves on drop.
struct Connection<'a> {
    connections: &'a Connections,
    key: u64,
}

impl Connections {
    /// `None` if there are too many already, or it is over.
    fn enter(&self, stream: &UnixStream) -> Option<Connection<'_>> {
        let stream = stream.try_clone().ok()?;
        let mut state = self.lock();
        if state.stopped || state.streams.len() >= MAX_CONNECTIONS {
            return None;
        }
        state.last_key += 1;
        let key = state.last_key;
        state.streams.insert(key, stream);
        Some(Connection {
            connections: self,
            key,
        })
    }

    /// Ends all connections and lets no more in.
    fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        for stream in state.streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn are_stopped(&self) -> bool {
        self.lock().stopped
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        self.connections.lock().streams.remove(&self.key);
    }
}

#[cfg(test)]
mod tests;
