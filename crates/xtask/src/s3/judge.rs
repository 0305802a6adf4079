//! Which tests of the suite must pass, and whether they did.
//!
//! Promises: a test that did not run has not passed; a list that lost tests is refused. Refuses to know: how tests are run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::excuse::{Excuse, Suite, excuse, unfounded};
use super::read;
use crate::Outcome;

/// The areas whose tests must all pass.
const REQUIRED_AREAS: [&str; 14] = [
    "listing",
    "multipart",
    "bucket",
    "post-object",
    "request-headers",
    "versioning",
    "conditional",
    "object",
    "range-atomic-read",
    "tagging",
    "cors",
    "copy",
    "multi-delete",
    "checksum",
];

/// How many tests of the target list these areas have: a list that lost some would prove less than it says.
const REQUIRED_TESTS: usize = 241;

/// In the need column of a test that other tests at the same time would disturb.
const ALONE: &str = "needs an account with no other buckets";

const TARGETS: &str = "s3tests-target.txt";
const AREAS: &str = "s3tests-areas.tsv";

/// What the table of areas says of a test.
pub struct Listed {
    pub area: String,
    pub need: String,
}

/// The tool's lists.
pub struct Lists {
    table: String,
    areas: BTreeMap<String, Listed>,
    ids: Vec<String>,
}

impl Lists {
    /// The lists of the tool, the first `limit` tests of them if it is not 0.
    pub fn read(tool: &Path, limit: usize) -> Result<Self, String> {
        let lists = Lists::parse(&read(&tool.join(TARGETS))?, read(&tool.join(AREAS))?, limit);
        match lists.required().len() {
            REQUIRED_TESTS => Ok(lists),
            _ if limit != 0 => Ok(lists),
            other => Err(format!("the list has {other} required tests instead of {REQUIRED_TESTS}")),
        }
    }

    fn parse(targets: &str, table: String, limit: usize) -> Self {
        let limit = if limit == 0 { usize::MAX } else { limit };
        let ids = targets.lines().map(str::trim).filter(|id| !id.is_empty()).take(limit).map(str::to_owned);
        Lists { areas: read_areas(&table), table, ids: ids.collect() }
    }

    /// Tests that may run beside others.
    pub fn together(&self) -> Vec<&str> {
        self.ids.iter().map(String::as_str).filter(|id| !self.is_alone(id)).collect()
    }

    /// Tests that run one by one.
    pub fn alone(&self) -> Vec<&str> {
        self.ids.iter().map(String::as_str).filter(|id| self.is_alone(id)).collect()
    }

    fn is_alone(&self, id: &str) -> bool {
        self.areas.get(id).is_some_and(|listed| listed.need.contains(ALONE))
    }

    /// Makes `folder` one of lists with these tests only.
    pub fn write(&self, folder: &Path, ids: &[&str]) -> Outcome {
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(folder.join(TARGETS), ids.join("\n")))
            .and_then(|()| fs::write(folder.join(AREAS), &self.table))
            .map_err(|error| format!("{}: {error}", folder.display()))
    }

    fn required(&self) -> Vec<Required<'_>> {
        let of = |id: &'_ String| self.areas.get_key_value(id).map(|(id, listed)| (id.as_str(), listed));
        let required = self.ids.iter().filter_map(of);
        required.filter(|(_, listed)| REQUIRED_AREAS.contains(&listed.area.as_str())).collect()
    }

    /// Fails if an excuse has outlived its reason.
    pub fn check_excuses(&self, checkout: &Path) -> Outcome {
        unfounded(&self.required(), &Suite::read(checkout)?).map_or(Ok(()), Err)
    }

    /// Prints what became of the required tests; fails if one is missed.
    pub fn judge(&self, results: &str) -> Outcome {
        let required = self.required();
        let verdict = Verdict::of(&required, &read_results(results));
        println!("\nRequired by issue 2 ({} areas):", REQUIRED_AREAS.len());
        println!("{}", verdict.text());
        match verdict.missed.len() {
            0 => Ok(()),
            missed => Err(format!("{missed} required tests do not pass")),
        }
    }
}

/// One required test: its id and what the table says of it.
pub type Required<'a> = (&'a str, &'a Listed);

/// What became of the required tests.
struct Verdict<'a> {
    passed: usize,
    excused: Vec<(&'a str, Excuse)>,
    missed: Vec<Required<'a>>,
}

