//! One request: to the node whose turn it is, to another one if that cannot be connected to, and back.
//!
//! Promises: a request that may have reached a node is sent again only if it is a GET or HEAD of which nothing was answered yet; what
//! else fails is answered in the words of S3, and never looks like a complete answer of a node. Bodies stream, both ways.
//! Refuses to know: what requests mean.

use crate::answer::Answer;
use crate::connection::Connection;
use crate::headers;
use crate::limits::{
    BODY_IDLE_TIMEOUT, CONNECT_TIMEOUT, DRAIN_TIMEOUT, NODE_IDLE_MAX, NODE_SILENCE_MAX, WRITE_TIMEOUT,
};
use crate::metrics::Counts;
use crate::nodes::{Node, NodeSet, Nodes};
use async_trait::async_trait;
use http::Method;
use pingora_core::modules::http::HttpModules;
use pingora_core::protocols::Digest;
use pingora_core::upstreams::peer::{HttpPeer, HttpUpstreamRequestPolicy};
use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_http::{RequestHeader, ResponseHeader};
use pingora_proxy::{FailToProxy, ProxyHttp, ProxyWarnLogContext, Session};
use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What pingora asks about every request.
pub struct Front {
    nodes: Arc<Nodes>,
    counts: Arc<Counts>,
}

/// One request, over all its attempts.
#[derive(Default)]
pub struct Progress {
    connection: Option<Arc<Connection>>,
    tried: NodeSet,
    /// Of the latest attempt.
    node: Option<usize>,
    /// A connection was there once: a node may have got the request.
    sent: bool,
    /// The latest attempt was the first to fail on a kept connection: its node may have closed that just then, and be as well as any.
    kept_failed: bool,
    /// One did so before.
    kept_has_failed: bool,
}

impl Front {
    /// In front of these.
    pub fn new(nodes: Arc<Nodes>, counts: Arc<Counts>) -> Self {
        Front { nodes, counts }
    }

    fn node(&self, progress: &Progress) -> Option<&Node> {
        self.nodes.all().get(progress.node?)
    }

    /// The node for the next attempt.
    fn pick(&self, progress: &mut Progress) -> Option<SocketAddr> {
        let retry = progress.node.is_some();
        let another = self.nodes.pick(retry, progress.tried);
        let index = match another {
            Some(index) => index,
            // Only after a kept connection failed, and only once, a node is asked that was asked before.
            None if progress.kept_failed => self.nodes.pick(true, NodeSet::default())?,
            None => return None,
        };
        progress.tried.insert(index);
        progress.node = Some(index);
        if retry {
            self.counts.retries.fetch_add(1, Ordering::Relaxed);
        }
        *self.nodes.all().get(index)?.address.read()
    }
}

#[async_trait]
impl ProxyHttp for Front {
    type CTX = Progress;

    fn new_ctx(&self) -> Progress {
        Progress::default()
    }

    fn init_downstream_modules(&self, _modules: &mut HttpModules) {
        // Bytes pass as they are.
    }

    fn on_connection_reuse(
        &self,
        _session: &mut Session,
        progress: &mut Progress,
        context: Box<dyn Any + Send + Sync>,
    ) {
        progress.connection = context.downcast::<Arc<Connection>>().ok().map(|connection| *connection);
    }

    async fn early_request_filter(&self, session: &mut Session, progress: &mut Progress) -> Result<()> {
        if let Some(connection) = &progress.connection {
            connection.set_waiting(false);
        }
        // Pingora counts 100 Continue among the answers; see `response_filter`.
        session.set_close_on_response_before_downstream_finish(false);
        session.set_read_timeout(Some(BODY_IDLE_TIMEOUT));
        session.set_write_timeout(Some(WRITE_TIMEOUT));
        session.set_total_drain_timeout(Some(DRAIN_TIMEOUT));
        Ok(())
    }

    async fn upstream_peer(&self, _session: &mut Session, progress: &mut Progress) -> Result<Box<HttpPeer>> {
        let none = || Error::explain(ErrorType::HTTPStatus(Answer::NoNode.status()), "no node can be asked");
        let address = self.pick(progress).ok_or_else(none)?;
        let mut peer = HttpPeer::new(address, false, String::new());
        peer.options.connection_timeout = Some(CONNECT_TIMEOUT);
        peer.options.total_connection_timeout = Some(CONNECT_TIMEOUT);
        peer.options.read_timeout = Some(NODE_SILENCE_MAX);
        peer.options.write_timeout = Some(NODE_SILENCE_MAX);
        peer.options.idle_timeout = Some(NODE_IDLE_MAX);
        // Which headers stay is decided in `headers`, where signed ones are known.
        peer.options.http_upstream_request_policy = HttpUpstreamRequestPolicy::preserve();
        Ok(Box::new(peer))
    }

