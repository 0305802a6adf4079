//! Required tests that need not pass, each with its reason.
//!
//! Promises: a reason is checked against the suite and its lists, so that no excuse outlives it. Refuses to know: results.

use std::fs;
use std::path::Path;

use super::judge::{Listed, Required, short};
use super::read;

/// Why a required test need not pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excuse {
    /// It sets an ACL, or its need column says 'ACLs': AWS has them disabled in new buckets, and so have we.
    Acl,
    /// Its need column says 'wider than AWS'.
    WiderThanAws,
    /// AWS answers the part number of an object that was put whole otherwise.
    AwsWins,
    /// It wants a damaged Authorization header refused, but botocore replaces the header when it signs. What arrives is a correct
    /// signature: no server that verifies signatures can refuse it. The suite itself marks it as failing.
    CorrectlySigned,
}

impl Excuse {
    /// For the person at the terminal.
    pub fn reason(self) -> &'static str {
        match self {
            Excuse::Acl => "needs ACLs, which AWS disables in new buckets",
            Excuse::WiderThanAws => "wants more than AWS does",
            Excuse::AwsWins => "AWS answers otherwise",
            Excuse::CorrectlySigned => {
                "botocore replaces the bad header before it sends: a correct signature arrives; the suite marks it fails_on_rgw"
            }
        }
    }
}

/// Any other required test that fails fails the command.
const EXCUSED: [(&str, Excuse); 28] = [
    ("test_object_acl_create_contentlength_none", Excuse::Acl),
    ("test_post_object_anonymous_request", Excuse::Acl),
    ("test_post_object_authenticated_request_bad_access_key", Excuse::Acl),
    ("test_post_object_set_success_code", Excuse::Acl),
    ("test_post_object_set_invalid_success_code", Excuse::Acl),
    ("test_post_object_success_redirect_action", Excuse::Acl),
    ("test_post_object_tags_anonymous_request", Excuse::Acl),
    ("test_object_delete_key_bucket_gone", Excuse::Acl),
    ("test_object_copy_not_owned_object_bucket", Excuse::Acl),
    ("test_list_multipart_upload_owner", Excuse::Acl),
    ("test_100_continue", Excuse::Acl),
    ("test_cors_origin_wildcard", Excuse::Acl),
    ("test_cors_header_option", Excuse::Acl),
    ("test_cors_presigned_get_object_tenant", Excuse::Acl),
    ("test_cors_presigned_put_object", Excuse::Acl),
    ("test_cors_presigned_put_object_with_acl", Excuse::Acl),
    ("test_cors_presigned_put_object_tenant_with_acl", Excuse::Acl),
    ("test_put_object_ifnonmatch_good", Excuse::WiderThanAws),
    ("test_put_object_ifnonmatch_failed", Excuse::WiderThanAws),
    ("test_put_object_if_match", Excuse::WiderThanAws),
    ("test_put_current_object_if_none_match", Excuse::WiderThanAws),
    ("test_multipart_put_current_object_if_none_match", Excuse::WiderThanAws),
    ("test_put_current_object_if_match", Excuse::WiderThanAws),
    ("test_put_object_current_if_match", Excuse::WiderThanAws),
    ("test_non_multipart_get_part", Excuse::AwsWins),
    ("test_object_create_bad_authorization_empty", Excuse::CorrectlySigned),
    ("test_bucket_create_bad_authorization_empty", Excuse::CorrectlySigned),
    ("test_bucket_create_bad_authorization_none", Excuse::CorrectlySigned),
];

/// The excuse of a test.
pub fn excuse(id: &str) -> Option<Excuse> {
    EXCUSED.iter().find(|(name, _)| *name == short(id)).map(|(_, excuse)| *excuse)
}

/// What the suite says of its tests.
pub struct Suite {
    acl_setters: Vec<String>,
    marked_failing: Vec<String>,
}

impl Suite {
    /// Reads the functions of a checkout.
    pub fn read(checkout: &Path) -> Result<Self, String> {
        let folder = checkout.join("s3tests/functional");
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut suite = Suite { acl_setters: Vec::new(), marked_failing: Vec::new() };
        let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
        for path in paths.filter(|path| path.extension().is_some_and(|ext| ext == "py")) {
            let source = read(&path)?;
            suite.acl_setters.extend(acl_setters(&source));
            suite.marked_failing.extend(marked_failing(&source));
        }
        Ok(suite)
    }
}

