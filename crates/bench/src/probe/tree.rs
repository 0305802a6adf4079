//! A bucket of many keys in three levels: loaded, listed at every level, walked cold and warm, with a hot set that must stay hot.
//!
//! Promises: every key of the dataset is expected at its place: a listing that lacks one, has one twice or out of order ends the run as
//! a broken promise. Refuses to know: how the server keeps keys.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::admin::{Admin, Counters};
use super::{Check, Findings, Line, Subject, ratio};
use crate::client::{Client, Page, PageRequest};
use crate::content::{Content, Dice};
use crate::histogram::Histogram;
use crate::{BenchError, clock};

/// Entries of a page.
const PAGE: u32 = 1000;
/// Between two slices of requests for hot keys, so many pages are walked.
const PAGES_BETWEEN: u64 = 16;
/// Requests for hot keys in such a slice.
const SLICE: usize = 64;
/// Times that the whole hot set is asked for before its hit ratio is taken.
const WARMING_ROUNDS: u32 = 3;
/// Warm walks at most.
const WARM_WALKS: u32 = 3;
/// Share of its hit ratio that the hot set must keep.
const HOT_KEPT: f64 = 0.8;

/// A run.
#[derive(Clone, Debug)]
pub struct TreeConfig {
    /// The server.
    pub subject: Subject,
    /// Bucket that holds nothing else below the prefix.
    pub bucket: String,
    /// All keys begin so; ends with `/` if it is not empty.
    pub prefix: String,
    /// Prefixes at the root.
    pub top: u64,
    /// Prefixes in each of those.
    pub middle: u64,
    /// Keys in each of those.
    pub leaf: u64,
    /// Bytes of an object.
    pub body_bytes: u64,
    /// Connections that load.
    pub concurrency: u32,
    /// Keys that are asked for again and again.
    pub hot: u64,
    /// Put what is not there yet.
    pub load: bool,
    /// Decides contents and hot keys.
    pub seed: u64,
    /// Show progress on standard error.
    pub progress: bool,
}

impl TreeConfig {
    fn keys(&self) -> u64 {
        self.top * self.middle * self.leaf
    }

    fn top_prefix(&self, top: u64) -> String {
        format!("{}top-{top:03}/", self.prefix)
    }

    fn middle_prefix(&self, top: u64, middle: u64) -> String {
        format!("{}mid-{middle:04}/", self.top_prefix(top))
    }

    /// The key with this number, in the order of a listing.
    fn key(&self, index: u64) -> String {
        let (group, leaf) = (index / self.leaf, index % self.leaf);
        format!("{}key-{leaf:05}", self.middle_prefix(group / self.middle, group % self.middle))
    }

    fn path(&self, key: &str) -> String {
        format!("/{}/{key}", self.bucket)
    }

    fn check(&self) -> Result<(), BenchError> {
        let usage = |text: &str| Err(BenchError::Usage(text.to_owned()));
        if self.top == 0 || self.middle == 0 || self.leaf == 0 || self.concurrency == 0 || self.hot == 0 {
            return usage("top, middle, leaf, concurrency and hot must be at least 1");
        }
        if self.top > 1000 || self.middle > 10_000 || self.leaf > 100_000 {
            return usage("at most 1,000 x 10,000 x 100,000: names have so many digits");
        }
        if !(self.prefix.is_empty() || self.prefix.ends_with('/')) {
            return usage("the prefix must end with a slash");
        }
        Ok(())
    }
}

/// What one walk over all keys took.
#[derive(Default)]
struct Walk {
    /// From the first byte sent to the last byte received, all pages together: what the client does with a page is not in it.
    time: Duration,
    pages: Histogram,
    keys: u64,
    /// What the pages alone cost the server.
    counters: Counters,
    /// What hot keys cost it in between.
    hot: Counters,
}

struct Probe<'a> {
    config: &'a TreeConfig,
    client: Client,
    admin: Admin,
    dice: Dice,
    hot: Vec<String>,
}

