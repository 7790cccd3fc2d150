//! DeepSpeed ZeRO folders, shown as the whole fp32 weights whose parts the ranks keep in their optimizer states.
//!
//! Stages 1 and 2 cut each group of parameters, laid end to end, into one run per rank. Stage 3 cuts every parameter.

use super::{
    globals,
    layout::{Layout, decode_error},
    pickle::{Graph, Id, Node, Pickle, unpickle},
    tensors::Rebuilder,
    zip::Records,
};
use crate::{
    cache::Cache,
    contents::{Contents, Data, Entry, Lazy},
    error::Fault,
    input::Context,
    map::map_file,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};
use twinscope_tensor::{DType, FindingKind, Plain, ReadError, Shape, View};

/// A folder with the optimizer states of every rank, or one whose `latest` names such a folder.
pub(crate) fn recognise_folder(path: &Path) -> bool {
    step_folder(path).is_some()
}

pub(crate) fn read_folder(path: &Path, context: &Context) -> Result<Contents, Fault> {
    let folder = step_folder(path).ok_or_else(|| Fault::Missing {
        what: "optimizer states".into(),
    })?;
    let mut contents = Contents::new("deepspeed-zero");
    contents.ordered = true;
    let (mut models, mut ranks) = (Vec::new(), Vec::new());
    for (rank, path) in states(&folder, "_optim_states.pt") {
        ranks.push((rank, File::open(&path, context, &mut contents)?));
    }
    for (_, path) in states(&folder, "_model_states.pt") {
        models.push(File::open(&path, context, &mut contents)?);
    }
    let model = models.first().ok_or_else(|| Fault::Missing {
        what: "the model states".into(),
    })?;
    merge(model, &ranks, context, &mut contents)?;
    Ok(contents)
}

fn step_folder(path: &Path) -> Option<PathBuf> {
    let is_step = |path: &Path| {
        !states(path, "_optim_states.pt").is_empty() && !states(path, "_model_states.pt").is_empty()
    };
    if is_step(path) {
        return Some(path.to_owned());
    }
    let latest = path.join("latest");
    // A tag is one name; anything else in that file is no tag.
    if std::fs::metadata(&latest).ok()?.len() > 4096 {
        return None;
    }
    let tag = std::fs::read_to_string(latest).ok()?;
    let tag = tag.trim();
    if tag.is_empty() || tag.contains(['/', '\\', '\0']) || tag == ".." || tag == "." {
        return None;
    }
    Some(path.join(tag)).filter(|path| is_step(path))
}

/// The state files of a step by rank; none when the model itself is split, which is not merged here.
fn states(folder: &Path, end: &str) -> Vec<(u64, PathBuf)> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten().take(100_000) {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.ends_with(end) || !name.contains("mp_rank_") {
            continue;
        }
        let number = |word: &str| {
            name.split_once(word)
                .map(|(_, rest)| {
                    rest.chars()
                        .take_while(char::is_ascii_digit)
                        .collect::<String>()
                })
                .and_then(|digits| digits.parse::<u64>().ok())
        };
        if number("mp_rank_") != Some(0) {
            return Vec::new();
        }
        let rank = number("zero_pp_rank_");
        if end == "_optim_states.pt" && rank.is_none() {
            continue;
        }
        found.push((rank.unwrap_or(0), entry.path()));
    }
    found.sort();
    found
}

/// One torch file of the folder.
struct File {
    records: Records,
    pickle: Pickle,
    root: Id,
}

impl File {
    fn open(path: &Path, context: &Context, contents: &mut Contents) -> Result<Self, Fault> {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        let bytes = map_file(path).map_err(|error| Fault::Io {
            what: format!("`{name}`: {error}"),
        })?;
        let records = Records::open(&bytes, context)?;
        let pickle = unpickle(&records.get("data.pkl")?, 0, &context.limits);
        globals::inspect(&pickle.graph, &context.limits, contents, false, 0);
        let root = pickle.result.clone()?.root;
        Ok(Self {
            records,
            pickle,
            root,
        })
    }

    fn graph(&self) -> &Graph {
        &self.pickle.graph
    }

    fn rebuilder<'a>(&'a self, context: &'a Context) -> Rebuilder<'a> {
        Rebuilder {
            graph: &self.pickle.graph,
            storages: &self.records,
            context,
            nested: 0,
        }
    }
}

