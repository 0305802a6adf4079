//! Rows of the policy language: what is obeyed, what is refused.

use super::{Action, Policy, Verdict, parse};
use crate::error::S3Code;

fn read(json: &str) -> Result<Policy, S3Code> {
    parse(json.as_bytes(), "b", &|id| id == "alice" || id == "bob").map_err(|e| e.code)
}

fn statement(effect: &str, principal: &str, action: &str, resource: &str) -> String {
    format!(
        r#"{{"Effect":"{effect}","Principal":{principal},"Action":"{action}","Resource":"arn:aws:s3:::{resource}"}}"#
    )
}

fn policy(statements: &[String]) -> Policy {
    let json = format!(r#"{{"Version":"2012-10-17","Statement":[{}]}}"#, statements.join(","));
    read(&json).expect("a valid policy")
}

#[test]
fn deny_wins_over_allow_whatever_the_order() {
    let allow = statement("Allow", "\"*\"", "s3:GetObject", "b/*");
    let deny = statement("Deny", "\"*\"", "s3:Get*", "b/secret/*");
    for order in [[allow.clone(), deny.clone()], [deny, allow]] {
        let p = policy(&order);
        assert_eq!(p.judge(None, Action::GetObject, "b/open"), Verdict::Allowed);
        assert_eq!(p.judge(None, Action::GetObject, "b/secret/x"), Verdict::Denied);
        assert_eq!(p.judge(None, Action::PutObject, "b/open"), Verdict::Silent);
    }
}

#[test]
fn an_account_is_named_by_its_id_or_arn_and_nobody_else_is_meant() {
    for principal in [
        r#"{"AWS":"alice"}"#,
        r#"{"AWS":["arn:aws:iam::alice:root"]}"#,
        r#"{"AWS":"arn:aws:iam:::user/alice"}"#,
        r#"{"CanonicalUser":"alice"}"#,
    ] {
        let p = policy(&[statement("Allow", principal, "s3:getobject", "b/*")]);
        assert_eq!(p.judge(Some("alice"), Action::GetObject, "b/k"), Verdict::Allowed, "{principal}");
        assert_eq!(p.judge(Some("bob"), Action::GetObject, "b/k"), Verdict::Silent);
        assert_eq!(p.judge(None, Action::GetObject, "b/k"), Verdict::Silent);
        assert!(!p.is_public());
    }
    assert!(policy(&[statement("Allow", r#"{"AWS":"*"}"#, "s3:*", "b*")]).is_public());
    assert!(!policy(&[statement("Deny", "\"*\"", "s3:*", "b*")]).is_public());
}

#[test]
fn get_object_does_not_include_its_versions() {
    let p = policy(&[statement("Allow", "\"*\"", "s3:GetObject", "b/*")]);
    assert_eq!(p.judge(None, Action::GetObjectVersion, "b/k"), Verdict::Silent);
}

#[test]
fn what_is_not_enforced_is_refused_as_not_implemented() {
    let base = r#""Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::b/*""#;
    let one = |statement: String| read(&format!(r#"{{"Statement":[{{{statement}}}]}}"#));
    assert!(one(base.to_owned()).is_ok());
    assert_eq!(one(format!(r#"{base},"Condition":{{}}"#)), Err(S3Code::NotImplemented));
    for (from, to) in [
        ("\"Action\"", "\"NotAction\""),
        ("\"Resource\"", "\"NotResource\""),
        ("\"Principal\"", "\"NotPrincipal\""),
        ("b/*", "b/${aws:username}"),
        (r#""Principal":"*""#, r#""Principal":{"Service":"x"}"#),
    ] {
        assert_eq!(one(base.replace(from, to)), Err(S3Code::NotImplemented), "{to}");
    }
}

#[test]
fn row_71_policies_are_read_strictly() {
    let good = statement("Allow", "\"*\"", "s3:GetObject", "b/*");
    let document = |inner: &str| format!(r#"{{"Version":"2012-10-17",{inner}}}"#);
    for bad in [
        String::new(),
        "[]".into(),
        document(r#""Statement":[]"#),
        document(&format!(r#""Unknown":1,"Statement":[{good}]"#)),
        document(&format!(r#""Statement":[{good}],"Statement":[{good}]"#)),
        document(&format!(r#""Statement":[{}]"#, good.replace("}", r#","Effect":"Allow"}"#))),
        document(&format!(r#""Statement":[{}]"#, good.replace("Effect", "effect"))),
        document(&format!(r#""Statement":[{}]"#, good.replace("Allow", "allow"))),
        document(&format!(r#""Statement":[{}]"#, good.replace("s3:GetObject", "s3:GetObjekt"))),
        document(&format!(r#""Statement":[{}]"#, good.replace("s3:GetObject", "ec2:Run"))),
        document(&format!(r#""Statement":[{}]"#, good.replace(":::b/", ":::other/"))),
        document(&format!(r#""Statement":[{}]"#, good.replace("\"*\"", r#"{"AWS":"nobody"}"#))),
        document(&format!(r#""Statement":[{good}]"#)).replace("2012-10-17", "2012-10-18"),
        document(&format!(r#""Statement":[{good}]"#)) + " x",
        format!("{}{}", "[".repeat(5000), "]".repeat(5000)),
        document(&format!(r#""Statement":[{}]"#, vec![good.clone(); 500].join(","))),
    ] {
        assert_eq!(read(&bad), Err(S3Code::MalformedPolicy), "{}", &bad[..bad.len().min(300)]);
    }
}
