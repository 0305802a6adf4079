//! Rules for Rust files.
//!
//! Promises: comments and string literals are not taken for code where that matters. Refuses to know: types, macros.

use super::exceptions::Exceptions;
use super::{Finding, Page};

/// Lines of a file without its tests.
const LINES_MAX: usize = 600;

/// Names that say nothing about what is inside.
const EMPTY_NAMES: [&str; 9] = ["common", "util", "utils", "helper", "helpers", "manager", "misc", "v2", "stuff"];

/// Globs that hide nothing in tests: the code of that very file, and the vocabulary of property tests.
const TEST_GLOBS: [&str; 2] = ["use super::*;", "use proptest::prelude::*;"];

/// A word that must not stand in code, and why. Written in two halves so that this file passes its own check.
const FORBIDDEN: [(&str, &str, &str); 6] = [
    ("to", "do!(", "a stub; leave the thing out and say so"),
    ("unim", "plemented!(", "a stub; leave the thing out and say so"),
    ("#[ig", "nore", "a test that does not run is no test"),
    ("FIX", "ME", "needs a reason that a stranger understands, not a mark"),
    ("tokio::", "fs", "durable files go through env's disk (rule R4)"),
    ("dbg", "!(", "left over from a search"),
];

pub(super) fn check(pages: &[Page], exceptions: &Exceptions) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages.iter().filter(|page| page.path.ends_with(".rs")) {
        findings.extend(opening(page));
        findings.extend(length(page, exceptions));
        findings.extend(unsafe_code(page, exceptions));
        findings.extend(names(page));
        findings.extend(lines(page));
    }
    findings.extend(stale(pages, exceptions));
    findings
}

fn opening(page: &Page) -> Option<Finding> {
    let opens = page.text.starts_with("//!");
    (!opens).then(|| Finding::new(&page.path, 1, "must open with //! and say what it is, promises and refuses to know"))
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.contains("/benches/")
}

/// The line from which on a file holds only tests.
fn tests_begin(page: &Page) -> usize {
    if is_test_file(&page.path) {
        return 0;
    }
    let lines: Vec<&str> = page.text.lines().collect();
    let inline = |index: &usize| {
        lines[*index] == "#[cfg(test)]"
            && lines.get(index + 1).is_some_and(|next| next.starts_with("mod ") && next.ends_with('{'))
    };
    (0..lines.len()).find(inline).unwrap_or(lines.len())
}

fn length(page: &Page, exceptions: &Exceptions) -> Option<Finding> {
    let count = tests_begin(page);
    let too_long = count > LINES_MAX && !exceptions.long.contains_key(&page.path);
    too_long.then(|| {
        Finding::new(
            &page.path,
            0,
            format!("has {count} lines without tests, more than {LINES_MAX}; is there a second idea in it?"),
        )
    })
}

/// The line without its comment; enough for code formatted by rustfmt.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn unsafe_lines(page: &Page) -> Vec<usize> {
    let is_unsafe = |line: &str| {
        code(line).split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word == "unsafe") && !line.contains('"')
    };
    page.text.lines().enumerate().filter(|(_, line)| is_unsafe(line)).map(|(index, _)| index + 1).collect()
}

fn unsafe_code(page: &Page, exceptions: &Exceptions) -> Vec<Finding> {
    let lines = unsafe_lines(page);
    let Some(first) = lines.first() else { return Vec::new() };
    if !exceptions.has_unsafe.contains_key(&page.path) {
        return vec![Finding::new(
            &page.path,
            *first,
            format!("unsafe code in a file that is not listed in {}", super::exceptions::FILE_NAME),
        )];
    }
    let reasons = page.text.matches("SAFETY").count() + page.text.matches("# Safety").count();
    let missing = lines.len() > reasons;
    missing
        .then(|| {
            Finding::new(&page.path, *first, format!("{} unsafe places but {reasons} safety comments", lines.len()))
        })
        .into_iter()
        .collect()
}

fn names(page: &Page) -> Option<Finding> {
    let stem = |part: &str| part.trim_end_matches(".rs").to_owned();
    let empty = page.path.split('/').map(stem).find(|part| EMPTY_NAMES.contains(&part.as_str()))?;
    Some(Finding::new(&page.path, 0, format!("{empty:?} is not a name: say what is inside")))
}