/// Loads if it is to, then measures.
pub async fn run(config: &TreeConfig) -> Result<Findings, BenchError> {
    config.check()?;
    let mut findings = Findings::new("tree");
    if config.load {
        let mut client = Client::new(&config.subject.target);
        client.create_bucket(&config.bucket).await.map_err(BenchError::request("create the bucket"))?;
        let begin = first_missing(config, &mut client).await?;
        findings.lines.push(load(config, begin).await?);
    }
    let mut dice = Dice::new(config.seed);
    let hot = (0..config.hot).map(|_| config.key(dice.below(config.keys()))).collect();
    // A connection of its own: the one above was idle while keys were loaded, and a server may close such.
    let client = Client::new(&config.subject.target);
    let mut probe = Probe { config, client, admin: Admin::new(&config.subject), dice, hot };
    probe.admin.flush_caches().await?;
    probe.levels(&mut findings).await?;
    probe.admin.flush_caches().await?;
    let cold = probe.walk(false).await?;
    let warm = probe.warm_walk().await?;
    report_walks(config, &cold, &warm, &mut findings);
    probe.hot_set(&mut findings).await?;
    Ok(findings)
}

/// Keys were put in order by a bounded number of connections, so where the first one misses can be found by halving.
async fn first_missing(config: &TreeConfig, client: &mut Client) -> Result<u64, BenchError> {
    let (mut below, mut above) = (0, config.keys());
    while below < above {
        let middle = below + (above - below) / 2;
        let key = config.key(middle);
        match client.head(&config.path(&key)).await {
            Ok(_) => below = middle + 1,
            Err(error) if error.status() == Some(404) => above = middle,
            Err(error) => return Err(BenchError::request(format!("HEAD of {key}"))(error)),
        }
    }
    // A connection may have been one key behind its neighbours, or a few.
    Ok(if below == config.keys() { below } else { below.saturating_sub(4 * u64::from(config.concurrency)) })
}

/// Puts the keys from `begin` on.
async fn load(config: &TreeConfig, begin: u64) -> Result<Line, BenchError> {
    let total = config.keys();
    let bar = if config.progress { ProgressBar::new(total) } else { ProgressBar::hidden() };
    if let Ok(style) = ProgressStyle::with_template("loading {bar:40} {pos}/{len} {per_sec} {eta}") {
        bar.set_style(style);
    }
    bar.set_position(begin);
    let began = clock::monotonic();
    let mut tasks = tokio::task::JoinSet::new();
    for lane in 0..u64::from(config.concurrency) {
        tasks.spawn(load_lane(config.clone(), begin + lane, bar.clone()));
    }
    while let Some(lane) = tasks.join_next().await {
        lane.map_err(|error| BenchError::Server(format!("a loading task ended badly: {error}")))??;
    }
    bar.finish_and_clear();
    let seconds = (clock::monotonic() - began).as_secs_f64();
    let put = (total - begin) as f64;
    Ok(Line::new("load", &[("keys_put", put), ("seconds", seconds), ("keys_per_second", ratio(put, seconds))]))
}

async fn load_lane(config: TreeConfig, first: u64, bar: ProgressBar) -> Result<(), BenchError> {
    let mut client = Client::new(&config.subject.target);
    let mut body = vec![0; config.body_bytes as usize];
    for index in (first..config.keys()).step_by(config.concurrency as usize) {
        let key = config.key(index);
        Content::of_key(config.seed, &key).fill(0, &mut body);
        client.put(&config.path(&key), &body).await.map_err(BenchError::request(format!("PUT of {key}")))?;
        bar.inc(1);
    }
    Ok(())
}

