//! Why a run could not be made or finished.
//!
//! Promises: each variant tells the person at the terminal what to do. Refuses to know: errors of single requests in a
//! load run, which are counted in the report.

use crate::client::ClientError;

/// Why a run could not be made or finished.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The configuration makes no sense; the text says which option.
    #[error("{0}")]
    Usage(String),
    /// A request that the run cannot do without failed.
    #[error("{what}: {source}")]
    Request {
        /// What was asked for.
        what: String,
        /// What came back.
        source: ClientError,
    },
    /// The local machine refused something.
    #[error("{what}: {source}")]
    Local {
        /// What was tried.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// The server did not do what it must: start, answer, stop.
    #[error("server: {0}")]
    Server(String),
    /// The server broke a promise; the text names the object and what was wrong with it.
    #[error("PROMISE BROKEN: {0}")]
    Broken(String),
}

impl BenchError {
    pub(crate) fn request(what: impl Into<String>) -> impl FnOnce(ClientError) -> BenchError {
        let what = what.into();
        move |source| BenchError::Request { what, source }
    }

    pub(crate) fn local(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> BenchError {
        let what = what.into();
        move |source| BenchError::Local { what, source }
    }
}
