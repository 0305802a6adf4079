//! The protocol over real sockets on 127.0.0.1, with a trivial handler behind it.

mod server;
mod slow;
mod streaming;
mod support;
