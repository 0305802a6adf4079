//! Rules for Markdown files.
//!
//! Promises: links inside the project lead somewhere, also to headings; paths in backticks exist; commands of xtask exist.
//! Refuses to know: links to other places; no test may need the network.

use std::path::Path;

use super::{Finding, Page};

/// Backticked words that begin so are paths from the root.
const PATH_STARTS: [&str; 4] = ["crates/", "docs/", "tests-clients/", ".ci/"];

pub(super) fn check(root: &Path, pages: &[Page], commands: &[String]) -> Vec<Finding> {
    let documents = pages.iter().filter(|page| page.path.ends_with(".md"));
    documents.flat_map(|page| check_page(root, pages, page, commands)).collect()
}

fn check_page(root: &Path, pages: &[Page], page: &Page, commands: &[String]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, line) in page.text.lines().enumerate() {
        let mut say = |text: String| findings.push(Finding::new(&page.path, index + 1, text));
        for target in links(line) {
            if let Some(trouble) = broken_link(root, pages, page, target) {
                say(trouble);
            }
        }
        for path in paths(line) {
            if !root.join(path).exists() {
                say(format!("{path} does not exist"));
            }
        }
        for command in xtask_commands(line) {
            if !commands.iter().any(|known| known == command) {
                say(format!("cargo xtask has no command {command}"));
            }
        }
    }
    findings
}

/// Targets of `[text](target)`.
fn links(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

fn broken_link(root: &Path, pages: &[Page], page: &Page, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let folder = Path::new(&page.path).parent().unwrap_or(Path::new(""));
    let path = if file.is_empty() { page.path.clone() } else { normal(&folder.join(file)) };
    if !root.join(&path).exists() {
        return Some(format!("the link {target} leads nowhere"));
    }
    let linked = pages.iter().find(|page| page.path == path).filter(|_| !heading.is_empty())?;
    let found = linked
        .text
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' '))
        .any(|title| anchor(title) == heading);
    (!found).then(|| format!("{path} has no heading for #{heading}"))
}

/// Without `..`, so that it can be compared with the paths of pages.
fn normal(path: &Path) -> String {
    let mut parts: Vec<String> = Vec::new();
    for part in path.components().map(|part| part.as_os_str().to_string_lossy().into_owned()) {
        match part.as_str() {
            ".." => drop(parts.pop()),
            "." => {}
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// A heading as a link names it.
fn anchor(title: &str) -> String {
    let keep = |c: char| c.is_alphanumeric() || c == '-' || c == '_' || c == ' ';
    title.to_lowercase().chars().filter(|c| keep(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Backticked paths, without a line number or a pattern's end.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let words = line.split('`').skip(1).step_by(2);
    let paths =
        words.filter(|word| PATH_STARTS.iter().any(|start| word.starts_with(start)) && !word.contains([' ', '<', 'N']));
    paths.map(|word| word.split([':', '*']).next().unwrap_or(word))
}

/// The words after `cargo xtask`.
fn xtask_commands(line: &str) -> impl Iterator<Item = &str> {
    let after = line.split("cargo xtask ").skip(1);
    after
        .filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next())
        .filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::{anchor, links, normal, paths, xtask_commands};
    use std::path::Path;

    #[test]
    fn links_paths_and_commands_are_found_in_a_line() {
        let line = "See [a](b.md#c) and [d](../e), `crates/s3/src/lib.rs:4`, `crates/*/x`, run `cargo xtask tidy --x`.";
        assert_eq!(links(line).collect::<Vec<_>>(), ["b.md#c", "../e"]);
        assert_eq!(paths(line).collect::<Vec<_>>(), ["crates/s3/src/lib.rs", "crates/"]);
        assert_eq!(xtask_commands(line).collect::<Vec<_>>(), ["tidy"]);
    }

    #[test]
    fn headings_and_paths_are_compared_in_their_plain_form() {
        assert_eq!(anchor("What may fail, and when?"), "what-may-fail-and-when");
        assert_eq!(normal(Path::new("docs/adr/../../README.md")), "README.md");
    }
}
