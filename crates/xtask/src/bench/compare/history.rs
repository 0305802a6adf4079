//! The history of comparisons: one line a run, so that a loss of speed is seen when it happens.
//!
//! Promises: only appends; a file with other columns is refused. Refuses to know: how lines are judged.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::servers::ServerId;
use super::table::Table;
use crate::Outcome;
use crate::bench::spread::number;

/// Figures of the floor.
const FLOOR: [&str; 5] = ["append_sync_us", "overwrite_sync_us", "direct_write_mb_s", "memcpy_gb_s", "md5_gb_s"];

/// Our medians that are kept, by the names of their rows.
const ROWS: [&str; 16] = [
    "PUT 4 KiB c1, p50 ms",
    "PUT 4 KiB c16, ops/s",
    "PUT 4 KiB c64, ops/s",
    "PUT 4 KiB c64, ops/s, times Garage with fsync",
    "PUT 4 KiB c64, CPU s per 10k",
    "GET 4 KiB c16, CPU s per 10k",
    "GET 4 KiB c16, CPU, times bare hyper",
    "HEAD c16, CPU s per 10k",
    "HEAD c16, CPU, times bare hyper",
    "DELETE c16, CPU s per 10k",
    "PUT 1 MiB c1, CPU s per GB",
    "PUT 1 MiB c16, CPU s per GB",
    "GET 1 MiB c1, CPU s per GB",
    "LIST of 1,000 keys, p50 ms",
    "LIST of 1,000 keys, CPU s per 10k",
    "memory peak (--memory 1GiB), MiB",
];

/// Adds a line, and the head if the file is new.
pub(super) fn append(path: &Path, table: &Table) -> Outcome {
    let head = head();
    let old = fs::read_to_string(path).unwrap_or_default();
    if !old.is_empty() && old.lines().next() != Some(head.as_str()) {
        return Err(format!("{} has other columns than this version writes; move it away first", path.display()));
    }
    let begin = if old.is_empty() { format!("{head}\n") } else { old };
    fs::write(path, format!("{begin}{}\n", line(table))).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("appended to {}", path.display());
    Ok(())
}

fn head() -> String {
    ["date", "commit", "machine"].into_iter().chain(FLOOR).chain(ROWS).collect::<Vec<_>>().join("\t")
}

fn line(table: &Table) -> String {
    let floor = FLOOR.iter().map(|name| table.floor.get(name).and_then(Value::as_f64));
    let ours = |name: &&str| {
        let line = table.lines.iter().find(|line| line.row.name == *name)?;
        line.cell(ServerId::Ours).map(|spread| spread.median)
    };
    let figures = floor.chain(ROWS.iter().map(ours)).map(|value| value.map_or("-".into(), number));
    // A tabulator in a processor's name would shift the columns.
    let words = [&table.date, &table.commit, &table.machine].map(|word| word.replace(['\t', '\n'], " "));
    words.into_iter().chain(figures.map(|figure: String| figure.replace(',', ""))).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::{ROWS, append, head, line};
    use crate::bench::compare::rows::{PEAK, ROWS as ALL};
    use crate::bench::compare::servers::ServerId::Ours;
    use crate::bench::compare::table::tests::{line as cells, table};

    #[test]
    fn every_kept_figure_is_a_row_and_a_line_has_as_many_columns_as_the_head() {
        for name in ROWS {
            assert!(ALL.iter().chain([&PEAK]).any(|row| row.name == name), "{name}");
        }
        let text = line(&table(vec![cells("PUT 4 KiB c16, ops/s", &[(Ours, 9010.4)])]));
        assert_eq!(text.split('\t').count(), head().split('\t').count());
        assert!(text.contains("\t191\t-\t-\t-\t-\t-\t9010\t-\t"), "{text}");
    }

    #[test]
    fn lines_are_appended_and_a_file_with_other_columns_is_refused() {
        let folder = std::env::temp_dir().join(format!("xtask-history-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("history.tsv");
        append(&path, &table(vec![])).expect("a new file");
        append(&path, &table(vec![])).expect("a second line");
        assert_eq!(std::fs::read_to_string(&path).expect("the file").lines().count(), 3);
        std::fs::write(&path, "date\tother\n").expect("written");
        assert!(append(&path, &table(vec![])).is_err());
        std::fs::remove_dir_all(&folder).expect("removed");
    }
}