    async fn connected_to_upstream(
        &self,
        _session: &mut Session,
        _reused: bool,
        _peer: &HttpPeer,
        _fd: RawFd,
        _digest: Option<&Digest>,
        progress: &mut Progress,
    ) -> Result<()> {
        progress.sent = true;
        if let Some(node) = self.node(progress) {
            node.requests.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn upstream_request_filter(
        &self,
        _session: &mut Session,
        request: &mut RequestHeader,
        progress: &mut Progress,
    ) -> Result<()> {
        let lost = || Error::explain(ErrorType::InternalError, "a request without a connection");
        let connection = progress.connection.as_ref().ok_or_else(lost)?;
        headers::forward(request, connection.remote.ip())
    }

    /// A client that is answered before it has sent its body may send it or not: what comes next would be ambiguous.
    async fn response_filter(
        &self,
        session: &mut Session,
        head: &mut ResponseHeader,
        _progress: &mut Progress,
    ) -> Result<()> {
        if !head.status.is_informational() && !session.as_mut().is_body_done() {
            session.set_keepalive(None);
        }
        Ok(())
    }

    /// Nothing was sent: another node may be asked whatever the request is.
    fn fail_to_connect(
        &self,
        _session: &mut Session,
        _peer: &HttpPeer,
        progress: &mut Progress,
        mut error: Box<Error>,
    ) -> Box<Error> {
        if let (Some(index), Some(node)) = (progress.node, self.node(progress)) {
            node.refused.fetch_add(1, Ordering::Relaxed);
            // Else it may be our own fault, such as too few file descriptors.
            let of_the_node = [ErrorType::ConnectRefused, ErrorType::ConnectTimedout, ErrorType::ConnectNoRoute]
                .contains(error.etype());
            if of_the_node && self.nodes.set_healthy(index, false) {
                tracing::warn!(node = node.names.endpoint, %error, "a node cannot be connected to and gets no requests");
            }
        }
        error.set_retry(true);
        error
    }

    /// It was sent, in part at least.
    fn error_while_proxy(
        &self,
        _peer: &HttpPeer,
        session: &mut Session,
        mut error: Box<Error>,
        progress: &mut Progress,
        kept: bool,
    ) -> Box<Error> {
        let of_the_node = *error.esource() == ErrorSource::Upstream;
        let harmless = matches!(session.req_header().method, Method::GET | Method::HEAD);
        let again = of_the_node && harmless && !has_begun(session) && !session.as_ref().retry_buffer_truncated();
        if let (true, Some(node)) = (of_the_node, self.node(progress)) {
            node.broken.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(node = node.names.endpoint, %error, kept, again, "a node did not answer to the end");
        }
        progress.kept_failed = kept && again && !progress.kept_has_failed;
        progress.kept_has_failed |= kept;
        error.set_retry(again);
        error
    }

    async fn fail_to_proxy(&self, session: &mut Session, error: &Error, progress: &mut Progress) -> FailToProxy {
        let answer = answer_to(error, progress);
        if has_begun(session) {
            if let Some(connection) = &progress.connection {
                connection.abort();
            }
            self.counts.aborted.fetch_add(1, Ordering::Relaxed);
        } else if let Some(answer) = answer {
            self.counts.answered(answer);
            if let Err(error) = answer.send(session).await {
                tracing::debug!(%error, "a client did not hear why its request failed");
            }
        }
        FailToProxy { error_code: answer.map_or(0, Answer::status), can_reuse_downstream: false }
    }

    fn suppress_error_log(&self, _session: &Session, _progress: &Progress, _error: &Error) -> bool {
        // Logged above, once, if it is worth it.
        true
    }

    fn suppress_proxy_warn_log(&self, _: &Session, _: &Progress, _: &Error, _: ProxyWarnLogContext) -> bool {
        true
    }
}

/// Whether the client has got something of an answer (100 Continue is none).
fn has_begun(session: &Session) -> bool {
    session.response_written().is_some_and(|head| !head.status.is_informational())
}

/// What to say of a failure; nothing if the client is gone.
fn answer_to(error: &Error, progress: &Progress) -> Option<Answer> {
    let violated = progress.connection.as_ref().is_some_and(|connection| connection.is_violated());
    match error.esource() {
        ErrorSource::Downstream if violated => Some(Answer::Malformed),
        ErrorSource::Downstream => match error.etype() {
            ErrorType::WriteError | ErrorType::WriteTimedout | ErrorType::ReadError | ErrorType::ConnectionClosed => {
                None
            }
            _ => Some(Answer::Malformed),
        },
        _ if *error.etype() == ErrorType::HTTPStatus(Answer::NoNode.status()) && !progress.sent => Some(Answer::NoNode),
        ErrorSource::Upstream if !progress.sent => Some(Answer::NoNode),
        _ if progress.sent => Some(Answer::Unanswered),
        _ => Some(Answer::Internal),
    }
}
