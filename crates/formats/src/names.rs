//! What tensors in archives and folders are called: the member's path without its extension, a common top folder
//! dropped, plus `.key` for members that hold dicts. Shards add nothing; a collision gets `#2`.

use std::collections::HashMap;

const COMPRESSED: [&str; 4] = ["gz", "zst", "zstd", "gzip"];

/// A path or name without its last extension, and without a compression's before that: `a/b.npy.gz` is `a/b`.
pub(crate) fn without_extension(path: &str) -> &str {
    match split_extension(path) {
        Some((rest, ext)) if COMPRESSED.contains(&ext.to_ascii_lowercase().as_str()) => {
            split_extension(rest).map_or(rest, |(rest, _)| rest)
        }
        Some((rest, _)) => rest,
        None => path,
    }
}

fn split_extension(path: &str) -> Option<(&str, &str)> {
    let start = path.rfind(['/', '\\']).map_or(0, |slash| slash + 1);
    let (stem, ext) = path[start..].rsplit_once('.')?;
    // `model.layers.0` has no extension, it has a number.
    let number = ext.bytes().all(|b| b.is_ascii_digit());
    (!stem.is_empty() && !number).then(|| (&path[..start + stem.len()], ext))
}

/// The lower-case extension of a path; empty when there is none.
pub(crate) fn extension(path: &str) -> String {
    split_extension(path)
        .map(|(_, ext)| ext.to_ascii_lowercase())
        .unwrap_or_default()
}

/// The file's name without folders and extension: what a bare tensor is called.
pub(crate) fn stem(path: &str) -> &str {
    let rest = without_extension(path);
    rest.rsplit(['/', '\\']).next().unwrap_or(rest)
}

/// Folders and file name.
pub(crate) fn split_folder(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Whether a member's path, if it were followed, would leave its archive.
pub(crate) fn escapes(path: &str) -> bool {
    let drive = path.as_bytes().get(1) == Some(&b':') && path.as_bytes()[0].is_ascii_alphabetic();
    drive || path.starts_with(['/', '\\']) || path.split(['/', '\\']).any(|part| part == "..")
}

/// A member's path with nothing in it that could lead anywhere: no `.`, `..`, drive or leading slash.
pub(crate) fn tamed(path: &str) -> String {
    let parts: Vec<&str> = path
        .split(['/', '\\'])
        .filter(|part| !matches!(*part, "" | "." | ".."))
        .collect();
    parts.join("/")
}

/// `model-00001-of-00002` is shard 1 of `model`.
pub(crate) fn shard(stem: &str) -> Option<(&str, u64)> {
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (base, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    (digits(count) && digits(number)).then_some((base, number.parse().ok()?))
}

/// The rank that a path names: `rank0/x`, `mp_rank_01/y`, `TP0_PP0_Rank3_pid9/z`. The last one counts.
pub(crate) fn rank(path: &str) -> Option<u64> {
    let lower = path.to_ascii_lowercase();
    let number = |at: usize| {
        let before = lower[..at].bytes().next_back();
        if before.is_some_and(|b| b.is_ascii_alphanumeric()) {
            return None;
        }
        let rest = lower[at + 4..].trim_start_matches(['_', '-', '=']);
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest[..digits].parse().ok()
    };
    lower
        .match_indices("rank")
        .filter_map(|(at, _)| number(at))
        .last()
}

/// The folder that all paths begin with, unless it says which rank wrote them: that is worth keeping.
pub(crate) fn common_top<'a>(paths: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let mut tops = paths
        .into_iter()
        .map(|path| path.split_once('/').map(|(top, _)| top));
    let first = tops.next()??;
    (rank(first).is_none() && tops.all(|top| top == Some(first))).then_some(first)
}

/// Gives each name that was there before a number: `x`, `x#2`, `x#3`.
#[derive(Debug, Default)]
pub(crate) struct Unique {
    seen: HashMap<String, u64>,
}

impl Unique {
    pub(crate) fn name(&mut self, name: String) -> String {
        let Some(mut number) = self.seen.get(&name).copied() else {
            self.seen.insert(name.clone(), 1);
            return name;
        };
        // `x#2` may be a name of its own.
        loop {
            number += 1;
            let numbered = format!("{name}#{number}");
            if !self.seen.contains_key(&numbered) {
                self.seen.insert(name, number);
                self.seen.insert(numbered.clone(), 1);
                return numbered;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_one_extension_and_a_compression() {
        assert_eq!(without_extension("a.b/c.npy"), "a.b/c");
        assert_eq!(without_extension("a.b/c"), "a.b/c");
        assert_eq!(without_extension("state_dict.pt.gz"), "state_dict");
        assert_eq!(without_extension("x/.hidden"), "x/.hidden");
        assert_eq!(without_extension("model.layers.0"), "model.layers.0");
        assert_eq!(stem("d/model.weights.h5"), "model.weights");
    }

    #[test]
    fn shards_and_ranks_are_found_in_names() {
        assert_eq!(shard("model-00001-of-00002"), Some(("model", 1)));
        assert_eq!(
            shard("shard-00001-model-00001-of-00001"),
            Some(("shard-00001-model", 1))
        );
        assert_eq!(shard("state-of-art"), None);
        assert_eq!(rank("iter_0000100/mp_rank_07/model_optim_rng"), Some(7));
        assert_eq!(rank("TP0_PP0_Rank3_pid123/Pass00000"), Some(3));
        assert_eq!(rank("frank2/x"), None);
    }

    #[test]
    fn a_common_folder_is_found_unless_it_is_a_rank() {
        assert_eq!(common_top(["d/a", "d/b/c"]), Some("d"));
        assert_eq!(common_top(["d/a", "b"]), None);
        assert_eq!(common_top(["rank0/a", "rank0/b"]), None);
    }

    #[test]
    fn collisions_are_numbered_past_names_that_look_numbered() {
        let mut unique = Unique::default();
        let given: Vec<String> = ["x", "x#2", "x", "x", "y"]
            .into_iter()
            .map(|name| unique.name(name.to_owned()))
            .collect();
        assert_eq!(given, ["x", "x#2", "x#3", "x#4", "y"]);
    }

    #[test]
    fn paths_are_tamed() {
        assert_eq!(tamed("../../etc/./x.npy"), "etc/x.npy");
        assert!(escapes("/etc/x") && escapes("a/../b") && escapes("C:\\x") && !escapes("a/b..c"));
    }
}
