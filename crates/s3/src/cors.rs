//! Cross-origin rules of a bucket: read, and matched against requests of browsers.
//!
//! Promises: an origin is answered only if a rule names it; credentials are never allowed together with `*`; no rule can
//! split a header. Refuses to know: who may read the bucket (CORS grants nothing).

use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use crate::xml::{self, XmlNode};
use http::{HeaderMap, HeaderName, HeaderValue, header};

const METHODS: [&str; 5] = ["GET", "PUT", "HEAD", "POST", "DELETE"];
const VARY: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Headers, Access-Control-Request-Method");
const TRUE: HeaderValue = HeaderValue::from_static("true");

struct Rule {
    origins: Vec<String>,
    methods: Vec<String>,
    /// Lower case.
    allowed_headers: Vec<String>,
    exposed_headers: Vec<String>,
    max_age_seconds: Option<u32>,
}

/// The rules of a bucket, in order.
pub struct Cors {
    rules: Vec<Rule>,
}

fn invalid(message: String) -> S3Error {
    S3Error::with(S3Code::InvalidRequest, message)
}

impl Cors {
    /// Reads and checks a `CORSConfiguration`.
    pub fn parse(document: &[u8]) -> S3Result<Cors> {
        let root = xml::parse(document, "CORSConfiguration", limits::SETTING_MAX_BYTES)?;
        let rules = root.all("CORSRule").map(Rule::parse).collect::<S3Result<Vec<_>>>()?;
        let only_rules = root.children.len() == rules.len();
        if rules.is_empty() || rules.len() > limits::CORS_RULES_MAX || !only_rules {
            return Err(S3Error::new(S3Code::MalformedXML));
        }
        Ok(Cors { rules })
    }

    /// Headers for the answer to a request of `origin`, if a rule names it.
    pub fn answer(&self, origin: &str, method: &str, headers: &mut HeaderMap) {
        if let Some((rule, pattern)) =
            self.rules.iter().find_map(|r| Some((r, r.origin(origin)?)).filter(|_| r.method(method)))
        {
            rule.write(origin, pattern, headers);
        }
    }

    /// Headers for the answer to a preflight; `None`: not allowed.
    pub fn preflight(&self, origin: &str, method: &str, wanted: &[String]) -> Option<HeaderMap> {
        let fits = |r: &&Rule| r.method(method) && wanted.iter().all(|h| r.header(h));
        let (rule, pattern) = self.rules.iter().filter(fits).find_map(|r| Some((r, r.origin(origin)?)))?;
        let mut headers = HeaderMap::new();
        rule.write(origin, pattern, &mut headers);
        if !wanted.is_empty() {
            put(&mut headers, header::ACCESS_CONTROL_ALLOW_HEADERS, &wanted.join(", "));
        }
        Some(headers)
    }
}

/// Caches must keep answers for different origins apart, also those without one.
pub fn write_vary(headers: &mut HeaderMap) {
    headers.insert(header::VARY, VARY);
}

fn put(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    // A value that is no header value cannot come from a checked rule; from a request it is left out, never split.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

fn wild(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, tail)) => text.len() >= head.len() + tail.len() && text.starts_with(head) && text.ends_with(tail),
    }
}

impl Rule {
    fn parse(node: &XmlNode) -> S3Result<Rule> {
        let texts = |name: &str| node.all(name).map(|c| c.text.trim().to_owned()).collect::<Vec<_>>();
        let rule = Rule {
            origins: texts("AllowedOrigin"),
            methods: texts("AllowedMethod"),
            allowed_headers: texts("AllowedHeader").iter().map(|h| h.to_ascii_lowercase()).collect(),
            exposed_headers: texts("ExposeHeader"),
            max_age_seconds: match node.child_text("MaxAgeSeconds") {
                Some(text) => Some(text.trim().parse().map_err(|_| S3Error::new(S3Code::MalformedXML))?),
                None => None,
            },
        };
        rule.check()?;
        Ok(rule)
    }

