//! ipstack: it has no sockets. It accepts a stream for each flow that begins, so there are as many
//! flows here as there are sockets elsewhere, and each has begun before anything is measured.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::{Context as _, bail};
use ipstack::{IpStack, IpStackConfig, IpStackStream, IpStackUdpStream};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use crate::Peer;
use crate::datagrams::{Family, Frame, Inbox, socket_at};

/// Longer than any run: a flow that rests for so long is forgotten.
const FOREVER: Duration = Duration::from_secs(24 * 3_600);

pub(crate) struct Ipstack {
    runtime: Runtime,
    _stack: IpStack,
    device: Memory,
    streams: Vec<IpStackUdpStream>,
}

impl Ipstack {
    pub(crate) fn new(family: Family, sockets: u32) -> anyhow::Result<Self> {
        let runtime = Builder::new_current_thread().enable_time().build()?;
        let device = Memory::default();
        let mut config = IpStackConfig::default();
        config.udp_timeout(FOREVER);
        let its_device = device.clone();
        let (stack, streams) = runtime.block_on(async {
            let mut stack = IpStack::new(config, its_device);
            let mut streams = Vec::new();
            for nth in 0..sockets as usize {
                device.offer(&[Frame::new(family, nth, 0)]);
                device.wake();
                let IpStackStream::Udp(mut stream) = stack.accept().await? else {
                    bail!("ipstack took a datagram for something else");
                };
                stream.read(&mut [0; 64]).await?;
                // What a stream calls its peer is where the datagram was sent to.
                anyhow::ensure!(socket_at(stream.peer_addr().port()) == nth);
                streams.push(stream);
            }
            Ok((stack, streams))
        })?;
        Ok(Self {
            runtime,
            _stack: stack,
            device,
            streams,
        })
    }
}

impl Peer for Ipstack {
    fn offer(&mut self, frames: &[Frame]) {
        self.device.offer(frames);
    }

    /// Its streams say nothing of what is there, so this waits for all of them: a datagram that is
    /// lost would end the run.
    fn receive(&mut self, sockets: &[usize], inbox: &mut Inbox) -> anyhow::Result<usize> {
        self.device.wake();
        let Self {
            runtime, streams, ..
        } = self;
        runtime.block_on(async {
            let mut received = 0;
            for (socket, (buffer, len)) in sockets.iter().zip(inbox.places()) {
                let stream = streams.get_mut(*socket).context("no such stream")?;
                *len = stream.read(buffer).await?;
                received += 1;
            }
            Ok(received)
        })
    }
}

/// A device that has frames in memory, and takes in what it is to send without a trace.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Waiting>>);

#[derive(Default)]
struct Waiting {
    frames: VecDeque<Frame>,
    /// Of the stack, when it waits for frames.
    waker: Option<Waker>,
}

impl Memory {
    fn offer(&self, frames: &[Frame]) {
        self.waiting().frames.extend(frames);
    }

    fn wake(&self) {
        let waker = self.waiting().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncRead for Memory {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut waiting = self.waiting();
        match waiting.frames.pop_front() {
            Some(frame) => {
                buffer.put_slice(frame.bytes());
                Poll::Ready(Ok(()))
            }
            None => {
                waiting.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl AsyncWrite for Memory {
    fn poll_write(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
