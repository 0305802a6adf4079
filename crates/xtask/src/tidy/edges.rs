//! The edges between crates are exactly those of the table in ARCHITECTURE.md.
//!
//! Promises: an edge in a manifest that is not in the table is a finding, and so is one in the table that no manifest has.
//! Refuses to know: third-party crates; those are named once in the root manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{Finding, Page};

/// The document that holds the table.
const DOCUMENT: &str = "ARCHITECTURE.md";
/// Stands on a line of its own before the table; the table ends at the first line that is not a row.
const MARK: &str = "<!-- tidy: crate edges -->";

/// What a crate uses, and what its tests use besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Edges {
    normal: BTreeSet<String>,
    tests: BTreeSet<String>,
}

type Graph = BTreeMap<String, Edges>;

pub(super) fn check(root: &Path, pages: &[Page]) -> Result<Vec<Finding>, String> {
    let manifests = from_manifests(root)?;
    let Some(document) = pages.iter().find(|page| page.path == DOCUMENT) else {
        return Ok(vec![Finding::new(DOCUMENT, 0, "is missing; it holds the table of crate edges")]);
    };
    Ok(match from_table(&document.text) {
        Some((table, line)) => compare(&manifests, &table, line),
        None => vec![Finding::new(DOCUMENT, 0, format!("has no table after {MARK}"))],
    })
}

fn compare(manifests: &Graph, table: &Graph, line: usize) -> Vec<Finding> {
    let names: BTreeSet<&String> = manifests.keys().chain(table.keys()).collect();
    let mut findings = Vec::new();
    for name in names {
        match (manifests.get(name), table.get(name)) {
            (Some(_), None) => findings.push(Finding::new(DOCUMENT, line, format!("the table lacks the crate {name}"))),
            (None, Some(_)) => {
                findings.push(Finding::new(DOCUMENT, line, format!("the table names {name}, which is no crate")))
            }
            (Some(manifest), Some(row)) => {
                findings.extend(difference(name, "uses", &manifest.normal, &row.normal, line));
                findings.extend(difference(name, "in tests also uses", &manifest.tests, &row.tests, line));
            }
            (None, None) => {}
        }
    }
    findings
}

fn difference(
    name: &str,
    verb: &str,
    manifest: &BTreeSet<String>,
    table: &BTreeSet<String>,
    line: usize,
) -> Vec<Finding> {
    let manifest_path = format!("crates/{name}/Cargo.toml");
    let more = manifest.difference(table).map(|other| {
        Finding::new(&manifest_path, 0, format!("{name} {verb} {other}, which the table in {DOCUMENT} does not allow"))
    });
    let fewer = table.difference(manifest).map(|other| {
        Finding::new(DOCUMENT, line, format!("the table says that {name} {verb} {other}, but its manifest does not"))
    });
    more.chain(fewer).collect()
}

fn from_manifests(root: &Path) -> Result<Graph, String> {
    let folder = root.join("crates");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let paths: Vec<_> = entries
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .filter(|path| path.join("Cargo.toml").is_file())
        .collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let names: BTreeSet<String> = paths.iter().map(|path| name(path)).collect();
    let mut graph = Graph::new();
    for path in &paths {
        let manifest = path.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
        graph.insert(name(path), from_manifest(&text, &names));
    }
    Ok(graph)
}

/// Dependencies on crates of this project. Each stands on its own line, as everywhere in this project.
fn from_manifest(text: &str, names: &BTreeSet<String>) -> Edges {
    let mut edges = Edges::default();
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
            continue;
        }
        let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
        if !names.contains(key) {
            continue;
        }
        match section {
            "[dependencies]" | "[build-dependencies]" => edges.normal.insert(key.to_owned()),
            "[dev-dependencies]" => edges.tests.insert(key.to_owned()),
            _ => false,
        };
    }
    edges
}

/// The table: crate, uses, in tests also uses, and columns that are for people only.
fn from_table(text: &str) -> Option<(Graph, usize)> {
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| line.trim() != MARK).skip(1);
    let first = lines.find(|(_, line)| line.starts_with('|'))?.0 + 1;
    let rows = text.lines().skip(first + 1).take_while(|line| line.starts_with('|'));
    let mut graph = Graph::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').collect();
        let name = names_in(cells.first()?).into_iter().next()?;
        let edges = Edges {
            normal: cells.get(1).map(|cell| names_in(cell)).unwrap_or_default(),
            tests: cells.get(2).map(|cell| names_in(cell)).unwrap_or_default(),
        };
        graph.insert(name, edges);
    }
    Some((graph, first))
}

/// The words between backticks.
fn names_in(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::{compare, from_manifest, from_table};
    use std::collections::{BTreeMap, BTreeSet};

    const TABLE: &str = "x\n<!-- tidy: crate edges -->\n\n| crate | uses | in tests | is |\n|---|---|---|---|\n| `a` | `b` | - | word |\n| `b` | - | `a` | |\n\nend\n";

    #[test]
    fn a_table_equal_to_the_manifests_has_no_findings_and_each_difference_one() {
        let names: BTreeSet<String> = ["a", "b"].map(String::from).into();
        let a = from_manifest("[package]\nb = 1\n[dependencies]\nb.workspace = true\nserde = \"1\"\n", &names);
        let b = from_manifest("[dependencies]\n[dev-dependencies]\na = { workspace = true }\n", &names);
        let (table, line) = from_table(TABLE).expect("a table");
        let mut manifests: BTreeMap<_, _> = [("a".to_owned(), a.clone()), ("b".to_owned(), b)].into();
        assert_eq!(compare(&manifests, &table, line), []);
        manifests.insert("c".to_owned(), a);
        manifests.insert("b".to_owned(), from_manifest("[dependencies]\na.workspace = true\n", &names));
        assert_eq!(compare(&manifests, &table, line).len(), 3);
    }
}