/// What is wrong with the first excuse that does not hold, if any.
pub fn unfounded(required: &[Required<'_>], suite: &Suite) -> Option<String> {
    let has = |names: &[String], id: &str| names.iter().any(|name| name == short(id));
    let holds = |id: &str, listed: &Listed, excuse: Excuse| match excuse {
        Excuse::Acl => listed.need.contains("ACLs") || has(&suite.acl_setters, id),
        Excuse::WiderThanAws => listed.need.contains("wider than AWS"),
        Excuse::AwsWins => true,
        Excuse::CorrectlySigned => has(&suite.marked_failing, id),
    };
    let excused = required.iter().filter_map(|(id, listed)| Some((*id, *listed, excuse(id)?)));
    let mut wrong = excused.filter(|(id, listed, excuse)| !holds(id, listed, *excuse));
    wrong.next().map(|(id, _, excuse)| format!("the excuse of {} does not hold: {}", short(id), excuse.reason()))
}

/// Names of the functions that set an ACL, themselves or by calling another that does.
fn acl_setters(source: &str) -> Vec<String> {
    let functions = functions(source);
    let mut setters: Vec<&str> = Vec::new();
    loop {
        let calls_one = |line: &str| setters.iter().any(|name| line.contains(&format!("{name}(")));
        let sets = |line: &&str| is_code_that_grants(line) && (sets_acl(line) || calls_one(line));
        let found = functions.iter().filter(|(name, body)| !setters.contains(name) && body.iter().any(sets));
        let found: Vec<&str> = found.map(|(name, _)| *name).collect();
        if found.is_empty() {
            return setters.into_iter().map(str::to_owned).collect();
        }
        setters.extend(found);
    }
}

/// Name and lines of each function.
fn functions(source: &str) -> Vec<(&str, Vec<&str>)> {
    let mut functions: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("def ") {
            functions.push((rest.split('(').next().unwrap_or(rest), Vec::new()));
        } else if let Some((_, body)) = functions.last_mut() {
            body.push(line);
        }
    }
    functions
}

/// Names of the functions that the suite marks as failing on its own server.
fn marked_failing(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut marked = false;
    for line in source.lines() {
        if let Some(rest) = line.strip_prefix("def ") {
            if std::mem::take(&mut marked) {
                names.push(rest.split('(').next().unwrap_or(rest).to_owned());
            }
        } else if line.starts_with("@pytest.mark.fails_on_rgw") {
            marked = true;
        }
    }
    names
}

/// What sets an ACL: boto's calls and argument, form fields.
const ACL_WORDS: [&str; 5] = ["put_object_acl(", "put_bucket_acl(", "ACL=", "x-amz-acl", "\"acl\""];

/// A canned ACL `private` changes nothing: a function that sets only that has no excuse.
fn is_code_that_grants(line: &str) -> bool {
    !line.trim_start().starts_with('#') && !line.contains("private")
}

fn sets_acl(line: &str) -> bool {
    ACL_WORDS.iter().any(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::{Listed, Suite, acl_setters, marked_failing, unfounded};

    #[test]
    fn functions_that_set_an_acl_are_found_by_their_bodies_and_by_whom_they_call() {
        let source = "def test_a():\n    c.put_object(ACL='public-read')\n\ndef test_c():\n    c.put_object(ACL='private')\n\n\
            def test_b():\n    pass\n    # put_object_acl(\ndef _helper():\n    c.put_bucket_acl()\ndef test_d():\n    _helper()\n";
        assert_eq!(acl_setters(source), ["test_a", "_helper", "test_d"]);
    }

    #[test]
    fn tests_that_the_suite_marks_as_failing_are_found() {
        let source =
            "@pytest.mark.fails_on_rgw\n@pytest.mark.x\ndef test_a():\n    pass\n@pytest.mark.x\ndef test_b():\n";
        assert_eq!(marked_failing(source), ["test_a"]);
    }

    #[test]
    fn an_excuse_whose_reason_does_not_hold_is_named() {
        let listed = |need: &str| Listed { area: "object".into(), need: need.into() };
        let suite = |acl: &[&str], failing: &[&str]| Suite {
            acl_setters: acl.iter().map(|s| (*s).to_owned()).collect(),
            marked_failing: failing.iter().map(|s| (*s).to_owned()).collect(),
        };
        let (plain, acls, wider) = (listed(""), listed("ACLs on by default"), listed("(wider than AWS)"));
        let unsigned = "test_bucket_create_bad_authorization_none";
        for (name, good, need) in [
            ("test_100_continue", suite(&["test_100_continue"], &[]), &plain),
            ("test_object_acl_create_contentlength_none", suite(&[], &[]), &acls),
            ("test_put_object_ifnonmatch_good", suite(&[], &[]), &wider),
            (unsigned, suite(&[], &[unsigned]), &plain),
        ] {
            let id = format!("f.py::{name}");
            assert_eq!(unfounded(&[(&id, need)], &good), None, "{name}");
            let why = unfounded(&[(&id, &plain)], &suite(&[], &[])).expect("no reason is left");
            assert!(why.contains(name), "{why}");
        }
        assert_eq!(unfounded(&[("f.py::test_without_excuse", &plain)], &suite(&[], &[])), None);
    }
}
