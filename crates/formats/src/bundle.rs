//! A bundle of tensor files is one source: members of an archive, files of a folder, shards of an index.
//!
//! Every member is read by its own format, on all cores. What one of them gets wrong is listed under its name and never
//! hides the others. Files that are no tensors (README, configs, images) are left out without a word, unless their
//! extension says they should be.

use crate::{
    OpenError,
    archive::{tar, zip, zip_directory::ZipEntry},
    contents::{Contents, Entry},
    error::Fault,
    folder::{self, sglang},
    input::{Context, Input},
    map,
    names::{self, Unique},
    open, run,
    sharded::{self, Index},
};
use rayon::prelude::*;
use std::{
    cmp::Ordering,
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};
use twinscope_names::order;
use twinscope_tensor::{Bytes, Finding, FindingKind, PlainValue, Skipped};

/// More files than any dump has; a bound for archives that are nothing but members.
const MOST_MEMBERS: usize = 500_000;

/// One file of a bundle.
#[derive(Debug)]
pub(crate) struct Member {
    /// As the archive has it, or relative to the folder; `/` between parts.
    pub(crate) path: String,
    pub(crate) load: Load,
}

/// Where a member's bytes are.
#[derive(Debug)]
pub(crate) enum Load {
    Bytes(Bytes),
    File(PathBuf),
    Zip {
        entry: Box<ZipEntry>,
        archive: Arc<Bytes>,
    },
    /// A folder that is a format of its own.
    Folder(PathBuf),
    Fault(Fault),
    /// No tensor file, by its name.
    Not,
}

/// Extensions of files that hold tensors: what is unreadable under such a name must be said.
const TENSORS: &[&str] = &[
    "pt",
    "pth",
    "bin",
    "ckpt",
    "pkl",
    "pickle",
    "pt2",
    "ptc",
    "safetensors",
    "npy",
    "npz",
    "gguf",
    "onnx",
    "h5",
    "hdf5",
    "keras",
    "msgpack",
    "pdparams",
    "pdopt",
    "mar",
    "pte",
    "distcp",
    "zip",
    "tar",
    "gz",
    "tgz",
    "zst",
    "tzst",
    "raw",
    "f32",
    "bf16",
    "f16",
];

/// Extensions of files that never do.
const OTHERS: &[&str] = &[
    "json", "jsonl", "txt", "md", "rst", "py", "pyc", "ipynb", "yaml", "yml", "toml", "ini", "cfg",
    "csv", "tsv", "log", "html", "htm", "css", "js", "ts", "png", "jpg", "jpeg", "gif", "svg",
    "webp", "pdf", "sh", "rs", "c", "h", "cc", "cpp", "cu", "lock", "xml", "jinja", "tmp", "out",
    "err", "diff", "patch",
];

/// Whether the name leaves any doubt that this is no tensor file. Such a member is not even unpacked.
pub(crate) fn worth_reading(path: &str) -> bool {
    let (_, file) = names::split_folder(path);
    let noise = path.split('/').any(|part| part == "__MACOSX")
        || file.starts_with("._")
        || file == ".DS_Store"
        || file == "Thumbs.db";
    let kept = sharded::is_index_name(file)
        || folder::hf_debug::is_tree_name(file)
        || run::file_of_run(path).is_some();
    !noise && (kept || !OTHERS.contains(&names::extension(file).as_str()))
}

fn looks_like_tensors(path: &str) -> bool {
    TENSORS.contains(&names::extension(path).as_str())
}

impl Member {
    fn read(&self, context: &Context) -> Result<Contents, OpenError> {
        let malformed = |fault| OpenError::Malformed {
            file: self.path.clone(),
            fault,
        };
        let (bytes, path) = match &self.load {
            Load::Bytes(bytes) => (bytes.clone(), None),
            Load::File(path) => {
                let bytes = map::map_file(path).map_err(|source| OpenError::Io {
                    path: path.clone(),
                    source,
                })?;
                (bytes, Some(path.clone()))
            }
            Load::Zip { entry, archive } => (
                entry
                    .open(archive, &context.cache, &context.limits)
                    .map_err(malformed)?,
                None,
            ),
            Load::Folder(path) => return folder::read_special(path, context).map_err(malformed),
            Load::Fault(fault) => return Err(malformed(fault.clone())),
            Load::Not => return Ok(Contents::default()),
        };
        let input = Input {
            name: self.path.clone(),
            path,
            bytes,
        };
        let contents = open::read(&input, context);
        // Headers read from a file that was cut short meanwhile are not what it said.
        input.bytes.check()?;
        contents
    }

