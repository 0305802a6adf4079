//! From JSON to a policy, strictly.

use super::action::is_known;
use super::wildcard;
use super::{Effect, Policy, Principal, Statement};
use crate::error::{S3Code, S3Error, S3Result};
use crate::limits;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// The versions of the language.
const VERSIONS: [&str; 2] = ["2012-10-17", "2008-10-17"];
const RESOURCE_PREFIX: &str = "arn:aws:s3:::";

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany<T> {
    One(T),
    Many(Vec<T>),
}

impl<T> OneOrMany<T> {
    fn into_vec(self) -> Vec<T> {
        match self {
            OneOrMany::One(one) => vec![one],
            OneOrMany::Many(many) => many,
        }
    }
}

/// Serde refuses unknown and repeated fields here.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct Document {
    version: Option<String>,
    #[serde(rename = "Id")]
    _id: Option<String>,
    statement: OneOrMany<RawStatement>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "PascalCase")]
struct RawStatement {
    #[serde(rename = "Sid")]
    _sid: Option<String>,
    effect: String,
    principal: Option<RawPrincipal>,
    not_principal: Option<IgnoredAny>,
    action: Option<OneOrMany<String>>,
    not_action: Option<IgnoredAny>,
    resource: Option<OneOrMany<String>>,
    not_resource: Option<IgnoredAny>,
    condition: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RawPrincipal {
    Text(String),
    Map(PrincipalMap),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrincipalMap {
    #[serde(rename = "AWS")]
    aws: Option<OneOrMany<String>>,
    #[serde(rename = "CanonicalUser")]
    canonical_user: Option<OneOrMany<String>>,
    #[serde(rename = "Service")]
    service: Option<IgnoredAny>,
    #[serde(rename = "Federated")]
    federated: Option<IgnoredAny>,
}

fn malformed(message: &'static str) -> S3Error {
    S3Error::with(S3Code::MalformedPolicy, message)
}

fn unsupported(what: &str) -> S3Error {
    S3Error::with(S3Code::NotImplemented, format!("PutBucketPolicy: {what} is not implemented"))
}

/// Reads the policy of `bucket`. `is_account` says whether a canonical id names an account.
pub fn parse(json: &[u8], bucket: &str, is_account: &dyn Fn(&str) -> bool) -> S3Result<Policy> {
    if json.len() > limits::BUCKET_POLICY_MAX_BYTES {
        return Err(malformed("Policies may not exceed 20 KiB"));
    }
    let document: Document =
        serde_json::from_slice(json).map_err(|_| malformed("This policy contains invalid Json"))?;
    if document.version.is_some_and(|v| !VERSIONS.contains(&v.as_str())) {
        return Err(malformed("The policy must contain a valid version string"));
    }
    let raw = document.statement.into_vec();
    if raw.is_empty() {
        return Err(malformed("Could not parse the policy: Statement is empty!"));
    }
    let statements = raw.into_iter().map(|s| statement(s, bucket, is_account)).collect::<S3Result<_>>()?;
    Ok(Policy { statements })
}

fn statement(raw: RawStatement, bucket: &str, is_account: &dyn Fn(&str) -> bool) -> S3Result<Statement> {
    for (element, present) in [
        ("Condition", raw.condition.is_some()),
        ("NotAction", raw.not_action.is_some()),
        ("NotResource", raw.not_resource.is_some()),
        ("NotPrincipal", raw.not_principal.is_some()),
    ] {
        if present {
            return Err(unsupported(element));
        }
    }
    let effect = match raw.effect.as_str() {
        "Allow" => Effect::Allow,
        "Deny" => Effect::Deny,
        _ => return Err(malformed("Invalid effect in policy")),
    };
    let principals =
        principals(raw.principal.ok_or_else(|| malformed("Missing required field Principal"))?, is_account)?;
    let actions = raw.action.ok_or_else(|| malformed("Missing required field Action"))?.into_vec();
    let resources = raw.resource.ok_or_else(|| malformed("Missing required field Resource"))?.into_vec();
    let actions = actions.iter().map(|a| action(a)).collect::<S3Result<Vec<_>>>()?;
    let resources = resources.iter().map(|r| resource(r, bucket)).collect::<S3Result<Vec<_>>>()?;
    if principals.is_empty() || actions.is_empty() || resources.is_empty() {
        return Err(malformed("Principal, Action and Resource may not be empty"));
    }
    Ok(Statement { effect, principals, actions, resources })
}

fn principals(raw: RawPrincipal, is_account: &dyn Fn(&str) -> bool) -> S3Result<Vec<Principal>> {
    let map = match raw {
        RawPrincipal::Text(star) if star == "*" => return Ok(vec![Principal::Anyone]),
        RawPrincipal::Text(_) => return Err(malformed("Invalid principal in policy")),
        RawPrincipal::Map(map) => map,
    };
    if map.service.is_some() || map.federated.is_some() {
        return Err(unsupported("a Service or Federated principal"));
    }
    let account = |id: &str| match is_account(id) {
        true => Ok(Principal::Account(id.to_owned())),
        false => Err(malformed("Invalid principal in policy")),
    };
    let mut found = Vec::new();
    for text in map.aws.map(OneOrMany::into_vec).unwrap_or_default() {
        found.push(if text == "*" { Principal::Anyone } else { account(account_of(&text))? });
    }
    for id in map.canonical_user.map(OneOrMany::into_vec).unwrap_or_default() {
        found.push(account(&id)?);
    }
    Ok(found)
}

/// The canonical id in `arn:aws:iam::ID:root` or `arn:aws:iam:::user/ID`; any other text is taken for an id.
fn account_of(text: &str) -> &str {
    let root = text.strip_prefix("arn:aws:iam::").and_then(|rest| rest.strip_suffix(":root"));
    root.or_else(|| text.strip_prefix("arn:aws:iam:::user/")).unwrap_or(text)
}

fn no_variables(text: &str) -> S3Result<()> {
    if text.contains("${") { Err(unsupported("a policy variable")) } else { Ok(()) }
}

fn action(text: &str) -> S3Result<String> {
    no_variables(text)?;
    let pattern = match text.split_at_checked(3) {
        Some((prefix, name)) if prefix.eq_ignore_ascii_case("s3:") => name.to_ascii_lowercase(),
        _ if text == "*" => text.to_owned(),
        _ => return Err(malformed("Policy has invalid action")),
    };
    if is_known(&pattern) { Ok(pattern) } else { Err(malformed("Policy has invalid action")) }
}

fn resource(text: &str, bucket: &str) -> S3Result<String> {
    no_variables(text)?;
    let invalid = || malformed("Policy has invalid resource");
    let pattern = text.strip_prefix(RESOURCE_PREFIX).ok_or_else(invalid)?;
    let of_bucket = pattern.split('/').next().unwrap_or_default();
    if wildcard::matches(of_bucket, bucket) { Ok(pattern.to_owned()) } else { Err(invalid()) }
}