    fn check(&self) -> S3Result<()> {
        if self.origins.is_empty() || self.methods.is_empty() {
            return Err(S3Error::new(S3Code::MalformedXML));
        }
        if let Some(method) = self.methods.iter().find(|m| !METHODS.contains(&m.as_str())) {
            return Err(invalid(format!(
                "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
            )));
        }
        for (element, values) in [("AllowedOrigin", &self.origins), ("AllowedHeader", &self.allowed_headers)] {
            if let Some(value) = values.iter().find(|v| v.matches('*').count() > 1) {
                return Err(invalid(format!("{element} \"{value}\" can not have more than one wildcard.")));
            }
        }
        if let Some(name) =
            self.exposed_headers.iter().find(|h| HeaderName::from_bytes(h.as_bytes()).is_err() || h.contains('*'))
        {
            return Err(invalid(format!("ExposeHeader \"{name}\" is not a header name.")));
        }
        Ok(())
    }

    fn origin(&self, origin: &str) -> Option<&str> {
        self.origins.iter().map(String::as_str).find(|pattern| wild(pattern, origin))
    }

    fn method(&self, method: &str) -> bool {
        self.methods.iter().any(|m| m == method)
    }

    fn header(&self, name: &str) -> bool {
        self.allowed_headers.iter().any(|pattern| wild(pattern, name))
    }

    fn write(&self, origin: &str, pattern: &str, headers: &mut HeaderMap) {
        if pattern == "*" {
            put(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, "*");
        } else {
            put(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, TRUE);
        }
        put(headers, header::ACCESS_CONTROL_ALLOW_METHODS, &self.methods.join(", "));
        if !self.exposed_headers.is_empty() {
            put(headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, &self.exposed_headers.join(", "));
        }
        if let Some(seconds) = self.max_age_seconds {
            put(headers, header::ACCESS_CONTROL_MAX_AGE, &seconds.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cors(rule: &str) -> S3Result<Cors> {
        Cors::parse(format!("<CORSConfiguration><CORSRule>{rule}</CORSRule></CORSConfiguration>").as_bytes())
    }

    fn allowed(rules: &Cors, origin: &str, method: &str) -> Option<String> {
        let mut headers = HeaderMap::new();
        rules.answer(origin, method, &mut headers);
        let value = headers.get(header::ACCESS_CONTROL_ALLOW_ORIGIN)?;
        Some(value.to_str().expect("text").to_owned())
    }

    #[test]
    fn row_61_an_origin_is_answered_only_if_named_and_never_star_with_credentials() {
        let rule = |origin: &str| {
            let text = format!("<AllowedOrigin>{origin}</AllowedOrigin><AllowedMethod>GET</AllowedMethod>");
            cors(&text).expect("a valid rule")
        };
        assert_eq!(allowed(&rule("start*end"), "startend", "GET").as_deref(), Some("startend"));
        assert_eq!(allowed(&rule("start*end"), "0startend", "GET"), None);
        assert_eq!(allowed(&rule("aba*aba"), "aba", "GET"), None);
        assert_eq!(allowed(&rule("*"), "x", "PUT"), None);
        assert_eq!(allowed(&rule("*"), "x", "GET").as_deref(), Some("*"));
        let mut headers = HeaderMap::new();
        rule("*").answer("x", "GET", &mut headers);
        assert!(!headers.contains_key(header::ACCESS_CONTROL_ALLOW_CREDENTIALS));
    }

    #[test]
    fn a_preflight_needs_every_header_allowed() {
        let text =
            "<AllowedOrigin>o</AllowedOrigin><AllowedMethod>PUT</AllowedMethod><AllowedHeader>X-Amz-*</AllowedHeader>";
        let rules = cors(text).expect("a valid rule");
        assert!(rules.preflight("o", "PUT", &["x-amz-date".into()]).is_some());
        assert!(rules.preflight("o", "PUT", &["x-amz-date".into(), "range".into()]).is_none());
        assert!(rules.preflight("o", "GET", &[]).is_none());
    }

    #[test]
    fn row_58_an_exposed_header_cannot_split_the_answer() {
        let base = "<AllowedOrigin>o</AllowedOrigin><AllowedMethod>GET</AllowedMethod>";
        for bad in ["a&#13;&#10;Set-Cookie: x", "a b", "*"] {
            assert!(cors(&format!("{base}<ExposeHeader>{bad}</ExposeHeader>")).is_err(), "{bad}");
        }
        assert!(cors(&base.replace("GET", "PATCH")).is_err());
        assert!(cors("<AllowedOrigin>o</AllowedOrigin>").is_err());
    }
}