    fn bytes(&self, context: &Context) -> Option<Bytes> {
        match &self.load {
            Load::Bytes(bytes) => Some(bytes.clone()),
            Load::File(path) => map::map_file(path).ok(),
            Load::Zip { entry, archive } => {
                entry.open(archive, &context.cache, &context.limits).ok()
            }
            Load::Folder(_) | Load::Fault(_) | Load::Not => None,
        }
    }
}

/// One source of all members; an error when there is not a single tensor file among them.
pub(crate) fn assemble(
    format: &'static str,
    members: Vec<Member>,
    context: &Context,
) -> Result<Contents, Fault> {
    let looked_at = members.len();
    let mut contents = Contents::new(format);
    let members = settle(members, &mut contents)?;
    let (members, runs) = take_runs(members);
    let (members, indexes) = take_indexes(members, context);
    // An archive of one run is that run.
    if let ([run], true) = (&runs[..], members.is_empty()) {
        return run.read(context).map(|read| Contents {
            format,
            findings: [contents.findings, read.findings].concat(),
            ..read
        });
    }
    // At the top beside other files a run has no name of its own.
    let named = |path: &str| {
        if path.is_empty() {
            "run".to_owned()
        } else {
            path.to_owned()
        }
    };
    let runs = runs.iter().map(|run| (named(&run.path), run.read(context)));
    read_all(members, runs.collect(), &indexes, context, &mut contents);
    if contents.is_empty() && !contents.ordered {
        let what = match looked_at {
            0 => "there is no file inside".to_owned(),
            1 => "the one file inside is no tensor file".to_owned(),
            _ => format!("none of the {looked_at} files inside is a tensor file"),
        };
        return Err(Fault::NoTensors { what });
    }
    Ok(contents)
}

/// One source of the shards that an index names.
pub(crate) fn assemble_shards(
    format: &'static str,
    members: Vec<Member>,
    index: &Index,
    context: &Context,
) -> Result<Contents, Fault> {
    let mut contents = Contents::new(format);
    read_all(
        members,
        Vec::new(),
        std::slice::from_ref(index),
        context,
        &mut contents,
    );
    Ok(contents)
}

/// A captured run among the members.
struct Run {
    path: String,
    /// By their path in the run.
    files: HashMap<String, Member>,
}

impl Run {
    fn read(&self, context: &Context) -> Result<Contents, Fault> {
        let open = |name: &str| {
            let missing = || Fault::Missing {
                what: format!("`{name}`"),
            };
            self.files
                .get(name)
                .and_then(|member| member.bytes(context))
                .ok_or_else(missing)
        };
        let files =
            run::Files::new(self.files.keys().map(String::as_str), &open).ok_or_else(|| {
                Fault::Missing {
                    what: "an index".to_owned(),
                }
            })?;
        run::read_files(&files, context)
    }
}

/// A run is one source, not one for each of its segments.
fn take_runs(members: Vec<Member>) -> (Vec<Member>, Vec<Run>) {
    let index = |path: &str| {
        run::file_of_run(path)
            .filter(|(_, file)| file.ends_with("/index.jsonl"))
            .map(|(run, _)| run.to_owned())
    };
    let mut runs: BTreeMap<String, Run> = members
        .iter()
        .filter_map(|member| index(&member.path))
        .map(|path| {
            (
                path.clone(),
                Run {
                    path,
                    files: HashMap::new(),
                },
            )
        })
        .collect();
    let mut rest = Vec::new();
    for member in members {
        let place =
            run::file_of_run(&member.path).map(|(run, file)| (run.to_owned(), file.to_owned()));
        match place.and_then(|(run, file)| Some((runs.get_mut(&run)?, file))) {
            Some((run, file)) => drop(run.files.insert(file, member)),
            None => rest.push(member),
        }
    }
    (rest, runs.into_values().collect())
}

