//! A command's side of the socket.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::lines::Lines;
use super::protocol::{
    Activity, Answer, Call, Counters, Failure, Family, Group, Link, Lookup, MAX_ANSWER,
    Path as RoutePath, Reply, Request, Route, Rule, UdpSocket, VERSION,
};
use super::runtime_dir::RuntimeDir;

/// Names the stack where the command line doesn't: `forebay exec` sets it for its command.
pub(crate) const STACK: &str = "FOREBAY_STACK";

/// How long a stack may take to answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a stack could not be asked, or what it says against the request.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// There is nobody to ask.
    #[error("no stack is running (looked in {}); start one with `forebay run`", .0.display())]
    NoneRunning(PathBuf),
    /// There is no telling whom to ask.
    #[error("several stacks are running: {}; name one with --stack NAME", .0.join(", "))]
    SeveralRunning(Vec<String>),
    /// The one to ask is not there.
    #[error("no stack called {name:?} is running{}", others(.running))]
    NotRunning {
        /// The one to ask.
        name: String,
        /// Those that are there.
        running: Vec<String>,
    },
    /// The request was refused.
    #[error("forebay answers: {0}")]
    Refused(Failure),
    /// What came back was no answer.
    #[error(
        "the stack gave an answer that makes no sense here; use the `forebay` that it was started with"
    )]
    Garbled,
    /// The socket failed.
    #[error("the stack can't be reached")]
    Io(#[from] io::Error),
}

fn others(running: &[String]) -> String {
    match running {
        [] => "; start one with `forebay run`".to_owned(),
        names => format!("; running: {}", names.join(", ")),
    }
}

/// A connection to a stack.
pub(crate) struct Client {
    lines: Lines,
    stack: String,
    directory: RuntimeDir,
}

impl Client {
    /// Connects to the stack of this name, or to the only one that is running.
    ///
    /// # Errors
    ///
    /// [`ClientError`], which says what to do.
    pub(crate) fn connect(stack: Option<&str>) -> Result<Self, ClientError> {
        let named = stack
            .map(str::to_owned)
            .or_else(|| std::env::var(STACK).ok().filter(|name| !name.is_empty()));
        Self::connect_in(&RuntimeDir::path_for_this_user(), named.as_deref())
    }

