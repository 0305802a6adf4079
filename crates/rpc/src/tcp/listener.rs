//! The accepting half: takes connections of other nodes.
//!
//! Promises: bounded connections and handshakes; [`Listener::stop`] ends them all. Handlers that run then go on to their end.
//! Refuses to know: what connections carry.

use super::knock::NOBODY;
use super::link::SOCKET_BUFFER_BYTES;
use super::serve::{Guest, Server};
use super::{TcpConfig, tls};
use crate::Service;
use crate::handlers::Handlers;
use crate::limits::{ACCEPT_PAUSE, CONNECTIONS, HANDSHAKE_TIMEOUT, STOP_PATIENCE, STRANGERS};
use env::timers::Timers;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::BufReader;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio_rustls::TlsAcceptor;

/// Who may speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// Nodes that the map lists, and nobody else: others do not get through the handshake.
    Members,
    /// Also holders of any other key, who may call this one service with short messages and appear to its handler as node 0: nodes
    /// that are to join.
    StrangersTo(Service),
}

/// A port that takes connections. Dropping it ends them too, but does not wait.
pub struct Listener {
    address: SocketAddr,
    stop: watch::Sender<()>,
    /// Ends when every connection has.
    ended: mpsc::Receiver<()>,
    timers: Timers,
}

impl Listener {
    /// Listens, and serves what comes with these handlers, in tasks of its own.
    pub async fn bind(
        config: TcpConfig,
        address: SocketAddr,
        admission: Admission,
        handlers: Handlers,
    ) -> io::Result<Listener> {
        let socket = TcpListener::bind(address).await?;
        let address = socket.local_addr()?;
        let (stop, stopped) = watch::channel(());
        let (alive, ended) = mpsc::channel(1);
        let trust = (admission == Admission::Members).then(|| config.trust.clone());
        let accepting = Arc::new(Accepting {
            tls: TlsAcceptor::from(Arc::new(tls::server(&config.identity, trust))),
            server: Arc::new(Server { config: config.clone(), handlers }),
            admission,
            room: Arc::new(Semaphore::new(CONNECTIONS)),
            room_for_strangers: Arc::new(Semaphore::new(STRANGERS)),
            stopped,
            alive,
        });
        config.env.tasks.spawn(accept(socket, accepting));
        Ok(Listener { address, stop, ended, timers: config.env.timers })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting, ends all connections and waits for them, for 2 s at most.
    pub async fn stop(self) {
        let Listener { stop, mut ended, timers, .. } = self;
        drop(stop);
        // Nothing is ever sent: it ends when all who hold the other side have.
        if timers.timeout(STOP_PATIENCE, ended.recv()).await.is_none() {
            tracing::warn!("connections of other nodes did not end in time");
        }
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What every connection needs.
struct Accepting {
    tls: TlsAcceptor,
    server: Arc<Server>,
    admission: Admission,
    room: Arc<Semaphore>,
    room_for_strangers: Arc<Semaphore>,
    stopped: watch::Receiver<()>,
    alive: mpsc::Sender<()>,
}

async fn accept(socket: TcpListener, accepting: Arc<Accepting>) {
    let mut stopped = accepting.stopped.clone();
    let timers = accepting.server.config.env.timers.clone();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            // The sender is dropped.
            _ = stopped.changed() => return,
        };
        match accepted {
            Ok((connection, _)) => match accepting.room.clone().try_acquire_owned() {
                Ok(place) => accepting.server.config.env.tasks.spawn(accepting.clone().take(connection, place)),
                Err(_) => tracing::warn!("a connection of another node was closed: there are too many"),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection of another node was not accepted");
                timers.sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

impl Accepting {
    /// One connection, to its end.
    async fn take(self: Arc<Self>, connection: TcpStream, place: OwnedSemaphorePermit) {
        let (mut stopped, alive) = (self.stopped.clone(), self.alive.clone());
        let end = tokio::select! {
            end = self.converse(connection) => end.err().unwrap_or_else(|| "the other side ended it".to_owned()),
            _ = stopped.changed() => "the listener stopped".to_owned(),
        };
        tracing::debug!(end, "a connection of another node ended");
        drop((place, alive));
    }

    async fn converse(&self, connection: TcpStream) -> Result<(), String> {
        let text = |error: io::Error| error.to_string();
        connection.set_nodelay(true).map_err(text)?;
        let handshake = self.tls.accept(BufReader::with_capacity(SOCKET_BUFFER_BYTES, connection));
        let handshake = self.server.config.env.timers.timeout(HANDSHAKE_TIMEOUT, handshake).await;
        let stream = handshake.ok_or("the handshake took too long")?.map_err(text)?;
        let key = tls::proved_key(stream.get_ref().1).ok_or("it speaks another protocol")?;
        match (self.server.config.trust.node_of(key), self.admission) {
            (Some(node), _) => self.server.serve(stream, Guest { node, key, only: None }).await,
            (None, Admission::Members) => Err("the map no longer lists its key".to_owned()),
            (None, Admission::StrangersTo(service)) => {
                let place = self.room_for_strangers.try_acquire();
                let _place = place.map_err(|_| "there are too many strangers")?;
                self.server.serve(stream, Guest { node: NOBODY, key, only: Some(service) }).await
            }
        }
    }
}