fn read_all(
    members: Vec<Member>,
    runs: Vec<(String, Result<Contents, Fault>)>,
    indexes: &[Index],
    context: &Context,
    contents: &mut Contents,
) {
    let read: Vec<(Member, Result<Contents, OpenError>)> = members
        .into_par_iter()
        .map(|member| {
            let read = member.read(context);
            (member, read)
        })
        .collect();
    let mut parts = Vec::new();
    for (path, read) in runs {
        match read {
            Ok(part) => parts.push(Part::new(path, part)),
            Err(fault) => contents.skip(path, fault),
        }
    }
    for (Member { path, .. }, read) in read {
        match read {
            Ok(part) => parts.push(Part::new(path, part)),
            Err(OpenError::Unrecognised { found, .. }) if looks_like_tensors(&path) => {
                contents.skipped.push(Skipped {
                    name: path,
                    reason: format!("not a tensor file but {found}"),
                });
            }
            Err(OpenError::Unrecognised { .. }) => {}
            Err(OpenError::Malformed { fault, .. }) => contents.skip(path, fault),
            Err(OpenError::Io { source, .. }) => contents.skipped.push(Skipped {
                name: path,
                reason: source.to_string(),
            }),
            Err(error) => contents.skipped.push(Skipped {
                name: path,
                reason: error.to_string(),
            }),
        }
    }
    for index in indexes {
        index.check(&mut parts, contents);
    }
    // An empty checkpoint is a checkpoint; no tensor file at all is a mistake, and stays marked as one.
    contents.ordered = !parts.is_empty();
    join(parts, contents);
}

/// Names made harmless, noise left out, the last of equal names kept (as `tar` does).
fn settle(members: Vec<Member>, contents: &mut Contents) -> Result<Vec<Member>, Fault> {
    if members.len() > MOST_MEMBERS {
        return Err(Fault::Limit {
            what: format!("{} members, {MOST_MEMBERS} are read", members.len()),
        });
    }
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut settled: Vec<Member> = Vec::new();
    let mut escaping = 0;
    let mut example = None;
    for mut member in members {
        if names::escapes(&member.path) {
            escaping += 1;
            example.get_or_insert_with(|| member.path.clone());
        }
        if matches!(member.load, Load::Not) || !worth_reading(&member.path) {
            continue;
        }
        member.path = names::tamed(&member.path);
        match places.get(&member.path) {
            // A bad copy does not displace a good one.
            Some(_) if matches!(member.load, Load::Fault(_)) => settled.push(member),
            Some(place) => {
                contents.find(
                    FindingKind::Odd,
                    format!("`{}` is there twice; the last one is read", member.path),
                );
                settled[*place] = member;
            }
            None => {
                places.insert(member.path.clone(), settled.len());
                settled.push(member);
            }
        }
    }
    if let Some(example) = example {
        let more = if escaping > 1 {
            format!(" (and {} more)", escaping - 1)
        } else {
            String::new()
        };
        contents.find(
            FindingKind::PathEscape,
            format!("the member name `{example}`{more} leaves the archive; nothing is extracted"),
        );
    }
    Ok(settled)
}

/// Indexes say which tensors belong where; debug trees say which files are theirs.
fn take_indexes(members: Vec<Member>, context: &Context) -> (Vec<Member>, Vec<Index>) {
    let mut indexes = Vec::new();
    let mut taken = HashSet::new();
    let (special, mut members): (Vec<Member>, Vec<Member>) =
        members.into_iter().partition(|member| {
            let (_, file) = names::split_folder(&member.path);
            sharded::is_index_name(file) || folder::hf_debug::is_tree_name(file)
        });
    for member in special {
        let (dir, file) = names::split_folder(&member.path);
        if sharded::is_index_name(file) {
            let parsed = member
                .bytes(context)
                .and_then(|bytes| Index::parse(dir, file, &bytes, &context.limits).ok());
            indexes.extend(parsed);
        } else if matches!(member.load, Load::File(_)) {
            let files = member
                .bytes(context)
                .map(|bytes| folder::hf_debug::files(&bytes))
                .unwrap_or_default();
            taken.extend(files.into_iter().map(|file| {
                if dir.is_empty() {
                    file
                } else {
                    format!("{dir}/{file}")
                }
            }));
            members.push(member);
        }
    }
    members.retain(|member| !taken.contains(&member.path));
    (members, indexes)
}

/// What one member holds, and where it belongs.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) path: String,
    pub(crate) contents: Contents,
    /// Its tensors keep their own names: a shard, a debug tree.
    pub(crate) nameless: bool,
    dump: Option<sglang::Dump>,
}

impl Part {
    fn new(path: String, contents: Contents) -> Self {
        let (_, file) = names::split_folder(&path);
        let nameless = names::shard(names::without_extension(file)).is_some()
            || folder::hf_debug::is_tree_name(file);
        let dump = sglang::Dump::parse(file);
        Self {
            path,
            contents,
            nameless,
            dump,
        }
    }
}

/// Where a part stands: tensors with a dump index in its order, all others by name.
struct Placed {
    key: String,
    step: u64,
    index: Option<u64>,
    shard: u64,
    prefix: String,
    part: Part,
}