    /// [`connect`](Self::connect) in this directory.
    pub(super) fn connect_in(path: &Path, stack: Option<&str>) -> Result<Self, ClientError> {
        let directory = match RuntimeDir::open(path) {
            Ok(directory) => directory,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(match stack {
                    None => ClientError::NoneRunning(path.to_owned()),
                    Some(name) => ClientError::NotRunning {
                        name: name.to_owned(),
                        running: Vec::new(),
                    },
                });
            }
            Err(error) => return Err(ClientError::Io(error)),
        };
        let (stack, stream) = match stack {
            Some(name) => Self::named(&directory, name)?,
            None => Self::only(&directory, path)?,
        };
        Ok(Self {
            lines: Lines::new(stream, MAX_ANSWER, TIMEOUT),
            stack,
            directory,
        })
    }

    fn named(directory: &RuntimeDir, name: &str) -> Result<(String, UnixStream), ClientError> {
        match UnixStream::connect(directory.socket(name)?) {
            Ok(stream) => Ok((name.to_owned(), stream)),
            Err(_) => {
                let running = running(directory)?.into_iter().map(|(name, _)| name);
                Err(ClientError::NotRunning {
                    name: name.to_owned(),
                    running: running.collect(),
                })
            }
        }
    }

    fn only(directory: &RuntimeDir, path: &Path) -> Result<(String, UnixStream), ClientError> {
        let mut running = running(directory)?;
        match (running.pop(), running.as_slice()) {
            (None, _) => Err(ClientError::NoneRunning(path.to_owned())),
            (Some(only), []) => Ok(only),
            (Some(last), _) => {
                running.push(last);
                let names = running.into_iter().map(|(name, _)| name).collect();
                Err(ClientError::SeveralRunning(names))
            }
        }
    }

    /// The name of the stack.
    pub(crate) fn stack(&self) -> &str {
        &self.stack
    }

    /// Where `nstat` keeps what it has shown of this stack.
    pub(crate) fn history(&self) -> PathBuf {
        self.directory.history(&self.stack)
    }

    /// Has something done.
    pub(crate) fn change(&mut self, request: Request) -> Result<(), ClientError> {
        match self.ask(request)? {
            Reply::Done => Ok(()),
            _ => Err(ClientError::Garbled),
        }
    }

    /// The value of a knob.
    pub(crate) fn sysctl(&mut self, name: &str) -> Result<String, ClientError> {
        match self.ask(Request::Sysctl {
            name: name.to_owned(),
        })? {
            Reply::Value(value) => Ok(value),
            _ => Err(ClientError::Garbled),
        }
    }

    /// All knobs with their values, sorted.
    pub(crate) fn sysctls(&mut self) -> Result<Vec<(String, String)>, ClientError> {
        match self.ask(Request::Sysctls)? {
            Reply::Sysctls(sysctls) => Ok(sysctls),
            _ => Err(ClientError::Garbled),
        }
    }

    /// All interfaces.
    pub(crate) fn links(&mut self) -> Result<Vec<Link>, ClientError> {
        match self.ask(Request::Links)? {
            Reply::Links(links) => Ok(links),
            _ => Err(ClientError::Garbled),
        }
    }

    /// The routes of a table, or of all.
    pub(crate) fn routes(
        &mut self,
        family: Family,
        table: Option<u32>,
    ) -> Result<Vec<Route>, ClientError> {
        match self.ask(Request::Routes { family, table })? {
            Reply::Routes(routes) => Ok(routes),
            _ => Err(ClientError::Garbled),
        }
    }

    /// The way that a packet would take.
    pub(crate) fn look_up(&mut self, lookup: Lookup) -> Result<RoutePath, ClientError> {
        match self.ask(Request::LookUp(lookup))? {
            Reply::Path(path) => Ok(path),
            _ => Err(ClientError::Garbled),
        }
    }

    /// The rules in the order in which they are tried.
    pub(crate) fn rules(&mut self, family: Family) -> Result<Vec<Rule>, ClientError> {
        match self.ask(Request::Rules { family })? {
            Reply::Rules(rules) => Ok(rules),
            _ => Err(ClientError::Garbled),
        }
    }

    /// What has been counted.
    pub(crate) fn counters(&mut self) -> Result<Counters, ClientError> {
        match self.ask(Request::Counters)? {
            Reply::Counters(counters) => Ok(counters),
            _ => Err(ClientError::Garbled),
        }
    }

    /// The open UDP sockets.
    pub(crate) fn udp_sockets(&mut self) -> Result<Vec<UdpSocket>, ClientError> {
        match self.ask(Request::UdpSockets)? {
            Reply::UdpSockets(sockets) => Ok(sockets),
            _ => Err(ClientError::Garbled),
        }
    }

    /// The multicast groups that interfaces are in.
    pub(crate) fn groups(&mut self) -> Result<Vec<Group>, ClientError> {
        match self.ask(Request::Groups)? {
            Reply::Groups(groups) => Ok(groups),
            _ => Err(ClientError::Garbled),
        }
    }

    /// What the stack does; it measures more from the first time on.
    pub(crate) fn activity(&mut self) -> Result<Activity, ClientError> {
        match self.ask(Request::Activity)? {
            Reply::Activity(activity) => Ok(activity),
            _ => Err(ClientError::Garbled),
        }
    }

    fn ask(&mut self, request: Request) -> Result<Reply, ClientError> {
        let call = Call {
            version: VERSION,
            request,
        };
        let written = self
            .lines
            .write(serde_json::to_vec(&call).map_err(io::Error::from)?);
        // A stack that takes no more connections says so and closes, without reading.
        let mut answer = match (self.answer(), written) {
            (Err(ClientError::Io(_)), Err(error)) => return Err(ClientError::Io(error)),
            (answer, _) => answer?,
        };
        while answer.more {
            let next = self.answer()?;
            answer.more = next.more;
            answer
                .reply
                .append(next.reply)
                .map_err(|_| ClientError::Garbled)?;
        }
        match answer.reply {
            Reply::Failed(failure) => Err(ClientError::Refused(failure)),
            reply => Ok(reply),
        }
    }

    fn answer(&mut self) -> Result<Answer, ClientError> {
        let line = self.lines.read()?;
        let line = line.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        serde_json::from_slice(&line).map_err(|_| ClientError::Garbled)
    }
}

/// The stacks that accept connections, by name.
fn running(directory: &RuntimeDir) -> io::Result<Vec<(String, UnixStream)>> {
    let names = directory.stacks()?.into_iter();
    let running = names.filter_map(|name| {
        let stream = UnixStream::connect(directory.socket(&name).ok()?).ok()?;
        Some((name, stream))
    });
    Ok(running.collect())
}
