//! The listing rows of the S3 cases, asked of the model directly.

mod fixture;

use fixture::{Fixture, names};
use object_controller::api::{ListVersions, Versioning};

async fn with_keys(keys: &[&str]) -> Fixture {
    let f = Fixture::new().await;
    for k in keys {
        f.put(k, "x").await;
    }
    f
}

#[tokio::test]
async fn case_2_a_prefix_with_a_slash_does_not_leak_its_longer_sibling() {
    let f = with_keys(&["foo/x", "foo1000/y"]).await;
    assert_eq!(names(&f.list("foo/", "", "", 1000).await), ["foo/x"]);
    assert_eq!(names(&f.list("foo/", "/", "", 1000).await), ["foo/x"]);
}

#[tokio::test]
async fn case_3_start_after_in_the_middle_of_a_group_still_shows_the_group() {
    let f = with_keys(&["prefix1/object", "prefix2/object"]).await;
    assert_eq!(f.list("prefix", "/", "prefix1", 1000).await.prefixes, ["prefix1/", "prefix2/"]);
}

#[tokio::test]
async fn case_4_a_marker_that_is_a_group_skips_the_group() {
    let f = with_keys(&["asdf", "boo/bar", "boo/baz/xyzzy", "cquux/bla", "cquux/thud"]).await;
    let page = f.list("", "/", "boo/", 1).await;
    assert_eq!((names(&page), page.truncated), (vec!["cquux/".to_owned()], false));
}

#[tokio::test]
async fn case_6_a_page_that_ends_with_a_group_goes_on_after_it() {
    let f = Fixture::new().await;
    for n in 0..150 {
        f.put(&format!("a|{n:04}"), "x").await;
    }
    f.put("b|1", "x").await;
    let page = f.list("", "|", "", 1).await;
    assert_eq!((names(&page), page.truncated), (vec!["a|".to_owned()], true));
    assert_eq!(f.walk("", "|", 1).await, ["a|", "b|"]);
}

#[tokio::test]
async fn case_7_a_key_and_the_group_of_its_name_stand_side_by_side() {
    let f = with_keys(&["a", "a/b"]).await;
    let page = f.list("", "/", "", 1000).await;
    assert_eq!(page.objects.iter().map(|o| o.key.as_str()).collect::<Vec<_>>(), ["a"]);
    assert_eq!(page.prefixes, ["a/"]);
}

#[tokio::test]
async fn case_10_the_prefix_itself_is_a_key_not_a_group() {
    let f = with_keys(&["d/", "d/x"]).await;
    let page = f.list("d/", "/", "", 1000).await;
    assert_eq!(names(&page), ["d/", "d/x"]);
    assert!(page.prefixes.is_empty());
    assert_eq!(names(&f.list("d/", "/", "d/", 1000).await), ["d/x"]);
}

#[tokio::test]
async fn case_11_a_group_of_deleted_keys_is_not_shown() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    f.put("p/x", "x").await;
    f.delete("p/x", None).await;
    assert!(names(&f.list("", "/", "", 1000).await).is_empty());
}

#[tokio::test]
async fn cases_12_13_and_29_pages_show_each_entry_once_in_byte_order() {
    let f = with_keys(&["dir1/a/x", "dir1/a.b/x", "dir1/a-b/x", "a/a/a/x", "a/a/y", "a/z"]).await;
    assert_eq!(f.walk("dir1/", "", 1).await, ["dir1/a-b/x", "dir1/a.b/x", "dir1/a/x"]);
    assert_eq!(f.walk("", "", 1).await.len(), 6);
    assert_eq!(f.walk("dir1/", "/", 2).await, ["dir1/a-b/", "dir1/a.b/", "dir1/a/"]);
}

#[tokio::test]
async fn case_18_no_keys_wanted_is_an_empty_page_that_is_not_truncated() {
    let f = with_keys(&["a"]).await;
    let page = f.list("", "", "", 0).await;
    assert!(names(&page).is_empty() && !page.truncated && page.next.is_none());
}

#[tokio::test]
async fn case_21_a_delimiter_may_be_longer_than_a_character() {
    let f = with_keys(&["a::b::c", "a::d"]).await;
    assert_eq!(names(&f.list("", "::", "", 1000).await), ["a::"]);
    let page = f.list("a::", "::", "", 1000).await;
    assert_eq!((page.objects[0].key.as_str(), page.prefixes), ("a::d", vec!["a::b::".to_owned()]));
}

#[tokio::test]
async fn case_35_versions_are_grouped_like_objects() {
    let f = Fixture::new().await;
    f.versioning(Versioning::Enabled).await;
    f.put("dir/test", "x").await;
    f.put("dir/subdir/test2", "x").await;
    let ask = |prefix: &str| ListVersions {
        prefix: prefix.into(),
        delimiter: Some("/".into()),
        max: 1000,
        ..ListVersions::default()
    };
    assert_eq!(f.versions(ask("")).await.prefixes, ["dir/"]);
    let page = f.versions(ask("dir/")).await;
    assert_eq!((page.versions[0].key.as_str(), page.prefixes), ("dir/test", vec!["dir/subdir/".to_owned()]));
    assert_eq!(f.versions(ask("dir/t")).await.versions.len(), 1);
    assert_eq!(f.versions(ask("dir/s")).await.prefixes, ["dir/subdir/"]);
}
