//! The answers that the balancer gives itself, in the words of S3: no node could, or the request cannot be understood.
//!
//! Promises: an answer says whether sending the request again may help, and whether it may have been carried out.
//! Refuses to know: anything else of S3.

use bytes::Bytes;
use http::{Method, header};
use pingora_core::Result;
use pingora_http::ResponseHeader;
use pingora_proxy::Session;

/// Why a node's answer is not to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// No node was healthy, or none could be connected to. The request reached nobody.
    NoNode,
    /// It was sent to a node that did not answer to the end. It may have been carried out.
    Unanswered,
    /// Its framing can be read in two ways, or its body did not come.
    Malformed,
    /// A fault of our own.
    Internal,
}

impl Answer {
    /// HTTP status. Clients try again after each of them but 400.
    pub fn status(self) -> u16 {
        match self {
            Answer::NoNode => 503,
            Answer::Unanswered => 502,
            Answer::Malformed => 400,
            Answer::Internal => 500,
        }
    }

    fn code_and_message(self) -> (&'static str, &'static str) {
        match self {
            Answer::NoNode => (
                "ServiceUnavailable",
                "No node can take the request at the moment; it was not carried out. Please try again.",
            ),
            Answer::Unanswered => (
                "InternalError",
                "The node did not answer; the request may or may not have been carried out. Please try again.",
            ),
            Answer::Malformed => ("InvalidRequest", "The request's framing is not valid, or its body did not arrive."),
            Answer::Internal => ("InternalError", "The load balancer failed. Please try again."),
        }
    }

    fn xml(self) -> Bytes {
        let (code, message) = self.code_and_message();
        let head = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
        Bytes::from(format!("{head}<Error><Code>{code}</Code><Message>{message}</Message></Error>"))
    }

    /// Answers, and has the connection end after it.
    pub async fn send(self, session: &mut Session) -> Result<()> {
        let body = self.xml();
        let mut head = ResponseHeader::build(self.status(), Some(5))?;
        head.insert_header(header::CONTENT_TYPE, "application/xml")?;
        head.insert_header(header::CONTENT_LENGTH, body.len())?;
        if self == Answer::NoNode {
            head.insert_header(header::RETRY_AFTER, "1")?;
        }
        session.set_keepalive(None);
        let bodiless = session.req_header().method == Method::HEAD;
        session.write_response_header(Box::new(head), bodiless).await?;
        if !bodiless {
            session.write_response_body(Some(body), true).await?;
        }
        Ok(())
    }
}
