//! The policy document of a form: base64 JSON with an expiration and conditions.
//!
//! Promises: strict; whatever it does not understand is `InvalidPolicyDocument`, whatever does not hold is 403.

use crate::auth::parse_iso_date;
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

enum Condition {
    Equals(String, String),
    StartsWith(String, String),
}

/// A parsed policy.
pub struct Policy {
    expiration_ms: u64,
    conditions: Vec<Condition>,
    size_range: Option<(u64, u64)>,
}

/// Fields that a policy need not cover: what carries it, and what can only make the upload stricter.
fn is_exempt(field: &str) -> bool {
    matches!(field, "x-amz-signature" | "signature" | "awsaccesskeyid" | "file" | "policy")
        || field.starts_with("x-ignore-")
        || field.starts_with("x-amz-checksum-")
}

fn invalid(why: impl Into<String>) -> S3Error {
    S3Error::with(S3Code::InvalidPolicyDocument, format!("Invalid Policy: {}", why.into()))
}

fn denied(why: impl std::fmt::Display) -> S3Error {
    S3Error::with(S3Code::AccessDenied, format!("Invalid according to Policy: {why}"))
}

impl Policy {
    /// Parses the base64 of the document.
    pub fn parse(base64: &str) -> S3Result<Self> {
        let compact: String = base64.chars().filter(|c| !c.is_ascii_whitespace()).collect();
        let json = STANDARD.decode(compact).map_err(|_| invalid("not base64"))?;
        let document: Map<String, Value> = serde_json::from_slice(&json).map_err(|_| invalid("not a JSON object"))?;
        let expiration = document.get("expiration").and_then(Value::as_str);
        let expiration = expiration.ok_or_else(|| invalid("the expiration is missing"))?;
        let expiration_ms = parse_iso_date(expiration).ok_or_else(|| invalid("the expiration is not a date"))?;
        let conditions = document.get("conditions").and_then(Value::as_array);
        let conditions = conditions.ok_or_else(|| invalid("the conditions are missing"))?;
        if conditions.is_empty() || conditions.len() > limits::POLICY_CONDITIONS_MAX {
            return Err(invalid("there are no or too many conditions"));
        }
        let mut policy = Policy { expiration_ms, conditions: Vec::with_capacity(conditions.len()), size_range: None };
        for condition in conditions {
            match condition {
                Value::Object(map) => policy.add_map(map)?,
                Value::Array(list) => policy.add_list(list)?,
                _ => return Err(invalid("a condition is neither a list nor an object")),
            }
        }
        Ok(policy)
    }

    fn add_map(&mut self, map: &Map<String, Value>) -> S3Result<()> {
        if map.is_empty() {
            return Err(invalid("a condition is empty"));
        }
        for (field, value) in map {
            let value = value.as_str().ok_or_else(|| invalid("the value of a condition is not a text"))?;
            self.conditions.push(Condition::Equals(field.to_ascii_lowercase(), value.to_owned()));
        }
        Ok(())
    }

    fn add_list(&mut self, list: &[Value]) -> S3Result<()> {
        let [operator, first, second] = list else { return Err(invalid("a condition does not have three elements")) };
        let operator = operator.as_str().ok_or_else(|| invalid("an operator is not a text"))?.to_ascii_lowercase();
        if operator == "content-length-range" {
            let range = (size(first)?, size(second)?);
            if range.0 > range.1 {
                return Err(invalid("the content-length-range is empty"));
            }
            let old = self.size_range.unwrap_or((0, u64::MAX));
            self.size_range = Some((old.0.max(range.0), old.1.min(range.1)));
            return Ok(());
        }
        let (Some(field), Some(value)) = (first.as_str().and_then(|f| f.strip_prefix('$')), second.as_str()) else {
            return Err(invalid("a condition needs a $field and a text"));
        };
        let (field, value) = (field.to_ascii_lowercase(), value.to_owned());
        self.conditions.push(match operator.as_str() {
            "eq" => Condition::Equals(field, value),
            "starts-with" => Condition::StartsWith(field, value),
            _ => return Err(invalid("an operator is not known")),
        });
        Ok(())
    }

    /// Whether it still counts.
    pub fn check_expiration(&self, now_ms: u64) -> S3Result<()> {
        if now_ms > self.expiration_ms { Err(denied("Policy expired.")) } else { Ok(()) }
    }

    /// Every condition holds, and every field (and the bucket) is covered by one. `bucket` is the URL's.
    pub fn check_fields(&self, fields: &[(String, String)], bucket: &str) -> S3Result<()> {
        for condition in &self.conditions {
            let (field, holds) = match condition {
                Condition::Equals(f, want) => (f, value_of(fields, f, bucket) == want),
                Condition::StartsWith(f, want) => (f, value_of(fields, f, bucket).starts_with(want.as_str())),
            };
            if !holds {
                return Err(denied(format_args!("Policy Condition failed: ${field}")));
            }
        }
        let names = fields.iter().map(|(n, _)| n.as_str()).chain(["bucket"]);
        for name in names.filter(|n| !is_exempt(n)) {
            let covered = self.conditions.iter().any(|c| match c {
                Condition::Equals(f, _) | Condition::StartsWith(f, _) => f == name,
            });
            if !covered {
                return Err(denied(format_args!("Extra input fields: {name}")));
            }
        }
        Ok(())
    }

    /// Fewest and most bytes of the file.
    pub fn size_range(&self) -> Option<(u64, u64)> {
        self.size_range
    }
}

/// The value that conditions speak of; a field that is missing is empty.
fn value_of<'a>(fields: &'a [(String, String)], name: &str, bucket: &'a str) -> &'a str {
    if name == "bucket" {
        return bucket;
    }
    fields.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v.as_str())
}

fn size(value: &Value) -> S3Result<u64> {
    let number = match value {
        Value::Number(n) => n.as_u64(),
        Value::String(s) if s.bytes().all(|c| c.is_ascii_digit()) => s.parse().ok(),
        _ => None,
    };
    number.ok_or_else(|| invalid("the content-length-range is not two numbers"))
}