impl<'a> Verdict<'a> {
    fn of(required: &[Required<'a>], good: &BTreeMap<String, bool>) -> Self {
        let mut verdict = Verdict { passed: 0, excused: Vec::new(), missed: Vec::new() };
        for (id, listed) in required {
            match (good.get(*id), excuse(id)) {
                (Some(true), _) => verdict.passed += 1,
                (_, Some(excuse)) => verdict.excused.push((id, excuse)),
                (_, None) => verdict.missed.push((id, listed)),
            }
        }
        verdict
    }

    fn text(&self) -> String {
        let mut lines: Vec<String> =
            self.excused.iter().map(|(id, excuse)| format!("  excused {}: {}", short(id), excuse.reason())).collect();
        lines.extend(self.missed.iter().map(|(id, listed)| format!("  MISSED {} ({})", short(id), listed.area)));
        let (missed, excused) = (self.missed.len(), self.excused.len());
        lines.push(format!("s3: {} passed, {missed} failed, {excused} skipped", self.passed));
        lines.join("\n")
    }
}

/// The function of a test's id.
pub fn short(id: &str) -> &str {
    id.rsplit("::").next().unwrap_or(id)
}

fn read_areas(table: &str) -> BTreeMap<String, Listed> {
    let row = |line: &str| {
        let mut fields = line.split('\t');
        let (id, area) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        Some((id, Listed { area, need: fields.nth(1).unwrap_or_default().to_owned() }))
    };
    table.lines().skip(1).filter_map(row).collect()
}

fn read_results(lines: &str) -> BTreeMap<String, bool> {
    let row = |line: &str| {
        let result: Value = serde_json::from_str(line).ok()?;
        let outcome = result["outcome"].as_str()?;
        Some((result["id"].as_str()?.to_owned(), matches!(outcome, "passed" | "teardown-error")))
    };
    lines.lines().filter_map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::{Lists, Verdict, read_results};
    use std::collections::BTreeMap;

    const TABLE: &str = "node\tarea\ttier\tneed\tmarks\n\
        f.py::test_a\tcopy\ttarget\t\t\n\
        f.py::test_b\tcopy\ttarget\t\t\n\
        f.py::test_non_multipart_get_part\tmultipart\ttarget\t\t\n\
        f.py::test_lonely\tbucket\ttarget\tneeds an account with no other buckets\t\n\
        f.py::test_later\tlifecycle\ttarget\t\t\n";

    fn lists(names: &[&str], limit: usize) -> Lists {
        let targets: Vec<_> = names.iter().map(|name| format!("f.py::{name}")).collect();
        Lists::parse(&targets.join("\n"), TABLE.to_owned(), limit)
    }

    #[test]
    fn a_required_test_that_fails_or_did_not_run_is_missed_unless_it_is_excused() {
        let lists = lists(&["test_a", "test_b", "test_non_multipart_get_part"], 0);
        let required = lists.required();
        let good = BTreeMap::from([("f.py::test_a".to_owned(), true)]);
        let verdict = Verdict::of(&required, &good);
        assert_eq!((verdict.passed, verdict.excused.len(), verdict.missed.len()), (1, 1, 1));
        assert!(verdict.text().contains("MISSED test_b (copy)"), "{}", verdict.text());
        assert!(verdict.text().contains("excused test_non_multipart_get_part: AWS answers otherwise"));
        assert!(verdict.text().ends_with("s3: 1 passed, 1 failed, 1 skipped"));
        let all = required.iter().map(|(id, _)| ((*id).to_owned(), true)).collect();
        assert_eq!(Verdict::of(&required, &all).passed, 3, "who passes needs no excuse");
        assert!(lists.judge("").is_err());
    }

    #[test]
    fn only_tests_of_the_required_areas_are_required() {
        let lists = lists(&["test_a", "test_later", "test_unknown"], 0);
        let names: Vec<_> = lists.required().into_iter().map(|(id, _)| id).collect();
        assert_eq!(names, ["f.py::test_a"]);
    }

    #[test]
    fn tests_that_others_would_disturb_run_alone() {
        let lists = lists(&["test_a", "test_lonely", "test_b", "test_later"], 3);
        assert_eq!(lists.together(), ["f.py::test_a", "f.py::test_b"]);
        assert_eq!(lists.alone(), ["f.py::test_lonely"]);
    }

    #[test]
    fn the_results_of_the_tool_are_read() {
        let results =
            read_results("{\"id\":\"a\",\"outcome\":\"passed\"}\n{\"id\":\"b\",\"outcome\":\"failed\"}\nnot json\n");
        assert_eq!((results["a"], results["b"]), (true, false));
    }
}