impl Probe<'_> {
    async fn page(&mut self, request: &PageRequest<'_>) -> Result<(Duration, Page), BenchError> {
        let answer = self.client.list(&self.config.bucket, request).await;
        let (response, page) = answer.map_err(BenchError::request(format!("list {:?}", request.prefix)))?;
        Ok((response.total, page))
    }

    /// Lists one level by its delimiter; the time of all its pages, its groups, its keys.
    async fn level(&mut self, prefix: &str) -> Result<(Duration, Vec<String>, Vec<String>), BenchError> {
        let (mut time, mut groups, mut keys) = (Duration::ZERO, Vec::new(), Vec::new());
        let mut token: Option<String> = None;
        loop {
            let request = PageRequest { prefix, delimiter: Some("/"), token: token.as_deref(), max_keys: PAGE };
            let (took, page) = self.page(&request).await?;
            time += took;
            groups.extend(page.common_prefixes);
            keys.extend(page.objects.into_iter().map(|(key, _, _)| key));
            match page.next {
                Some(next) => token = Some(next),
                None => return Ok((time, groups, keys)),
            }
        }
    }

    /// Every level, every prefix: exactly its groups or its keys.
    async fn levels(&mut self, findings: &mut Findings) -> Result<(), BenchError> {
        let config = self.config;
        let (mut roots, mut tops, mut leaves) = (Histogram::default(), Histogram::default(), Histogram::default());
        let (took, groups, keys) = self.level(&config.prefix).await?;
        roots.record(took);
        let expected: Vec<String> = (0..config.top).map(|top| config.top_prefix(top)).collect();
        same_level(&config.prefix, &expected, &groups, &keys)?;
        let mut first = 0;
        for top in 0..config.top {
            let prefix = config.top_prefix(top);
            let (took, groups, keys) = self.level(&prefix).await?;
            tops.record(took);
            let expected: Vec<String> = (0..config.middle).map(|middle| config.middle_prefix(top, middle)).collect();
            same_level(&prefix, &expected, &groups, &keys)?;
            for prefix in expected {
                let (took, groups, keys) = self.level(&prefix).await?;
                leaves.record(took);
                let expected: Vec<String> = (first..first + config.leaf).map(|index| config.key(index)).collect();
                same_level(&prefix, &expected, &keys, &groups)?;
                first += config.leaf;
            }
        }
        findings.lines.push(Line::times(format!("root, {} groups", config.top), &roots));
        findings.lines.push(Line::times(format!("top, {} groups", config.middle), &tops));
        findings.lines.push(Line::times(format!("middle, {} keys", config.leaf), &leaves));
        Ok(())
    }

    /// All keys page by page; with `hot`, hot keys are asked for in between.
    async fn walk(&mut self, hot: bool) -> Result<Walk, BenchError> {
        let mut walk = Walk::default();
        let mut token: Option<String> = None;
        let mut before = self.admin.counters().await?;
        for pages in 1.. {
            let prefix = self.config.prefix.as_str();
            let request = PageRequest { prefix, delimiter: None, token: token.as_deref(), max_keys: PAGE };
            let (took, page) = self.page(&request).await?;
            walk.time += took;
            walk.pages.record(took);
            for (key, _, size) in &page.objects {
                let expected = self.config.key(walk.keys);
                if *key != expected || *size != self.config.body_bytes {
                    return broken(format!("the walk has {key} of {size} bytes where {expected} must be"));
                }
                walk.keys += 1;
            }
            token = page.next;
            if token.is_none() {
                break;
            }
            if hot && pages % PAGES_BETWEEN == 0 {
                let at = self.admin.counters().await?;
                walk.counters = walk.counters.plus(at.since(before));
                let cost = self.ask_hot(SLICE).await?;
                walk.hot = walk.hot.plus(cost);
                before = self.admin.counters().await?;
            }
        }
        walk.counters = walk.counters.plus(self.admin.counters().await?.since(before));
        if walk.keys == self.config.keys() {
            Ok(walk)
        } else {
            broken(format!("the walk has {} keys instead of {}", walk.keys, self.config.keys()))
        }
    }

    /// What the cold walk left behind is what a warm walk finds. The process reads for itself as well, for compactions and scrubs, and
    /// nobody can tell that apart: so the quietest of a few walks counts.
    async fn warm_walk(&mut self) -> Result<Walk, BenchError> {
        let mut quietest = self.walk(false).await?;
        for _ in 1..WARM_WALKS {
            if quietest.counters.device_bytes == 0.0 {
                break;
            }
            let walk = self.walk(false).await?;
            if walk.counters.device_bytes < quietest.counters.device_bytes {
                quietest = walk;
            }
        }
        Ok(quietest)
    }

    /// HEADs of random hot keys; what they cost the server.
    async fn ask_hot(&mut self, requests: usize) -> Result<Counters, BenchError> {
        let before = self.admin.counters().await?;
        for _ in 0..requests {
            let key = &self.hot[self.dice.below(self.hot.len() as u64) as usize];
            let answer = self.client.head(&self.config.path(key)).await;
            let answer = answer.map_err(BenchError::request(format!("HEAD of {key}")))?;
            if answer.content_length != Some(self.config.body_bytes) {
                return broken(format!("{key} has {:?} bytes", answer.content_length));
            }
        }
        Ok(self.admin.counters().await?.since(before))
    }

    /// The hot set before, during and after a walk over everything.
    async fn hot_set(&mut self, findings: &mut Findings) -> Result<(), BenchError> {
        let all = self.hot.len();
        for _ in 0..WARMING_ROUNDS {
            self.ask_hot(all).await?;
        }
        let before = self.ask_hot(all).await?;
        let walk = self.walk(true).await?;
        let after = self.ask_hot(all).await?;
        for (name, counters) in [("before", before), ("during", walk.hot), ("after", after)] {
            let figures = [
                ("hit_ratio", counters.metadata_hit_ratio()),
                ("blocks_cached", counters.metadata_hits),
                ("blocks_read", counters.metadata_misses),
            ];
            findings.lines.push(Line::new(format!("hot set of {all} keys, {name} a full walk"), &figures));
        }
        let kept = |counters: Counters| ratio(counters.metadata_hit_ratio(), before.metadata_hit_ratio());
        findings.checks.push(Check::count_at_least(
            "hit ratio of the hot set during a walk, of before",
            kept(walk.hot),
            HOT_KEPT,
        ));
        findings.checks.push(Check::count_at_least(
            "hit ratio of the hot set after a walk, of before",
            kept(after),
            HOT_KEPT,
        ));
        Ok(())
    }
}