fn join(parts: Vec<Part>, contents: &mut Contents) {
    let top = names::common_top(parts.iter().map(|part| part.path.as_str()))
        .map(|top| top.len() + 1)
        .unwrap_or(0);
    let layout = sglang::Layout::of(parts.iter().filter_map(|part| part.dump.as_ref()));
    let mut placed: Vec<Placed> = parts
        .into_iter()
        .map(|part| place(part, top, &layout))
        .collect();
    let names = order::Names::of(
        placed
            .iter()
            .filter(|placed| placed.index.is_none())
            .map(|placed| placed.key.as_str()),
    );
    placed.sort_by(|a, b| match (a.index, b.index) {
        (Some(x), Some(y)) => (a.step, x)
            .cmp(&(b.step, y))
            .then_with(|| order::Names::Spoken.cmp(&a.key, &b.key)),
        (None, None) => names
            .cmp(&a.key, &b.key)
            .then_with(|| a.shard.cmp(&b.shard)),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
    });
    let mut unique = Unique::default();
    let mut rest = placed.into_iter().peekable();
    while let Some(first) = rest.next() {
        let mut group = vec![first];
        while let Some(next) = rest.next_if(|next| {
            next.part.nameless && group[0].part.nameless && next.key == group[0].key
        }) {
            group.push(next);
        }
        pool(group, &mut unique, contents);
    }
}

fn place(part: Part, top: usize, layout: &sglang::Layout) -> Placed {
    let path = &part.path[top..];
    if let Some(dump) = &part.dump {
        let (dir, _) = names::split_folder(path);
        let name = layout.name(dir, dump);
        return Placed {
            key: name.clone(),
            step: dump.step,
            index: dump.index,
            shard: 0,
            prefix: name,
            part,
        };
    }
    let stem = sglang::without_pid(names::without_extension(path));
    let (dir, file) = names::split_folder(&stem);
    let (key, shard, prefix) = if part.nameless {
        let (base, number) = names::shard(file).unwrap_or((file, 0));
        (
            if dir.is_empty() {
                base.to_owned()
            } else {
                format!("{dir}/{base}")
            },
            number,
            dir.to_owned(),
        )
    } else {
        (stem.clone(), 0, stem)
    };
    Placed {
        key,
        step: 0,
        index: None,
        shard,
        prefix,
        part,
    }
}

/// The tensors of one member, or of all shards of a model, in order and with their names.
fn pool(group: Vec<Placed>, unique: &mut Unique, contents: &mut Contents) {
    let ordered = group.iter().all(|placed| placed.part.contents.ordered);
    let single = group.len() == 1;
    let mut entries: Vec<Entry> = Vec::new();
    let before = contents.entries.len();
    for placed in group {
        let Placed { prefix, part, .. } = placed;
        let Part {
            path,
            contents: mut inner,
            nameless,
            dump,
        } = part;
        if let Some(dump) = &dump {
            dump.lift(&mut inner);
        }
        let archive = [
            zip::FORMAT,
            tar::FORMAT,
            "tar.gz",
            "tar.zst",
            folder::FORMAT,
        ]
        .contains(&inner.format);
        let glue = if archive || nameless { '/' } else { '.' };
        let named = |name: &str| match (prefix.is_empty(), name.is_empty()) {
            (true, false) => name.to_owned(),
            (true, true) => names::stem(&path).to_owned(),
            (false, true) => prefix.clone(),
            (false, false) => format!("{prefix}{glue}{name}"),
        };
        let rank = names::rank(&path);
        let first = before + entries.len();
        for mut entry in inner.entries {
            entry.name = named(&entry.name);
            if let Some(rank) = rank {
                entry
                    .meta
                    .get_or_insert_default()
                    .entry("rank")
                    .or_insert_with(|| rank.into());
            }
            entries.push(entry);
        }
        let values = inner.values.into_iter();
        contents.values.extend(values.map(|value| PlainValue {
            name: named(&value.name),
            value: value.value,
            after: first + value.after,
        }));
        contents
            .skipped
            .extend(inner.skipped.into_iter().map(|skipped| Skipped {
                name: named(&skipped.name),
                reason: skipped.reason,
            }));
        for Finding { kind, text } in inner.findings {
            contents.find(kind, format!("`{path}`: {text}"));
        }
        if single && nameless && contents.meta.is_none() {
            contents.meta = inner.meta;
        }
    }
    if !ordered {
        order::sort_by_name(&mut entries, |entry| &entry.name);
    }
    for mut entry in entries {
        entry.name = unique.name(entry.name);
        contents.entries.push(entry);
    }
}
