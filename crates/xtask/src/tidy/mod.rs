//! `cargo xtask tidy`: what the lints cannot see.
//!
//! Promises: each finding names file and line and says what to do. Runs as a test too, so that a habit exists because a check
//! exists. Refuses to know: the meaning of code; it reads text.

mod documents;
mod edges;
mod exceptions;
mod named_tests;
mod sources;

use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    /// Relative to the root.
    file: String,
    /// From 1; 0 for the whole file.
    line: usize,
    text: String,
}

impl Finding {
    fn new(file: &str, line: usize, text: impl Into<String>) -> Finding {
        Finding { file: file.to_owned(), line, text: text.into() }
    }
}

/// A file of the project: path relative to the root, and its text.
struct Page {
    path: String,
    text: String,
}

/// Looks at everything and prints what it finds.
pub fn run(root: &Path) -> Outcome {
    let findings = findings(root)?;
    for finding in &findings {
        println!("{}:{}: {}", finding.file, finding.line, finding.text);
    }
    if findings.is_empty() { Ok(()) } else { Err(format!("tidy: {} findings", findings.len())) }
}

fn findings(root: &Path) -> Result<Vec<Finding>, String> {
    let pages = read_all(root)?;
    let exceptions = exceptions::read(&pages)?;
    let mut findings = edges::check(root, &pages)?;
    findings.extend(sources::check(&pages, &exceptions));
    findings.extend(documents::check(root, &pages, &crate::command_names()));
    findings.extend(named_tests::check(root, &pages));
    findings.sort();
    Ok(findings)
}

/// All Rust, Markdown and manifest files of the project.
fn read_all(root: &Path) -> Result<Vec<Page>, String> {
    let mut pages = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !["target", "node_modules", "ashlar-data"].contains(&name.as_str()) {
                    folders.push(path);
                }
            } else if is_read(&path) {
                pages.push(page(root, &path)?);
            }
        }
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

fn is_read(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    path.extension().is_some_and(|ext| ext == "rs" || ext == "md")
        || name == "Cargo.toml"
        || name == exceptions::FILE_NAME
}

fn page(root: &Path, path: &PathBuf) -> Result<Page, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let path = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    Ok(Page { path, text })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_project_is_tidy() {
        let findings = super::findings(&crate::root()).expect("the checkout can be read");
        assert!(findings.is_empty(), "cargo xtask tidy says:\n{findings:#?}");
    }
}