fn lines(page: &Page) -> Vec<Finding> {
    let tests_from = tests_begin(page);
    let mut findings = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let mut say = |text: &str| findings.push(Finding::new(&page.path, index + 1, text));
        for (head, tail, why) in FORBIDDEN {
            if line.contains(&format!("{head}{tail}")) {
                say(&format!("{head}{tail} {why}"));
            }
        }
        if is_glob_import(line) && !(index >= tests_from && TEST_GLOBS.contains(&line.trim())) {
            say("a glob import hides where names come from");
        }
        if is_module_with_empty_name(line) {
            say("this module's name does not say what is inside");
        }
        if index >= tests_from && (code(line).contains("thread::sleep") || code(line).contains("time::sleep")) {
            say("a test that sleeps is slow and still guesses; wait for the event");
        }
    }
    findings
}

fn is_glob_import(line: &str) -> bool {
    let line = code(line).trim();
    let imports = line.starts_with("use ")
        || line.starts_with("pub use ")
        || line.starts_with("pub(crate) use ")
        || line.starts_with("pub(super) use ");
    imports && (line.contains("::*") || line.contains("{*") || line.contains(", *"))
}

fn is_module_with_empty_name(line: &str) -> bool {
    let words: Vec<&str> = code(line).trim().trim_end_matches([';', '{', ' ']).split(' ').collect();
    matches!(words.as_slice(), [.., "mod", name] if EMPTY_NAMES.contains(name))
}

/// Exceptions that nothing needs any more.
fn stale(pages: &[Page], exceptions: &Exceptions) -> Vec<Finding> {
    let page = |path: &String| pages.iter().find(|page| page.path == *path);
    let long = exceptions.long.iter().filter(|(path, _)| page(path).is_none_or(|page| tests_begin(page) <= LINES_MAX));
    let has_unsafe =
        exceptions.has_unsafe.iter().filter(|(path, _)| page(path).is_none_or(|page| unsafe_lines(page).is_empty()));
    long.chain(has_unsafe)
        .map(|(path, line)| {
            Finding::new(&exceptions.path, *line, format!("{path} does not need its exception any more"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{check, stale};
    use crate::tidy::Page;
    use crate::tidy::exceptions::Exceptions;

    fn findings(path: &str, text: &str) -> usize {
        check(&[Page { path: path.into(), text: text.into() }], &Exceptions::default()).len()
    }

    #[test]
    fn each_rule_finds_its_fault_and_nothing_in_a_clean_file() {
        let clean =
            "//! A file.\nuse std::fs;\nfn sum(a: u8) -> u8 {\n    a * 2 // unsafe words in comments are fine\n}\n";
        assert_eq!(findings("crates/a/src/b.rs", clean), 0);
        assert_eq!(findings("crates/a/src/b.rs", "fn f() {}\n"), 1);
        assert_eq!(findings("crates/a/src/utils.rs", clean), 1);
        for line in [
            "use std::fs::*;",
            "use a::{b, *};",
            "mod common;",
            "pub mod helpers {",
            "unsafe { f() }",
            concat!("to", "do!();"),
            concat!("#[ig", "nore]"),
        ] {
            assert_eq!(findings("crates/a/src/b.rs", &format!("{clean}{line}\n")), 1, "{line}");
        }
    }

    #[test]
    fn only_lines_before_the_tests_count_and_only_tests_may_not_sleep() {
        let long = format!("//! A.\n{}", "fn f() {}\n".repeat(600));
        let tests =
            format!("//! A.\nstd::thread::sleep(d);\n#[cfg(test)]\nmod tests {{\n{}}}\n", "fn f() {}\n".repeat(700));
        assert_eq!(findings("crates/a/src/b.rs", &long), 1);
        assert_eq!(findings("crates/a/src/b.rs", &tests), 0);
        assert_eq!(findings("crates/a/tests/b.rs", "//! A.\nstd::thread::sleep(d);\n"), 1);
    }

    #[test]
    fn an_exception_is_found_when_it_is_not_needed() {
        let mut exceptions = Exceptions::default();
        exceptions.has_unsafe.insert("a.rs".into(), 3);
        let page = |text: &str| [Page { path: "a.rs".into(), text: text.into() }];
        assert_eq!(stale(&page("//! A.\n"), &exceptions).len(), 1);
        let with_comment = "//! A.\n// SAFETY: because.\nunsafe { f() }\n";
        assert_eq!(check(&page(with_comment), &exceptions), []);
        assert_eq!(check(&page("//! A.\nunsafe { f() }\n"), &exceptions).len(), 1, "a block without its comment");
    }
}
