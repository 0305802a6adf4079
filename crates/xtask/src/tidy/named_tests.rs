//! Rule for documents that say which test proves what.
//!
//! Promises: after the marker, each test named in a row of a table is in the file named before it. Refuses to know: whether the
//! test proves it.

use std::fs;
use std::path::Path;

use super::{Finding, Page};

/// From here on a document names tests.
const MARKER: &str = "<!-- tidy: tests -->";

pub(super) fn check(root: &Path, pages: &[Page]) -> Vec<Finding> {
    let source = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    pages.iter().filter(|page| page.path.ends_with(".md")).flat_map(|page| check_page(page, &source)).collect()
}

fn check_page(page: &Page, source: &dyn Fn(&str) -> String) -> Vec<Finding> {
    let lines = page.text.lines().enumerate().skip_while(|(_, line)| *line != MARKER);
    let rows = lines.filter(|(_, line)| line.starts_with('|'));
    let missing = |(index, line)| {
        let names = named(line).into_iter().filter(|(path, name)| !has(&source(path), name));
        names.map(move |(path, name)| Finding::new(&page.path, index + 1, format!("{path} has no test {name}")))
    };
    rows.flat_map(missing).collect()
}

/// Each backticked name of a row with the path before it.
fn named(row: &str) -> Vec<(&str, &str)> {
    let mut path = "";
    let mut names = Vec::new();
    for word in row.split('`').skip(1).step_by(2) {
        if word.contains('/') {
            path = word;
        } else {
            names.push((path, word));
        }
    }
    names
}

fn has(source: &str, name: &str) -> bool {
    ["fn", "def"].iter().any(|keyword| source.contains(&format!("{keyword} {name}(")))
}

#[cfg(test)]
mod tests {
    use super::{Page, check_page, named};

    #[test]
    fn a_row_names_tests_after_their_file() {
        let row = "| 7 | `a/b.rs`: `x`, `y`; `c/d.py`: `z` |";
        assert_eq!(named(row), [("a/b.rs", "x"), ("a/b.rs", "y"), ("c/d.py", "z")]);
    }

    #[test]
    fn a_test_that_is_not_there_is_found() {
        let source = |path: &str| match path {
            "a/b.rs" => "async fn is_here() {".to_owned(),
            "c/d.py" => "def is_here_too():".to_owned(),
            _ => String::new(),
        };
        let text = "`a/b.rs`: `ignored`\n<!-- tidy: tests -->\n| `a/b.rs`: `is_here`, `is_gone` |\n| `c/d.py`: `is_here_too` |\n| `e/f.rs`: `is_here` |";
        let page = Page { path: "docs/x.md".into(), text: text.into() };
        let found: Vec<_> = check_page(&page, &source).into_iter().map(|f| (f.line, f.text)).collect();
        assert_eq!(found, [(3, "a/b.rs has no test is_gone".into()), (5, "e/f.rs has no test is_here".into())]);
    }
}