/// The pairs of a dict or of an `OrderedDict`.
fn pairs(graph: &Graph, id: Id) -> Vec<(Id, Id)> {
    match graph.node(id) {
        Node::Dict(_) => graph.pairs(id).unwrap_or_default(),
        Node::Call { .. } => graph
            .extra(id)
            .map(|extra| graph.pairs_of(extra.pairs))
            .unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn get(graph: &Graph, id: Id, key: &str) -> Option<Id> {
    pairs(graph, id)
        .into_iter()
        .rev()
        .find(|(found, _)| graph.text(*found).is_some_and(|text| text == key))
        .map(|(_, value)| value)
}

/// A parameter's name and shape.
type Parameter = (String, Shape);

/// `param_shapes`: one dict per group.
fn groups(model: &File, context: &Context) -> Result<Vec<Vec<Parameter>>, Fault> {
    let graph = model.graph();
    let shapes = get(graph, model.root, "param_shapes").ok_or_else(|| Fault::Missing {
        what: "`param_shapes` in the model states".into(),
    })?;
    let lists = match graph.node(shapes) {
        Node::List(chain) => graph.chain(chain),
        _ => vec![shapes],
    };
    let rebuilder = model.rebuilder(context);
    lists
        .into_iter()
        .map(|group| {
            pairs(graph, group)
                .into_iter()
                .map(|(name, size)| {
                    Ok((
                        graph.text(name).unwrap_or_default().into_owned(),
                        rebuilder.shape(size)?,
                    ))
                })
                .collect()
        })
        .collect()
}

fn merge(
    model: &File,
    ranks: &[(u64, File)],
    context: &Context,
    contents: &mut Contents,
) -> Result<(), Fault> {
    let groups = groups(model, context)?;
    let (_, first) = ranks.first().ok_or_else(|| Fault::Missing {
        what: "optimizer states".into(),
    })?;
    let state = |file: &File| {
        get(file.graph(), file.root, "optimizer_state_dict").ok_or_else(|| Fault::Missing {
            what: "`optimizer_state_dict`".into(),
        })
    };
    let stage =
        get(first.graph(), state(first)?, "zero_stage").and_then(|id| first.graph().int(id));
    for (expected, (rank, _)) in ranks.iter().enumerate() {
        if *rank != expected as u64 {
            return Err(Fault::Missing {
                what: format!("the optimizer states of rank {expected}"),
            });
        }
    }
    let key = if stage == Some(3) {
        "fp32_flat_groups"
    } else {
        "single_partition_of_fp32_groups"
    };
    let mut flats: Vec<Vec<Layout>> = Vec::new();
    for (rank, file) in ranks {
        let list = get(file.graph(), state(file)?, key)
            .and_then(|id| file.graph().sequence(id))
            .unwrap_or_default();
        let rebuilder = file.rebuilder(context);
        let parts: Result<Vec<Layout>, Fault> =
            list.iter().map(|id| flat(&rebuilder, *id)).collect();
        flats.push(parts.map_err(|fault| Fault::CorruptPickle {
            what: format!("`{key}` of rank {rank}: {fault}"),
        })?);
    }
    if let Some(stage) = stage {
        contents.value("zero_stage".into(), Plain::Int(stage.to_string()));
    }
    if stage == Some(3) {
        let runs: Vec<Runs> = flats.into_iter().map(Runs).collect();
        stage_3(&groups, &runs, context, contents);
    } else {
        for (group, parameters) in groups.iter().enumerate() {
            // Rank after rank, the group is whole again.
            let whole = Runs(
                flats
                    .iter()
                    .filter_map(|rank| rank.get(group).cloned())
                    .collect(),
            );
            let mut at = 0u64;
            for (name, shape) in parameters {
                let count = shape.elements().unwrap_or(0);
                push(contents, name, shape, whole.cut(at, count), context);
                at = at.saturating_add(count);
            }
        }
    }
    beside(model, context, contents);
    Ok(())
}

/// Every parameter is cut into as many equal runs as there are ranks, the last one padded.
fn stage_3(groups: &[Vec<Parameter>], ranks: &[Runs], context: &Context, contents: &mut Contents) {
    let world = ranks.len() as u64;
    let mut at = 0u64;
    for (name, shape) in groups.iter().flatten() {
        let count = shape.elements().unwrap_or(0);
        let each = count.div_ceil(world);
        let mut runs = Ok(Vec::new());
        let mut left = count;
        for rank in ranks {
            let taken = left.min(each);
            left -= taken;
            runs = runs.and_then(|mut all: Vec<Layout>| {
                all.extend(rank.cut(at, taken)?);
                Ok(all)
            });
        }
        push(contents, name, shape, runs, context);
        at = at.saturating_add(each);
    }
}

/// A one-dimensional tensor that lies in one piece.
fn flat(rebuilder: &Rebuilder<'_>, id: Id) -> Result<Layout, Fault> {
    let none = || Fault::CorruptPickle {
        what: "no tensor".into(),
    };
    let layout = rebuilder
        .tensors(id)?
        .and_then(|tensors| tensors.into_iter().next())
        .ok_or_else(none)?
        .layout()?;
    let count = layout.shape.elements().unwrap_or(0);
    if layout.shape.rank() != 1 || layout.strides != [1] && count > 1 {
        return Err(Fault::BadShape {
            what: format!("a flat group of {}", layout.shape),
        });
    }
    Ok(layout)
}

/// Flat tensors end to end.
struct Runs(Vec<Layout>);

impl Runs {
    /// The elements from `start` on, as parts of the tensors they lie in.
    fn cut(&self, start: u64, count: u64) -> Result<Vec<Layout>, Fault> {
        let (mut skip, mut left) = (start, count);
        let mut out = Vec::new();
        for run in &self.0 {
            let len = run.shape.elements().unwrap_or(0);
            let taken = len.saturating_sub(skip).min(left);
            if taken > 0 {
                let mut part = Layout::new(
                    run.dtype,
                    Shape::from([taken]),
                    vec![1],
                    run.offset.saturating_add(skip),
                    run.origin.clone(),
                )?;
                part.big_endian = run.big_endian;
                out.push(part);
            }
            skip = skip.saturating_sub(len);
            left -= taken;
        }
        if left > 0 {
            return Err(Fault::Truncated {
                what: format!("{left} of {count} elements are in no rank's part"),
            });
        }
        Ok(out)
    }
}

fn push(
    contents: &mut Contents,
    name: &str,
    shape: &Shape,
    runs: Result<Vec<Layout>, Fault>,
    context: &Context,
) {
    match runs.and_then(|runs| joined(name, shape, runs, context)) {
        Ok((dtype, data)) => contents.entries.push(Entry {
            name: name.to_owned(),
            dtype,
            shape: shape.clone(),
            meta: None,
            data,
        }),
        Err(fault) => contents.skip(name, fault),
    }
}

fn joined(
    name: &str,
    shape: &Shape,
    runs: Vec<Layout>,
    context: &Context,
) -> Result<(DType, Data), Fault> {
    let dtype = runs.first().map_or(DType::F32, |run| run.dtype);
    if runs.iter().any(|run| run.dtype != dtype) {
        return Err(Fault::BadDtype {
            what: "parts of different dtypes".into(),
        });
    }
    if let [only] = runs.as_slice() {
        let strides = shape.row_major().ok_or_else(|| Fault::Overflow {
            what: format!("a shape of {shape}"),
        })?;
        let mut layout = Layout::new(
            dtype,
            shape.clone(),
            strides,
            only.offset,
            only.origin.clone(),
        )?;
        layout.big_endian = only.big_endian;
        return Ok((dtype, layout.data()?));
    }
    let whole = Joined {
        name: name.to_owned(),
        dtype,
        shape: shape.clone(),
        runs,
        cache: Arc::clone(&context.cache),
    };
    Ok((dtype, Data::Lazy(Arc::new(whole))))
}

/// A parameter whose runs lie in several files; written end to end when it is read.
struct Joined {
    name: String,
    dtype: DType,
    shape: Shape,
    runs: Vec<Layout>,
    cache: Arc<Cache>,
}

impl Joined {
    fn join(&self) -> Result<View, Fault> {
        let len = self
            .shape
            .elements()
            .and_then(|elements| self.dtype.byte_len(elements))
            .unwrap_or(0);
        let bytes = self.cache.make(&self.name, len, &mut |out| {
            let mut scratch = Vec::new();
            for run in &self.runs {
                let view = run.view().map_err(|error| Fault::Io {
                    what: error.to_string(),
                })?;
                let mut at = 0;
                while at < view.len() {
                    let count = (view.len() - at).min(1 << 16);
                    out.write_all(view.chunk(at, count as usize, &mut scratch))
                        .map_err(|error| Fault::Io {
                            what: error.to_string(),
                        })?;
                    at += count;
                }
            }
            Ok(())
        })?;
        View::new(self.dtype, self.shape.clone(), bytes).map_err(Fault::from)
    }
}

impl Lazy for Joined {
    fn view(&self) -> Result<View, ReadError> {
        self.join().map_err(decode_error)
    }
}

/// Buffers, which no rank cuts, and parameters that are another one's twin.
fn beside(model: &File, context: &Context, contents: &mut Contents) {
    let graph = model.graph();
    let rebuilder = model.rebuilder(context);
    let module = get(graph, model.root, "module");
    let names = get(graph, model.root, "buffer_names")
        .and_then(|id| graph.sequence(id))
        .unwrap_or_default();
    for name in names.iter().filter_map(|id| graph.text(*id)) {
        let Some(id) = module.and_then(|module| get(graph, module, &name)) else {
            continue;
        };
        let built = rebuilder.tensors(id).and_then(|tensors| {
            tensors
                .and_then(|all| all.into_iter().next())
                .ok_or_else(|| Fault::CorruptPickle {
                    what: "no tensor".into(),
                })
        });
        match built
            .and_then(|built| built.layout())
            .and_then(|layout| Ok((layout.dtype, layout.shape.clone(), layout.data()?)))
        {
            Ok((dtype, shape, data)) => contents.entries.push(Entry {
                name: name.into_owned(),
                dtype,
                shape,
                meta: None,
                data,
            }),
            Err(fault) => contents.skip(name, fault),
        }
    }
    let Some(shared) = get(graph, model.root, "shared_params") else {
        return;
    };
    for (alias, of) in pairs(graph, shared) {
        let (Some(alias), Some(of)) = (graph.text(alias), graph.text(of)) else {
            continue;
        };
        let Some(entry) = contents.entries.iter().find(|entry| entry.name == of) else {
            contents.find(
                FindingKind::Odd,
                format!("`{alias}` is said to be `{of}`, which is not there"),
            );
            continue;
        };
        let twin = Entry {
            name: alias.into_owned(),
            dtype: entry.dtype,
            shape: entry.shape.clone(),
            meta: None,
            data: entry.data.clone(),
        };
        contents.entries.push(twin);
    }
}