fn broken<T>(text: String) -> Result<T, BenchError> {
    Err(BenchError::Broken(text))
}

/// Compares what a level must have with what it has, and that it has nothing of the other kind.
fn same_level(prefix: &str, expected: &[String], found: &[String], other: &[String]) -> Result<(), BenchError> {
    if let Some(stranger) = other.first() {
        return broken(format!("{prefix:?} lists {stranger} beside what it must"));
    }
    if expected == found {
        return Ok(());
    }
    let at = expected.iter().zip(found).position(|(a, b)| a != b).unwrap_or(expected.len().min(found.len()));
    let (wanted, is) = (expected.get(at), found.get(at));
    broken(format!(
        "{prefix:?} lists {} entries instead of {}; number {at} is {is:?}, not {wanted:?}",
        found.len(),
        expected.len()
    ))
}

fn report_walks(config: &TreeConfig, cold: &Walk, warm: &Walk, findings: &mut Findings) {
    let rate = |walk: &Walk| ratio(walk.keys as f64, walk.time.as_secs_f64());
    for (name, walk) in [("full walk, cold", cold), ("full walk, warm", warm)] {
        let pages = walk.pages.summary();
        findings.lines.push(Line::new(
            name,
            &[
                ("keys", walk.keys as f64),
                ("entries_per_second", rate(walk)),
                ("page_p50_ms", pages.p50_ms),
                ("page_p99_ms", pages.p99_ms),
                ("tree_blocks_read", walk.counters.metadata_misses),
                ("tree_blocks_cached", walk.counters.metadata_hits),
                ("device_bytes", walk.counters.device_bytes),
            ],
        ));
    }
    findings
        .lines
        .push(Line::new("gain of the warm walk", &[("percent", 100.0 * (ratio(rate(warm), rate(cold)) - 1.0))]));
    findings.checks.push(Check::count(
        "reads of extents by a walk",
        cold.counters.data_hits + cold.counters.data_misses,
        0.0,
    ));
    let (name, reads) = match config.subject.pid {
        Some(_) => ("bytes read from the device by a warm walk", warm.counters.device_bytes),
        // Without the process only the server's cache can be seen: what it lacks, the page cache may have.
        None => ("blocks of the tree that the server's cache lacked in a warm walk", warm.counters.metadata_misses),
    };
    findings.checks.push(Check::count(name, reads, 0.0));
}

#[cfg(test)]
mod tests {
    use super::same_level;

    #[test]
    fn a_level_that_lacks_repeats_or_adds_an_entry_is_a_broken_promise() {
        let list = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let expected = list(&["a/", "b/", "c/"]);
        assert!(same_level("", &expected, &expected, &[]).is_ok());
        for found in [list(&["a/", "c/"]), list(&["a/", "b/", "b/", "c/"]), list(&["b/", "a/", "c/"]), Vec::new()] {
            let error = same_level("p/", &expected, &found, &[]).expect_err("not the level");
            assert!(error.to_string().starts_with("PROMISE BROKEN"), "{error}");
        }
        assert!(same_level("", &expected, &expected, &list(&["key"])).is_err());
    }
}
