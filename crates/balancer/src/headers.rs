//! What becomes of a request's headers on the way to a node.
//!
//! Promises: a header that the client signed arrives as it was sent. `Host` is never touched. Refuses to know: whether a signature
//! holds.

use http::header::{AUTHORIZATION, HeaderMap};
use pingora_http::RequestHeader;
use std::net::IpAddr;

/// Who sent the request to whom.
pub const FORWARDED_FOR: &str = "x-forwarded-for";

/// Headers about the client's connection to us, which is not ours to the node.
const OF_THE_CONNECTION: [&str; 5] = ["connection", "upgrade", "keep-alive", "proxy-connection", "http2-settings"];

/// Makes the request that the client sent the one that a node gets.
pub fn forward(request: &mut RequestHeader, client: IpAddr) -> Result<(), Box<pingora_core::Error>> {
    let present = |name: &&str| request.headers.contains_key(*name);
    let ours: Vec<&str> = OF_THE_CONNECTION.into_iter().filter(present).collect();
    let was_forwarded = request.headers.contains_key(FORWARDED_FOR);
    let signed = match ours.is_empty() && !was_forwarded {
        true => Signed::default(),
        false => Signed::of(&request.headers, request.uri.query().unwrap_or("")),
    };
    for name in ours {
        if !signed.contains(name) {
            request.remove_header(name);
        }
    }
    if was_forwarded && signed.contains(FORWARDED_FOR) {
        return Ok(());
    }
    let before = request.headers.get_all(FORWARDED_FOR).iter().filter_map(|value| value.to_str().ok());
    let mut chain: String = before.flat_map(|value| [value, ", "]).collect();
    chain.push_str(&client.to_string());
    request.insert_header(FORWARDED_FOR, chain)
}

/// The list of signed headers of a request, if it is signed.
#[derive(Default)]
struct Signed(String);

impl Signed {
    fn of(headers: &HeaderMap, query: &str) -> Signed {
        let header = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let in_header = header.and_then(|text| text.split_once("SignedHeaders=")).map(|(_, rest)| rest);
        let in_query = || query.split('&').find_map(|pair| pair.strip_prefix("X-Amz-SignedHeaders="));
        let list = in_header.or_else(in_query).unwrap_or("");
        let end = list.find([',', ' ']).unwrap_or(list.len());
        Signed(list[..end].to_ascii_lowercase().replace("%3b", ";"))
    }

    fn contains(&self, name: &str) -> bool {
        self.0.split(';').any(|signed| signed == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7));

    fn forwarded(path: &str, headers: &[(&'static str, &str)]) -> Vec<(String, String)> {
        let mut request = RequestHeader::build("PUT", path.as_bytes(), None).expect("a request");
        for (name, value) in headers {
            request.append_header(*name, *value).expect("a header");
        }
        forward(&mut request, CLIENT).expect("forwarded");
        let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        request.headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
    }

    fn has(headers: &[(String, String)], name: &str, value: &str) -> bool {
        headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v).eq([value])
    }

    #[test]
    fn the_clients_address_is_added_and_what_is_about_its_connection_removed() {
        let sent = [
            ("host", "bucket.example"),
            ("connection", "close"),
            ("upgrade", "websocket"),
            ("expect", "100-continue"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("x-amz-meta-a", "b"),
        ];
        let got = forwarded("/k", &sent);
        assert!(has(&got, FORWARDED_FOR, "192.0.2.7"), "{got:?}");
        for (name, value) in sent {
            assert_eq!(has(&got, name, value), !["connection", "upgrade"].contains(&name), "{name}");
        }
    }

    #[test]
    fn a_chain_of_proxies_is_continued() {
        let got = forwarded("/k", &[("x-forwarded-for", "1.1.1.1"), ("x-forwarded-for", "2.2.2.2, 3.3.3.3")]);
        assert!(has(&got, FORWARDED_FOR, "1.1.1.1, 2.2.2.2, 3.3.3.3, 192.0.2.7"), "{got:?}");
    }

    #[test]
    fn signed_headers_arrive_as_they_were_sent() {
        let list = "AWS4-HMAC-SHA256 Credential=A/20261201/r/s3/aws4_request, SignedHeaders=connection;host;x-forwarded-for, Signature=0";
        let sent = [("connection", "keep-alive"), ("x-forwarded-for", "1.1.1.1"), ("authorization", list)];
        let got = forwarded("/k", &sent);
        assert!(sent.iter().all(|(name, value)| has(&got, name, value)), "{got:?}");

        let presigned = "/k?X-Amz-Signature=0&X-Amz-SignedHeaders=host%3Bx-forwarded-for&X-Amz-Date=0";
        let got = forwarded(presigned, &[("connection", "keep-alive"), ("x-forwarded-for", "1.1.1.1")]);
        assert!(has(&got, FORWARDED_FOR, "1.1.1.1") && !got.iter().any(|(name, _)| name == "connection"), "{got:?}");
    }
}
